"""The mix: ordered, bounded, from the past only, calibrated where the world repeats itself."""

import itertools
from dataclasses import replace

import numpy as np
import pytest
from drawn import examples
from forecasting_cases import BROKEN, daily, series
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from benchmarks._model_comparison import rolling_backtest
from data.base import compiled
from data.base.errors import NotEnoughHistoryError
from forecasting.mix.kernel import _ALL, _BAND_LEVELS, LEVELS, _at_ranks, _merge, _quantiles
from forecasting.mix.members_kernel import select
from forecasting.mix.model import MixModel, _buckets, _origins, _ready, mix, mix_many
from forecasting.models.seasonal_naive_model import SeasonalNaiveModel

NAMES = ("q05", "q10", "q50", "q90", "q95")


@settings(max_examples=examples(60), deadline=None)
@given(
    values=hnp.arrays(
        float,
        st.integers(1, 120),
        elements=st.one_of(st.floats(0, 100), st.just(np.nan), st.just(0.0)),
    ),
    horizon=st.integers(1, 60),
    slot_seconds=st.sampled_from([300, 900, 3600, 86_400]),
)
def test_quantiles_are_ordered_and_within_bounds(
    values: np.ndarray, horizon: int, slot_seconds: int
) -> None:
    """Any series with four known slots has five ordered quantiles inside 0..capacity."""
    one = series(values, slot_seconds=slot_seconds)
    if np.isfinite(values).sum() < 4:
        with pytest.raises(NotEnoughHistoryError, match="4 known slots"):
            mix(one, horizon)
        return
    found = mix(one, horizon).quantiles
    rows = np.stack([found.q05, found.q10, found.q50, found.q90, found.q95])
    assert rows.shape == (5, horizon)
    assert np.isfinite(rows).all()
    assert (np.diff(rows, axis=0) >= 0).all()
    assert rows.min() >= 0
    assert rows.max() <= 100


@pytest.mark.parametrize("name", [name for name in BROKEN if "point" not in name])
def test_broken_series_stay_in_bounds(name: str) -> None:
    """Constant, spiked, jumping and gappy series give finite quantiles inside their bounds."""
    values = np.where(np.isfinite(BROKEN[name]), BROKEN[name], np.nan)
    if np.isfinite(values).sum() < 4:
        with pytest.raises(NotEnoughHistoryError):
            mix(series(values), 24)
        return
    found = mix(series(np.clip(values, 0, 100)), 48).quantiles
    assert np.isfinite(found.q05).all()
    assert (found.q05 >= 0).all()
    assert (found.q95 <= 100).all()


def test_a_series_may_go_below_zero() -> None:
    """Without a lower bound the logarithm is left out, and values stay negative."""
    values = daily(20) - 200
    found = mix(series(values, lower=-np.inf, upper=np.inf), 24).quantiles
    assert found.q95.max() < 0
    assert abs(found.q50 - values[:24]).mean() < 15


def test_the_future_changes_nothing() -> None:
    """What comes after an origin does not change what was forecast there."""
    values = daily(30)
    changed = values.copy()
    changed[500:] = 0
    for horizon in (24, 168):
        one, two = (mix(series(rows).head(500), horizon) for rows in (values, changed))
        assert one.weights == two.weights
        assert one.quantiles.q50.tolist() == two.quantiles.q50.tolist()


def test_a_longer_horizon_does_not_change_the_first_day() -> None:
    """Weights and points of the first buckets rest on their own leads."""
    one = series(daily(30))
    day, week = mix(one, 24), mix(one, 168)
    assert week.weights[: len(day.weights)] == day.weights
    assert np.allclose(week.quantiles.q50[:20], day.quantiles.q50[:20], atol=0.5)


def test_the_daily_curve_is_followed() -> None:
    """On a clean daily curve the mix errs far less than naive, and a little less than yesterday."""
    found = mix(series(daily(28, noise=0.3)), 24)
    for lead in found.backtest[2:]:
        assert lead.loss < 0.6 * lead.naive_loss
        assert lead.loss < lead.seasonal_naive_loss


def test_weights_go_to_what_was_right() -> None:
    """A random walk is left to members near its last value, a daily curve is not."""
    rng = np.random.default_rng(3)
    walk = np.clip(500 + np.cumsum(rng.normal(0, 1, 700)), 0, 1000)
    near = dict(mix(series(walk, upper=1000), 24).weights[-1].weights)
    curve = dict(mix(series(daily(29)), 24).weights[-1].weights)
    assert near["naive"] + near["half"] > 0.4
    assert curve["naive"] + curve["half"] < 0.2
    assert abs(sum(curve.values()) - 1) < 1e-9


