"""Rules of right-sizing: each as published, and ours on cases a person can check."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from rightsizing_cases import make_past

from benchmarks.rightsizing.all_policies import (
    KrrCpu,
    KrrMemory,
    PerSlotRepack,
    PublishedRecursion,
    Reactive,
)
from benchmarks.rightsizing.charges import UnitCharges
from benchmarks.rightsizing.dead_band import DeadBand
from benchmarks.rightsizing.decaying_histogram import DecayingHistogram
from benchmarks.rightsizing.forecast_path import ForecastPath, refreshed
from benchmarks.rightsizing.level_paths import cheapest_path
from benchmarks.rightsizing.operating_points import MIN_FELLOWS, FleetPooled
from benchmarks.rightsizing.past import QUANTILES, StepForecast
from benchmarks.rightsizing.vertical_autoscaler import VpaPeaks, VpaSamples

HISTOGRAM = DecayingHistogram(first=0.01)
NOBODY = np.array([np.nan])


def certain(points: list[float]) -> StepForecast:
    """A forecast without any doubt, of one job."""
    return StepForecast(path=np.repeat(np.array(points)[None, :, None], len(QUANTILES), axis=2))


def test_a_percentile_is_the_end_of_its_bucket() -> None:
    """Ten equal samples of 1: the end of the bucket that holds 1, less than 5 % and 0.01 above."""
    found = HISTOGRAM.percentile(np.ones((1, 10)), np.zeros(10), 0.9)[0]
    assert 1.0 <= found <= 1.05 + 0.01


def test_a_sample_of_a_day_ago_counts_half() -> None:
    """Two samples of 5 a day ago weigh as much as one of 1 now: the 49th percentile is 1's."""
    samples, ages = np.array([[5.0, 5.0, 1.0]]), np.array([24.0, 24.0, 0.0])
    assert HISTOGRAM.percentile(samples, ages, 0.49)[0] < 1.1
    assert HISTOGRAM.percentile(samples, ages, 0.51)[0] > 4.9


def test_the_autoscaler_takes_the_ninth_decile_and_adds_its_margin() -> None:
    """Of 20 fresh-enough samples, one of 9 lies beyond P90 and does not count."""
    usage = np.full(20, 2.0)
    usage[10] = 9.0
    target = VpaSamples(histogram=HISTOGRAM).recommend(make_past(usage))[0]
    assert 2.0 * 1.15 <= target <= 2.15 * 1.15


def test_the_autoscalers_memory_is_of_daily_peaks() -> None:
    """One hour of 9 in two days is a day's peak, and P90 of two peaks is the larger."""
    usage = np.full(48, 2.0)
    usage[30] = 9.0
    target = VpaPeaks(histogram=HISTOGRAM).recommend(make_past(usage))[0]
    assert 9.0 * 1.15 <= target <= 9.5 * 1.15


def test_krr_is_a_percentile_and_a_maximum() -> None:
    """P95 of 0..100 is 95; the maximum gets 15 % more; both look back two weeks only."""
    usage = np.arange(101.0)
    assert KrrCpu().recommend(make_past(usage)) == pytest.approx([95.0])
    assert KrrMemory().recommend(make_past(usage)) == pytest.approx([115.0])
    old = np.concatenate([[500.0], np.ones(400)])
    assert KrrMemory().recommend(make_past(old)) == pytest.approx([1.15])


def test_the_threshold_rule_moves_one_step() -> None:
    """Above 0.9 of the limit half more, below half of it half less, between nothing."""
    past = make_past([[9.5], [7.0], [4.0], [3.0]], limits=np.array([10.0, 10.0, 10.0, np.nan]))
    assert Reactive().recommend(past).tolist() == [15.0, 10.0, 5.0, 3.0]


@given(
    st.floats(0.1, 100),
    st.floats(0, 0.5),
    st.floats(0, 0.5),
    st.floats(0.01, 0.9),
    st.floats(0.05, 10),
)
def test_a_limit_stays_inside_its_band_and_covers_the_need_outside(
    limit: float, above: float, headroom: float, below: float, factor: float
) -> None:
    """Whatever the need, the limit that follows is within the band of it."""
    band = DeadBand(raise_ratio=above, headroom_ratio=headroom, lower_ratio=below)
    need = np.array([limit * factor])
    after = band.held(need, np.array([limit]))[0]
    assert need[0] <= after * (1 + above) * (1 + 1e-9)
    assert need[0] * (1 + headroom) >= after * (1 - below) * (1 - 1e-9)
    assert band.held(need, np.array([after]))[0] == after


def test_an_unknown_need_leaves_the_limit() -> None:
    """A job that went silent keeps what it has; one never seen has nothing."""
    assert DeadBand().held(NOBODY, np.array([3.0])) == [3.0]
    assert np.isnan(DeadBand().held(NOBODY, NOBODY)).all()


