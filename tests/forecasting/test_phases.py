"""Phases: a job's segments by kind, found again in traces whose truth is known."""

import time

import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from forecasting.phases.change_points import change_points, noise_scale
from forecasting.phases.detect import find_phases
from forecasting.phases.records import PhaseKind, Phases, PhaseSegment, Recurrence, Signal

STEP = 2.0


def training_power(*, seed: int = 0, noise: float = 8.0, tail: int = 0) -> np.ndarray:
    """600 samples of a board in W: 20 of ramp, 700 W, a dip of 5 samples to 450 W every 60."""
    watts = np.full(600, 700.0)
    for start in range(80, 590, 60):
        watts[start : start + 5] = 450.0
    watts[:20] = np.linspace(120.0, 600.0, 20)
    if tail:
        watts[-tail:] = 200.0
    return watts + np.random.default_rng(seed).normal(scale=noise, size=600)


def kinds(phases: Phases) -> list[PhaseKind]:
    """The kinds in order."""
    return [segment.kind for segment in phases.segments]


def test_a_training_job_shows_warm_up_steady_work_and_dips() -> None:
    """Every segment of a clean trace is found at its sample, with its kind and level."""
    found = find_phases(training_power(), STEP)
    assert kinds(found)[:3] == [PhaseKind.WARM_UP, PhaseKind.STEADY, PhaseKind.DIP]
    dips = [segment for segment in found.segments if segment.kind is PhaseKind.DIP]
    assert [dip.start for dip in dips] == list(range(80, 590, 60))
    assert {dip.end - dip.start for dip in dips} == {5}
    assert all(dip.level == pytest.approx(450, abs=15) for dip in dips)
    assert found.plateau == pytest.approx(700, abs=3)


def test_dips_that_come_back_give_the_epoch() -> None:
    """Nine dips every 120 s give an epoch of 120 s, within 1 %."""
    assert find_phases(training_power(), STEP).epoch.seconds == pytest.approx(120, rel=0.01)


def test_a_low_stretch_at_the_end_may_be_the_end() -> None:
    """It is a dip, and a note says what else it may be."""
    found = find_phases(training_power(tail=12), STEP)
    assert kinds(found)[-1] is PhaseKind.DIP
    assert "the last dip may be the job's end" in found.notes


def test_a_long_gap_is_unknown_and_a_short_one_is_not() -> None:
    """100 missing samples are an unknown segment without a level; five are passed over."""
    watts = training_power()
    watts[230:235] = np.nan
    watts[300:400] = np.nan
    unknown = [
        segment
        for segment in find_phases(watts, STEP).segments
        if segment.kind is PhaseKind.UNKNOWN
    ]
    assert [(segment.start, segment.end, segment.level) for segment in unknown] == [
        (300, 400, None)
    ]


def test_an_idle_stretch_is_idle_where_a_dip_is_short() -> None:
    """Half an hour near the idle floor is no evaluation; a second warm-up follows it."""
    watts = np.concatenate([training_power(), np.full(900, 90.0), training_power(seed=1)])
    found = find_phases(watts, STEP)
    assert PhaseKind.IDLE in kinds(found)
    idle, rise = found.segments[kinds(found).index(PhaseKind.IDLE) :][:2]
    assert idle.start == 600
    assert idle.end in range(1500, 1507)
    assert (rise.kind, rise.end) == (PhaseKind.WARM_UP, 1520)


def test_phases_of_training_at_two_levels_are_both_steady() -> None:
    """An hour at 400 W before 700 W is steady at its own level, with its own dips."""
    early = np.full(1800, 400.0)
    early[300:1800:300] = 250.0
    early += np.random.default_rng(3).normal(scale=5, size=1800)
    found = find_phases(np.concatenate([early, training_power()[20:]]), STEP)
    steady = [segment for segment in found.segments if segment.kind is PhaseKind.STEADY]
    assert steady[0].level == pytest.approx(400, abs=5)
    assert steady[-1].level == pytest.approx(700, abs=5)
    assert (
        sum(segment.kind is PhaseKind.DIP and segment.start < 1800 for segment in found.segments)
        == 5
    )


def test_a_short_rise_is_a_spike_and_no_plateau() -> None:
    """Three rises of four samples do not become the level that work happens on."""
    watts = np.full(400, 500.0) + np.random.default_rng(4).normal(scale=4, size=400)
    for start in (100, 200, 300):
        watts[start : start + 4] += 180.0
    found = find_phases(watts, STEP)
    spikes = [
        (segment.start, segment.end)
        for segment in found.segments
        if segment.kind is PhaseKind.SPIKE
    ]
    assert spikes == [(100, 104), (200, 204), (300, 304)]
    assert found.plateau == pytest.approx(500, abs=3)


def test_a_coarse_step_says_what_it_hides() -> None:
    """At 15 minutes a sample, dips below half an hour are named as not seen."""
    found = find_phases(np.full(96, 5.0), 900.0, signal=Signal.ACTIVITY)
    assert "dips shorter than about 1800 s are averaged away" in found.notes


def test_hours_of_training_in_slots_have_their_epochs() -> None:
    """Epochs of three hours with an evaluation of 15 minutes show at 15-minute slots."""
    gpus = 7.5 + np.random.default_rng(5).normal(scale=0.05, size=240)
    gpus[11::12] = 2.0
    found = find_phases(gpus, 900.0, signal=Signal.ACTIVITY)
    assert found.epoch.seconds == pytest.approx(3 * 3600, rel=0.01)