def test_prophet_counts_once_it_has_been_judged() -> None:
    """Its first word, after two days, has no past to be weighed by; six hours later it has."""
    demand = daily(3)
    for hours, counts in ((48, False), (52, False), (54, True)):
        weights = mix(series(demand[:hours]), 24).weights[0].weights
        assert (dict(weights)["prophet-exact"] > 0) == counts


@pytest.mark.parametrize("base", [0.0, -10.0])
@pytest.mark.parametrize(("slots", "slot_seconds"), [(40, 3600), (60, 86_400)])
def test_a_member_that_says_nothing_has_no_weight(
    base: float, slots: int, slot_seconds: int
) -> None:
    """Before two days and by the day Prophet is silent: nothing is forecast or judged in its name.

    Bursts from rest: a silence that was taken for a forecast of zero would fit them.
    """
    demand = base + 8.0 * (np.random.default_rng(0).random(slots) < 0.4)
    found = mix(series(demand, slot_seconds=slot_seconds, lower=-np.inf), 10)
    assert {dict(weight.weights)["prophet-exact"] for weight in found.weights} == {0.0}
    assert found.backtest
    for lead in found.backtest:
        assert np.isfinite([lead.loss, lead.naive_loss, lead.seasonal_naive_loss]).all()


@pytest.mark.parametrize("kind", ["noise", "daily", "bursts"])
def test_eighty_percent_bands_hold_eighty_percent(kind: str) -> None:
    """Over rolling origins q10..q90 holds 72 to 88 % of what came."""
    rng = np.random.default_rng(5)
    days, hours = 70, 24 * 70
    values = {
        "noise": rng.normal(50, 5, hours),
        "daily": daily(days, noise=0.3),
        "bursts": rng.lognormal(1, 1, hours),
    }[kind]
    one = series(values, upper=np.inf)
    tested = rolling_backtest(one, MixModel(), origins=range(28 * 24, hours - 24, 30), horizon=24)
    assert 0.72 < tested.inside.mean() < 0.88


def test_a_level_shift_widens_the_band_and_then_is_forgotten() -> None:
    """A day after a job doubled the forecast follows it; naive seasonal still has the old day."""
    rng = np.random.default_rng(6)
    values = np.concatenate([rng.normal(20, 1, 24 * 20), rng.normal(40, 1, 30)])
    found = mix(series(values), 12).quantiles
    assert abs(found.q50 - 40).max() < 8
    assert (found.q90 > 38).all()


def test_leads_without_a_past_say_so() -> None:
    """Six hours of history calibrate the first hours; later bands only grow."""
    found = mix(series(daily(1, per_day=96)[:24], slot_seconds=900), 96)
    assert 0 < found.calibrated_hours <= 6
    width = found.quantiles.q90 - found.quantiles.q10
    assert width[-1] > width[3]


@pytest.mark.parametrize("slot_minutes", [5, 15, 30, 60])
def test_beyond_the_calibrated_lead_bands_grow_as_a_random_walks(slot_minutes: int) -> None:
    """Each level's distance from the middle one goes by the root of the lead."""
    per_day = 24 * 60 // slot_minutes
    values = 500 + np.cumsum(np.random.default_rng(3).normal(0, 1, per_day))
    one = series(values, slot_seconds=60 * slot_minutes, upper=np.inf, lower=-np.inf)
    found = mix(one, 7 * per_day)
    assert 0 < found.calibrated_hours < 24
    ends = [weights.until_hours for weights in found.weights]
    rows = np.stack([getattr(found.quantiles, name) for name in NAMES])
    middles = [
        ((before * per_day / 24 + 1) + after * per_day / 24) / 2
        for before, after in itertools.pairwise([0.0, *ends])
    ]
    beyond = [
        middle for middle, end in zip(middles, ends, strict=True) if end >= found.calibrated_hours
    ]
    assert len(beyond) >= 3
    for begin, off in ((0, 0.05), (1, 0.02)):  # the middle slot of the calibrated one is rounded
        first, last = (rows[:, round(middle) - 1] for middle in (beyond[begin], beyond[-1]))
        for outer, inner in ((0, 1), (4, 3), (0, 4)):
            grown = (last[outer] - last[inner]) / (first[outer] - first[inner])
            assert grown == pytest.approx(np.sqrt(beyond[-1] / beyond[begin]), rel=off)