@given(
    st.lists(st.lists(st.integers(0, 9), min_size=3, max_size=3), min_size=1, max_size=4),
    st.lists(st.integers(0, 9), min_size=3, max_size=3),
    st.integers(-1, 2),
)
def test_the_cheapest_path_is_the_best_of_all_paths(
    cost: list[list[int]], enter: list[int], start: int
) -> None:
    """Compared with every path; the first level is free without one in force."""

    def total(path: tuple[int, ...]) -> int:
        before = path[0] if start < 0 else start
        moves = sum(
            enter[two] for entry, two in itertools.pairwise((before, *path)) if entry != two
        )
        return moves + sum(row[level] for row, level in zip(cost, path, strict=True))

    found = cheapest_path(
        np.array([cost], dtype=float), np.array([enter], dtype=float), np.array([start])
    )[0]
    every = itertools.product(range(3), repeat=len(cost))
    assert total(tuple(found.tolist())) == min(total(entry) for entry in every)


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=3),
    st.integers(0, 9),
    st.floats(0.01, 0.99),
)
def test_the_published_recursion_takes_the_first_step_of_its_best_path(
    needs: list[int], now: int, factor: float
) -> None:
    """Compared with every path that covers the needs."""
    past = make_past(
        [1.0], limits=np.array([float(now)]), forecast=certain([float(need) for need in needs])
    )
    first = PublishedRecursion(rebalance_factor=factor).recommend(past)[0]

    def total(path: tuple[int, ...]) -> float:
        moves = sum(abs(two - entry) for entry, two in itertools.pairwise((now, *path)))
        return sum(path) + factor * moves

    paths = [
        entry
        for entry in itertools.product(range(10), repeat=len(needs))
        if all(level >= need for level, need in zip(entry, needs, strict=True))
    ]
    best = min(total(number) for number in paths)
    assert best == pytest.approx(min(total(number) for number in paths if number[0] == first))


def test_packing_anew_serves_large_jobs_first_and_keeps_to_the_pool() -> None:
    """Of 9 units the job of 6 gets 6, the job of 5 the 3 that are left, the smallest none."""
    past = make_past([[5.0], [6.0], [1.0]])
    assert PerSlotRepack(capacity=9.0).recommend(past).tolist() == [3.0, 6.0, 0.0]


def rule(**changes: float) -> FleetPooled:
    """Own median of six hours; the cohort's middle peak as a floor."""
    return FleetPooled(
        own_level=0.5,
        own_hours=6.0,
        own_factor=1.0,
        fleet_of=1.0,
        fleet_level=0.5,
        band=DeadBand(),
        **{"floor_factor": 1.0, **changes},
    )


def test_a_quiet_job_is_held_up_by_its_cohort() -> None:
    """Of nine jobs with peaks 1..9 the floor is 5; a job that needs more has more."""
    usage = np.tile(np.arange(1.0, 10.0)[:, None], (1, 12))
    assert rule().need(make_past(usage)).tolist() == [5, 5, 5, 5, 5, 6, 7, 8, 9]


def test_the_pull_mixes_own_and_cohort() -> None:
    """Half of own, half of the cohort's 5."""
    usage = np.tile(np.arange(1.0, 10.0)[:, None], (1, 12))
    need = rule(pull=0.5, floor_factor=0.0).need(make_past(usage))
    assert need == pytest.approx(0.5 * np.arange(1.0, 10.0) + 2.5)


def test_few_fellows_are_not_asked() -> None:
    """In cohorts below eight jobs a job is judged alone: its maximum plus 15 %."""
    usage = np.tile(np.arange(1.0, MIN_FELLOWS)[:, None], (1, 12))
    assert rule().need(make_past(usage)) == pytest.approx(1.15 * usage[:, 0])


def test_a_job_silent_for_the_window_is_judged_by_all_it_has_shown() -> None:
    """Six unknown hours do not make its need unknown."""
    usage = np.full((9, 12), 2.0)
    usage[0, 6:] = np.nan
    assert rule().need(make_past(usage)) == pytest.approx(np.full(9, 2.0))


def test_a_forecast_without_doubt_is_followed_at_least_cost() -> None:
    """Need 2 for an hour, then 8: with dear changes 8 at once, with cheap ones 2 first."""
    past = make_past([1.0], limits=np.array([2.0]), forecast=certain([2.0, 8.0, 8.0]))
    cheap = ForecastPath(charges=UnitCharges(unit_hour=1.0, change_hours=0.0))
    assert cheap.recommend(past)[0] == 2.0
    held = make_past([1.0], limits=np.array([8.0]), forecast=certain([2.0, 8.0, 8.0]))
    assert (
        ForecastPath(charges=UnitCharges(unit_hour=1.0, change_hours=2.0)).recommend(held)[0] == 8.0
    )


def test_doubt_is_paid_for_by_expected_shortfall() -> None:
    """With a twentyfold price on what is missing, the limit covers the upper quantiles."""
    path = np.array([[[1.0, 2.0, 4.0, 6.0, 7.0]]])
    past = make_past([1.0], forecast=StepForecast(path=path))
    assert ForecastPath(charges=UnitCharges(unit_hour=1.0)).recommend(past)[0] == 7.0
    careful = ForecastPath(charges=UnitCharges(unit_hour=1.0), care=3.0)
    assert careful.recommend(past)[0] == 8.0


def test_an_old_forecast_is_moved_by_its_last_miss() -> None:
    """Two steps old, the last one 3 too low: the next is 0.95 x 3 higher, bands those of lead 1."""
    path = np.array([[[9.0, 9.5, 10.0, 10.5, 11.0]] * 2 + [[0.0, 5.0, 10.0, 15.0, 20.0]] * 2])
    moved = refreshed(path, 2, np.array([13.0])).path
    assert moved.shape == (1, 2, 5)
    assert moved[0, 0] == pytest.approx(np.array([9.0, 9.5, 10.0, 10.5, 11.0]) + 2.85)
    assert refreshed(path, 2, NOBODY).path[0, 0] == pytest.approx(path[0, 0])
    assert refreshed(path, 0, np.array([13.0])).path is path
