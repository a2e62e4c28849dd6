"""How power follows activity is learned, and what a held board would draw free is narrowed."""

from dataclasses import replace

import numpy as np
import pytest

from data.catalogue.gpu_catalogue import GpuModel, load_gpu_catalogue
from data.facts.job_history import NO_HISTORY, JobHistory
from planner.costs.free_boards import free_board, freed_board
from planner.jobs.power_curve import CURVE, PowerCurve, learned_curve

H100 = load_gpu_catalogue().get("H100-SXM5-80GB")
SEEN = replace(H100, idle_watts_low=72.0, idle_watts=75.0, idle_watts_high=78.0)
"""The model as free boards of a fleet show it: they differ by 3 %."""


def rows(rng: np.random.Generator, exponent: float, spread: float, slots: int = 96) -> JobHistory:
    """A history of a job whose boards draw an exponent of their activity."""
    activity = np.clip(0.4 * np.exp(spread * rng.standard_normal(slots)), 0.05, 0.95)
    held = 1 + 0.25 * rng.random()
    watts = H100.idle_watts * held + 500 * activity**exponent
    return replace(
        NO_HISTORY,
        slot_start=np.arange(slots).astype("datetime64[us]"),
        allocated_gpus=np.full(slots, 4.0),
        effective_gpus=4 * activity * (1 + 0.01 * rng.standard_normal(slots)),
        power_watts=4 * watts * (1 + 0.01 * rng.standard_normal(slots)),
    )


def test_an_exponent_is_learned_as_well_as_it_says() -> None:
    """Of 400 drawn jobs about 8 of 10 lie in the band, and steady ones stay at the prior."""
    rng = np.random.default_rng(1)
    inside = []
    for _job in range(400):
        true = float(np.exp(CURVE / 1.2816 * rng.standard_normal()))
        found = learned_curve(rows(rng, true, float(rng.choice([0.05, 0.2, 0.4]))), H100)
        inside.append(abs(found.exponent - true) <= found.half_width)
    assert 0.72 <= np.mean(inside) <= 0.92
    hot = learned_curve(rows(rng, 0.4, 0.3), H100)
    assert hot.exponent == pytest.approx(0.4, abs=0.1)  # drawn a little towards 1
    steady = learned_curve(rows(rng, 0.4, 0.0), H100)
    assert steady.half_width == pytest.approx(CURVE, rel=0.1)


@pytest.mark.parametrize("lacking", ["power_watts", "effective_gpus"])
def test_without_readings_nothing_is_learned(lacking: str) -> None:
    """Unknown power or activity leaves the prior."""
    unknown = replace(rows(np.random.default_rng(2), 0.5, 0.3), **{lacking: np.full(96, np.nan)})
    assert learned_curve(unknown, H100) == PowerCurve()
    assert learned_curve(NO_HISTORY, H100) == PowerCurve()


def test_the_same_work_on_half_of_the_boards_draws_less_where_boards_are_hot_at_once() -> None:
    """Twice the activity draws twice the power only at an exponent of 1, and less below."""
    assert PowerCurve(exponent=1.0, half_width=0.0).rise(2.0) == pytest.approx(2.0)
    assert PowerCurve(exponent=0.5, half_width=0.0).rise(2.0) == pytest.approx(2**0.5)
    assert PowerCurve(exponent=1.0, half_width=0.3).rise(2.0) > 2.0


def test_a_freed_board_saves_what_holding_it_draws_and_never_less_than_nothing() -> None:
    """Over boards drawn as the catalogue says, the mean is right and the range holds 8 of 10."""
    rng = np.random.default_rng(3)
    z = rng.standard_normal(4_000) / 1.2816
    low, middle, high = H100.idle_watts_low, H100.idle_watts, H100.idle_watts_high
    free = middle + z * np.where(z > 0, high - middle, middle - low)
    held = free * (1 + 0.25 * rng.random(4_000))
    found = [freed_board(H100, watts, rests=True) for watts in held]
    mean = np.array([board.mean for board in found])
    assert (held - mean).mean() == pytest.approx((held - free).mean(), rel=0.15)
    inside = [board.low <= true <= board.high for board, true in zip(found, free, strict=True)]
    assert np.mean(inside) == pytest.approx(0.8, abs=0.06)
    assert (mean <= held * (1 + 1e-9)).all()


def test_a_board_that_draws_far_more_at_rest_is_believed() -> None:
    """A job that spins without work frees all that a free board would not draw."""
    found = freed_board(H100, 300.0, rests=True)
    assert found.mean == pytest.approx(free_board(H100).mean, rel=0.1)
    assert freed_board(H100, 20.0, rests=False).mean <= 20.0


@pytest.mark.parametrize("boards", [1, 8])
@pytest.mark.parametrize("model", [H100, SEEN])
def test_several_boards_are_held_by_the_interval_of_their_mean(
    model: GpuModel, boards: int
) -> None:
    """By the catalogue or few free boards; boards differ by 3 %, holding one adds 0-25 %."""
    rng = np.random.default_rng(boards)
    inside = []
    for _fleet in range(600):
        z = float(rng.standard_normal()) / 1.2816
        up, down = (1.5, 1.5) if model is SEEN else (45.0, 15.0)
        level = model.idle_watts + z * (up if z > 0 else down)
        free = float((level * (1 + 0.03 * rng.standard_normal(boards))).mean())
        held = free * (1 + 0.25 * rng.random())
        found = freed_board(model, held, rests=True, boards=boards)
        inside.append(found.low <= free <= found.high)
    assert 0.74 <= np.mean(inside) <= 0.9


def test_the_mean_of_many_seen_boards_is_surer_than_one() -> None:
    """By what a model is not known, all of its boards are off alike: there it is hardly surer."""
    seen, told = (
        [
            board.high - board.low
            for boards in (1, 2, 8)
            for board in [freed_board(model, 82.0, rests=True, boards=boards)]
        ]
        for model in (SEEN, H100)
    )
    assert seen[0] > 1.1 * seen[1] > 1.2 * seen[2]
    assert told[2] > 0.9 * told[0]


def test_a_board_far_from_its_model_is_told_by_its_reading() -> None:
    """Free ones draw 60-120 W. Held at 200 W it is likelier another board than one that works."""
    assert freed_board(H100, 200.0, rests=True).mean > 130
    found = freed_board(H100, 45.0, rests=True)
    assert 45 / 1.3 < found.low < found.mean < 44