@pytest.mark.parametrize("slot_minutes", [15, 60])
def test_unknown_slots_before_the_first_known_one_change_nothing(slot_minutes: int) -> None:
    """The clock of the day stays where it is, thirty hours and a slot later."""
    per_day = 24 * 60 // slot_minutes
    values = daily(9, per_day=per_day)
    late = per_day + per_day // 4 + 1
    values[:late] = np.nan
    whole = series(values, slot_seconds=60 * slot_minutes)
    cut = replace(whole, values=values[late:], first_slot=late * 60 * slot_minutes)
    one, other = (mix(known, per_day).quantiles for known in (whole, cut))
    for name in NAMES:
        assert getattr(one, name) == pytest.approx(getattr(other, name), rel=1e-9)


def test_bands_grow_around_where_the_middle_was() -> None:
    """Noise around 500: its middle does not move with the lead, beyond the calibrated one too."""
    values = 500 + np.random.default_rng(4).normal(0, 1, 48)
    found = mix(series(values, upper=np.inf), 14 * 24)
    assert found.calibrated_hours < 48
    rows = found.quantiles
    assert abs(rows.q50[48:].mean() - 500) < 0.5 * (rows.q50 - rows.q10)[3]


def test_lead_times_are_told_apart_up_to_a_month() -> None:
    """The last bucket ends with the horizon."""
    ends = [weight.until_hours for weight in mix(series(daily(3)), 720).weights]
    assert ends == [1, 3, 6, 12, 24, 48, 96, 168, 336, 720]


def test_past_moments_are_a_stride_apart() -> None:
    """The newest a stride ago, ascending, no more than asked for and none before the first slot."""
    assert _origins(100, 6, 3).tolist() == [82, 88, 94]
    assert _origins(20, 6, 9).tolist() == [2, 8, 14]


