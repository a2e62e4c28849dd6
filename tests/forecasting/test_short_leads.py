"""The next hours start from the newest reading, and are worth what the plan pays for them."""

import numpy as np
import pytest
from drawn import examples
from forecasting_cases import series
from hypothesis import given, settings
from hypothesis import strategies as st

from forecasting.mix.anchor_kernel import FEATURES, LEVELS, _normal_equations, anchored
from forecasting.mix.model import mix, with_short_leads
from forecasting.series.demand_series import Values

DAY = 24
MISSING_PRICE = 4.0


def jobs_per_hour(hours: int, *, seed: int) -> Values:
    """Return mean GPUs per hour of jobs that come and go at any moment within an hour."""
    rng = np.random.default_rng(seed)
    minutes = np.zeros(hours * 60)
    for _job in range(hours // 3):
        start = int(rng.integers(0, len(minutes)))
        minutes[start : start + int(rng.exponential(8 * 60)) + 1] += rng.choice([1, 2, 4, 8])
    return minutes.reshape(hours, 60).mean(axis=1)


def flat(level: float, slots: int) -> Values:
    """Return a forecast of a level with a band of 10 to each side, q05 to q95 of 20."""
    rows = [np.full(slots, level + move) for move in (-20.0, -10.0, 0.0, 10.0, 20.0)]
    return np.stack(rows)


def cost_ratio(demand: Values, hours: int) -> float:
    """Return what holding q75 costs in the last hours, missing at four rents; last value: 1."""
    cost, cost_of_last = 0.0, 0.0
    for hour in range(len(demand) - hours, len(demand)):
        held = max(0.0, anchored(demand[:hour], np.array([1]), DAY)[LEVELS.searchsorted(0.75), 0])
        cost += held + MISSING_PRICE * max(0.0, demand[hour] - held)
        last = demand[hour - 1]
        cost_of_last += last + MISSING_PRICE * max(0.0, demand[hour] - last)
    return cost / cost_of_last


def bursts(hours: int, *, seed: int) -> Values:
    """Return demand that comes in bursts of no pattern, two hours of five at rest."""
    rng = np.random.default_rng(seed)
    return np.asarray(rng.gamma(0.3, 12.0, hours) * (rng.random(hours) < 0.6))


def test_a_forecast_is_worth_more_than_the_last_value() -> None:
    """Holding q75 for the next hour is 2 % cheaper than holding the last value."""
    ratios = [cost_ratio(jobs_per_hour(1000, seed=seed), 300) for seed in range(4)]
    assert np.mean(ratios) < 0.98


def test_a_daily_course_is_worth_a_tenth() -> None:
    """A noisy day that repeats itself costs a tenth less than the last value."""
    day = 50 + 30 * np.sin(2 * np.pi * np.arange(DAY) / DAY)
    noise = np.random.default_rng(0).normal(0, 4, 20 * DAY)
    assert cost_ratio(np.tile(day, 20) + noise, 3 * DAY) < 0.9


def test_a_walk_costs_no_more_than_its_last_value() -> None:
    """Where the last value is the best there is, forecasts cost at most 2 % more."""
    for seed in range(4):
        steps = np.random.default_rng(seed).normal(0, 2, 20 * DAY)
        assert cost_ratio(np.maximum(50 + np.cumsum(steps), 0.0), 3 * DAY) < 1.02


@pytest.mark.parametrize(("pace", "most"), [(1.0, 0.93), (1 / 3, 1.0), (0.1, 1.25)])
def test_bursts_that_calm_down_cost_little_more_than_the_last_value(
    pace: float, most: float
) -> None:
    """A line of the whole past holds too much once bursts are a tenth: 1.55 of the last value."""
    ratios = []
    for seed in range(8):
        demand = bursts(14 * DAY, seed=seed)
        demand[-3 * DAY :] *= pace
        ratios.append(cost_ratio(demand, 3 * DAY))
    assert np.mean(ratios) < most


def test_after_a_rise_more_is_to_come() -> None:
    """A rise within the last hour was seen in part: q75 lies further above it than after rest."""
    demand = jobs_per_hour(1000, seed=1)
    resting = np.append(demand, [20.0, 20.0])
    rising = np.append(demand, [16.0, 20.0])
    q75 = [anchored(entry, np.array([1]), DAY)[4, 0] for entry in (resting, rising)]
    assert q75[1] - 20 > q75[0] - 20 + 0.5


def test_rest_stays_rest() -> None:
    """Where demand rests for hours between its moves, the median is the last value to the bit."""
    demand = np.repeat(np.random.default_rng(3).integers(1, 20, 60) * 1.0, 12)[:-6]
    found = anchored(demand, np.array([1]), DAY)
    assert found[3, 0] == demand[-1]


def test_the_daily_course_moves_the_next_hour() -> None:
    """A series that repeats its day is forecast where the day goes, not where it is."""
    day = 50 + 30 * np.sin(2 * np.pi * np.arange(DAY) / DAY)
    noise = np.random.default_rng(0).normal(0, 0.5, 30 * DAY)
    demand = np.tile(day, 30) + noise
    found = anchored(demand, np.array([1, 3]), DAY)
    assert found[3] == pytest.approx(day[[0, 2]], abs=1.5)


def test_hours_fade_into_the_mix() -> None:
    """Up to 3 h the lines hold, from 6 h on the mix does, with quartiles on exponential tails."""
    demand = jobs_per_hour(500, seed=2)
    found = with_short_leads(series(demand, upper=1000.0), demand, flat(400.0, 24))
    assert (found.q95[:3] < 300).all()
    assert (np.diff(found.q50[2:6]) > 0).all()
    assert (found.q50[5:] == 400.0).all()
    assert found.q75 is not None
    assert found.q75[5:] == pytest.approx(400 + 10 * np.log(2) / np.log(5))


def test_an_unknown_newest_slot_leaves_the_mix() -> None:
    """Without a newest reading there is nothing to start from; nor with less than four days."""
    demand = jobs_per_hour(500, seed=2)
    demand[-1] = np.nan
    for known in (demand, jobs_per_hour(96, seed=2)):
        found = with_short_leads(series(known, upper=1000.0), known, flat(400.0, 24))
        assert (found.q50 == 400.0).all()


@pytest.mark.parametrize("kind", ["jobs", "bursts", "regimes", "walk"])
def test_bands_of_the_next_hours_hold_what_they_say(kind: str) -> None:
    """Over rolling moments q10..q90 holds 77 to 84 % of what came; lines alone held 71 to 77 %."""
    inside = []
    for seed in range(2):
        rng = np.random.default_rng(seed)
        scale = np.repeat(rng.choice([0.3, 1.0, 3.0], 28), 48)[:1300]
        demand = {
            "jobs": jobs_per_hour(1300, seed=seed),
            "bursts": bursts(1300, seed=seed),
            "regimes": np.maximum(50 + scale * rng.normal(0, 4, 1300), 0),
            "walk": np.maximum(500 + np.cumsum(rng.standard_t(3, 1300)), 0),
        }[kind]
        for origin in range(700, 1297, 3):
            found = anchored(demand[:origin], np.array([1, 3]), DAY)
            came = demand[origin + np.array([0, 2])]
            inside += [*((found[1] - 1e-9 <= came) & (came <= found[5] + 1e-9))]
    assert 0.77 < np.mean(inside) < 0.84


@given(st.integers(0, 2**32 - 1), st.sampled_from([1, 24, 96]), st.integers(120, 800))
@settings(max_examples=examples(15), deadline=None)
def test_quantiles_do_not_cross(seed: int, per_day: int, slots: int) -> None:
    """All seven ascend in every slot, whatever the demand: walks, bursts, rest, gaps."""
    rng = np.random.default_rng(seed)
    steps = rng.standard_t(2, slots) * (rng.random(slots) < rng.choice([0.02, 0.3, 1.0]))
    demand = np.maximum(rng.choice([0.0, 40.0]) + np.cumsum(steps), 0.0)
    demand[rng.random(slots) < rng.choice([0.0, 0.2])] = np.nan
    found = mix(series(demand, upper=np.inf, slot_seconds=86_400 // per_day), 48).quantiles
    assert found.q25 is not None
    assert found.q75 is not None
    rows = [found.q05, found.q10, found.q25, found.q50, found.q75, found.q90, found.q95]
    assert (np.diff(np.stack(rows), axis=0) >= 0).all()


def test_a_step_of_a_fit_solves_weighted_least_squares() -> None:
    """Its sums are the products of features that NumPy gives, weighted by the majorizer."""
    rng = np.random.default_rng(3)
    moves = rng.normal(size=300)
    rows = rng.normal(size=(FEATURES + 1, 300))
    rows[0], rows[1], rows[4] = np.maximum(moves, 0), np.minimum(moves, 0), 1.0
    weights, line, level, floor = rng.random(300), rng.normal(size=FEATURES), 0.9, 0.3
    missed = rows[FEATURES] - line @ rows[:FEATURES]
    share = np.where(missed > 0, level, 1 - level)
    heavy = rows[:FEATURES] * (weights * share / np.maximum(np.abs(missed), floor))
    matrix, right = np.zeros((FEATURES, FEATURES)), np.zeros(FEATURES)
    _normal_equations.py_func(rows, weights, 300, level, floor, line, matrix, right)
    np.testing.assert_allclose(matrix, np.tril(heavy @ rows[:FEATURES].T), atol=1e-12)
    np.testing.assert_allclose(right, heavy @ rows[FEATURES], atol=1e-12)