@pytest.mark.parametrize(
    "values",
    [
        [],
        [1.0],
        [1.0, 2.0],
        [np.nan] * 50,
        [np.inf, -np.inf, 3.0, np.nan] * 20,
        [7.0] * 100,
        [0.0] * 100,
        [1e300, 1.0, 2.0] * 20,
        [5e-324, 0.0] * 20,
        [-5.0, 4.0] * 20,
        [1e-300, 2e-300] * 20,
    ],
)
@pytest.mark.parametrize("step", [2.0, 900.0, 0.0, float("nan"), float("inf")])
def test_a_broken_series_has_phases_too(values: list[float], step: float) -> None:
    """Nothing raises; what is not known is said, and every sample has one segment."""
    found = find_phases(values, step)
    assert sum(segment.end - segment.start for segment in found.segments) == len(values)
    assert found.epoch.reason


@settings(max_examples=examples(60), deadline=None)
@given(
    hnp.arrays(
        np.float64,
        st.integers(0, 200),
        elements=st.floats(allow_nan=True, allow_infinity=True, width=64),
    ),
    st.floats(0.5, 3600.0),
)
def test_segments_cover_every_sample_once(values, step) -> None:
    """For any floats whatever, segments are a partition and levels are finite."""
    found = find_phases(values, step)
    assert sum(segment.end - segment.start for segment in found.segments) == len(values)
    assert all(segment.level is None or np.isfinite(segment.level) for segment in found.segments)


def penalised_cost(scaled: np.ndarray, edges: list[int]) -> float:
    """The sum of squares around the means of the parts, plus 2.5 ln n for each edge."""
    parts = np.split(scaled, edges)
    squares = sum(((part - part.mean()) ** 2).sum() for part in parts)
    return squares + 2.5 * np.log(len(scaled)) * len(edges)


def exhaustive_cost(scaled: np.ndarray) -> float:
    """The least penalised cost by dynamic programming over all segmentations."""
    penalty = 2.5 * np.log(len(scaled))
    best = [-penalty] + [np.inf] * len(scaled)
    for end in range(2, len(scaled) + 1):
        best[end] = min(
            best[start] + penalty + penalised_cost(scaled[start:end], [])
            for start in range(end - 1)
        )
    return best[-1]


SERIES = hnp.arrays(np.float64, st.integers(4, 40), elements=st.integers(-40, 40).map(float))


@settings(max_examples=examples(60), deadline=None)
@given(SERIES, st.floats(0.5, 6.0))
def test_change_points_are_the_exact_optimum(values, noise) -> None:
    """No segmentation into parts of two samples or more costs less, and none of ruptures'."""
    scaled = values / noise
    ours = penalised_cost(scaled, list(change_points(values, noise=noise)))
    import ruptures  # two seconds, of every process that collects these tests

    kernel = ruptures.KernelCPD(kernel="linear", min_size=2).fit(scaled[:, None])
    theirs = kernel.predict(pen=2.5 * np.log(len(values)))[:-1]
    assert ours == pytest.approx(exhaustive_cost(scaled), abs=1e-6)
    assert ours <= penalised_cost(scaled, theirs) + 1e-6


def test_chunks_find_what_the_exact_search_finds() -> None:
    """A series above the exact limit has all its clear changes, at their samples."""
    rng = np.random.default_rng(6)
    truth = np.sort(rng.choice(np.arange(50, 20_000, 25), size=60, replace=False))
    levels = np.repeat(rng.permutation(61) * 10.0, np.diff([0, *truth, 20_000]))
    assert list(change_points(levels + rng.normal(size=20_000))) == list(truth)


def test_noise_that_resembles_itself_has_its_full_size() -> None:
    """The deviation of noise with a correlation of 0.5 is not understated by differences."""
    rng = np.random.default_rng(8)
    noise = np.zeros(20_000)
    for index, draw in enumerate(rng.normal(size=20_000)):
        noise[index] = 0.5 * noise[index - 1] + draw
    assert noise_scale(noise) == pytest.approx(noise.std(), rel=0.05)


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.5])
def test_quiet_noise_has_next_to_no_changes(correlation: float) -> None:
    """Twenty traces of 1,500 samples without a change have at most one false change each."""
    found = 0
    for seed in range(20):
        noise = np.random.default_rng(seed).normal(scale=8, size=1500)
        for index in range(1, 1500):
            noise[index] += correlation * noise[index - 1]
        found += len(change_points(700 + noise))
    assert found <= 20


def test_noise_does_not_see_levels() -> None:
    """The noise of a trace with dips is that of its differences, plus 0.3 % of the level."""
    assert noise_scale(training_power()) == pytest.approx(8 + 0.003 * 700, rel=0.15)


@pytest.mark.slow
def test_a_million_samples_take_seconds() -> None:
    """Time grows linearly: 10^6 quiet samples within 12 s of processor time."""
    values = np.random.default_rng(7).normal(loc=700, scale=8, size=1_000_000)
    find_phases(values[:5000], STEP)
    began = time.process_time()
    found = find_phases(values, STEP)
    assert time.process_time() - began < 12
    assert kinds(found) == [PhaseKind.STEADY]


def test_records_refuse_nonsense() -> None:
    """A segment without samples, with a level nobody knows, or a hole between segments."""
    with pytest.raises(ValueError, match="holds no sample"):
        PhaseSegment(start=3, end=3, kind=PhaseKind.STEADY, level=1.0)
    with pytest.raises(ValueError, match="unknown with level"):
        PhaseSegment(start=0, end=3, kind=PhaseKind.UNKNOWN, level=1.0)
    steady = PhaseSegment(start=0, end=3, kind=PhaseKind.STEADY, level=1.0)
    with pytest.raises(ValueError, match="do not cover"):
        Phases(
            segments=(steady,),
            samples=4,
            step_seconds=1.0,
            signal=Signal.POWER,
            plateau=1.0,
            epoch=Recurrence(seconds=None, phase_seconds=None, reason="none"),
            notes=(),
        )