@pytest.mark.parametrize("slot_minutes", [5, 15, 30, 60])
def test_bands_rest_on_the_last_sixty_days_four_times_a_day(slot_minutes: int) -> None:
    """What is older has no say, whatever the slot length."""
    long = series(np.zeros(70 * 24 * 60 // slot_minutes), slot_seconds=60 * slot_minutes)
    origins = _ready(long, 24).origins
    assert len(origins) == 60 * 4
    assert (np.diff(origins) * slot_minutes == 6 * 60).all()


@pytest.mark.parametrize("slot_minutes", [5, 15, 30, 60])
@pytest.mark.parametrize("horizon_hours", [1, 7, 168, 720])
def test_each_bucket_of_leads_is_judged_at_six_of_them(
    slot_minutes: int, horizon_hours: int
) -> None:
    """At all where it has fewer; buckets cover each lead once, and probes lie in their own."""
    per_hour = 60 // slot_minutes
    buckets, probes = _buckets(horizon_hours * per_hour, per_hour, 6 * per_hour)
    ends = [bucket.last for bucket in buckets]
    assert [bucket.first for bucket in buckets] == [1, *(end + 1 for end in ends[:-1])]
    assert ends[-1] == horizon_hours * per_hour
    for bucket in buckets:
        leads = probes[slice(*bucket.columns)]
        assert len(set(leads)) == len(leads) == min(6, bucket.last - bucket.first + 1)
        assert bucket.first <= leads.min() <= leads.max() <= bucket.last


@pytest.mark.parametrize("slot_minutes", [5, 15, 30, 60])
def test_the_first_band_is_that_of_a_random_walks_changes(slot_minutes: int) -> None:
    """Four slots calibrate nothing: q10 and q90 of their changes by the root of the lead."""
    values = np.array([50.0, 54.0, 48.0, 53.0])
    one = series(values, slot_seconds=60 * slot_minutes, upper=np.inf, lower=-np.inf)
    low, high = np.quantile(np.diff(values), [0.1, 0.9])
    for horizon in (1, 2):  # one bucket, or one that ends with the horizon
        found = mix(one, horizon)
        assert found.calibrated_hours == 0
        rows = np.array([getattr(found.quantiles, name)[-1] for name in NAMES])
        band = np.array([1.28 * low, low, 0, high, 1.28 * high])
        lead = (1 + horizon) / 2 if len(found.weights) == 1 else horizon
        assert rows - rows[2] == pytest.approx(band * lead**0.5)
    rising = mix(series(50 + values.cumsum(), upper=np.inf, lower=-np.inf), 1).quantiles
    assert rising.q05[0] == rising.q10[0] == rising.q50[0] < rising.q90[0] < rising.q95[0]
    falling = mix(series(500 - values.cumsum(), upper=np.inf, lower=-np.inf), 1).quantiles
    assert falling.q05[0] < falling.q10[0] < falling.q50[0] == falling.q90[0] == falling.q95[0]


def test_the_seasonal_baseline_is_the_one_of_the_backtest() -> None:
    """Seasonal naive inside the kernel and as a model give the same points."""
    values = daily(20)
    model = SeasonalNaiveModel().forecast(series(values), 24).q50
    assert np.allclose(model, values[-24:])


@pytest.mark.parametrize(("slot_minutes", "horizon_hours"), [(60, 168), (15, 24)])
def test_a_job_of_any_hour_is_seen_at_any_lead(slot_minutes: int, horizon_hours: int) -> None:
    """One that works in one hour of every day: no lead may look at other hours alone."""
    per_hour = 60 // slot_minutes
    days = [np.repeat(np.arange(24) == hour, per_hour).astype(float) * 4 for hour in range(24)]
    found = mix_many(
        [series(np.tile(day, 42), upper=4.0, slot_seconds=60 * slot_minutes) for day in days],
        [horizon_hours * per_hour] * 24,
    )
    for day, made in zip(days, found, strict=True):
        ahead = np.tile(day, horizon_hours // 24)
        beyond = slice(12 * per_hour, None)  # nearer leads rest on the newest readings
        assert made.quantiles.q50[beyond][ahead[beyond] > 0].min(initial=4.0) > 3
        assert made.quantiles.q50[beyond][ahead[beyond] == 0].max(initial=0.0) < 1


@given(st.lists(st.sampled_from([*map(float, range(9)), -0.0, 1e9, 0.5]), min_size=1, max_size=40))
def test_what_is_selected_is_what_sorting_finds(drawn: list[float]) -> None:
    """Of any values with ties; smaller ones go before, and the quantiles are numpy's."""
    values = np.array(drawn)
    for rank in range(len(values)):
        work = values.copy()
        assert select.py_func(work, 0, len(work), rank) == np.sort(values)[rank] == work[rank]
        assert sorted(work) == sorted(drawn)
        assert work[:rank].max(initial=-np.inf) <= work[rank] <= work[rank:].min()


@compiled.outer
def _quantiles_of(values: np.ndarray, found: np.ndarray) -> None:
    _quantiles(values, len(values), _ALL, found)


@given(hnp.arrays(float, st.integers(1, 80), elements=st.floats(-9, 9)))
def test_quantiles_of_residuals_are_numpys(drawn: np.ndarray) -> None:
    """Linear between ranks, of few values and of many."""
    found = np.empty(len(LEVELS))
    _quantiles_of(drawn.copy(), found)
    assert found == pytest.approx(np.quantile(drawn, LEVELS), abs=1e-12)


@compiled.outer
def _merge_part(part: np.ndarray, ascending: np.ndarray, size: int, found: np.ndarray) -> int:
    size = _merge(part, len(part), ascending, size)
    if size > 0:
        _at_ranks(ascending, size, found)
    return size


@given(st.lists(st.lists(st.sampled_from([*map(float, range(-3, 6)), 0.5, 1e9]), max_size=20)))
def test_what_is_merged_part_by_part_has_the_quantiles_of_the_whole(
    parts: list[list[float]],
) -> None:
    """After each part of a series of residuals, ties and empty parts among them."""
    whole = list(itertools.chain.from_iterable(parts))
    ascending, quantiles, size = np.empty(len(whole)), np.empty(len(LEVELS)), 0
    for part in parts:
        size = _merge_part(np.array(part, dtype=float), ascending, size, quantiles)
        so_far = whole[:size]
        assert ascending[:size].tolist() == sorted(so_far)
        if so_far:
            assert quantiles[_BAND_LEVELS] == pytest.approx(
                np.quantile(so_far, LEVELS[_BAND_LEVELS])
            )


def test_without_a_backtest_the_forecast_is_the_same() -> None:
    """Nothing follows from it but what it says itself."""
    curve = daily(20)
    (told,), (untold,) = (
        mix_many([series(curve)], [96], judged=judged) for judged in (True, False)
    )
    assert told.backtest
    assert untold.backtest == ()
    assert (untold.weights, untold.calibrated_hours) == (told.weights, told.calibrated_hours)
    for name in NAMES:
        assert (getattr(untold.quantiles, name) == getattr(told.quantiles, name)).all()
