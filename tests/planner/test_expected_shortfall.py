"""The closed form of the expected shortfall is the integral, convex and falling in capacity."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.costs.cost import expected_shortfall, quantile_curve

LEVELS = (0.05, 0.10, 0.50, 0.90, 0.95)
rising = st.lists(st.floats(0, 20), min_size=5, max_size=5).map(sorted)


def curve(values: list[float]) -> tuple[np.ndarray, np.ndarray]:
    """The quantile curve of one slot."""
    pairs = zip(LEVELS, values, strict=True)
    return quantile_curve([(level, np.array([value])) for level, value in pairs])


@given(rising, st.floats(0, 25))
def test_it_is_the_integral_of_the_straight_quantile_function(
    values: list[float], capacity: float
) -> None:
    """Against a sum over 200,000 levels."""
    levels, known = curve(values)
    every = (np.arange(200_000) + 0.5) / 200_000
    wanted = np.clip(np.interp(every, levels, known[:, 0]) - capacity, 0, None).mean()
    found = expected_shortfall(levels, known, capacity)[0]
    assert found == pytest.approx(wanted, abs=1e-3)


@given(rising, st.floats(0, 25), st.floats(0, 25))
def test_it_is_convex_and_never_rises_with_capacity(
    values: list[float], one: float, other: float
) -> None:
    """So that the plan's price of capacity has diminishing returns."""
    levels, known = curve(values)
    low, high = sorted((one, other))
    first, middle, last = (
        expected_shortfall(levels, known, at)[0] for at in (low, (low + high) / 2, high)
    )
    assert last <= middle + 1e-9 <= first + 2e-9
    assert middle <= (first + last) / 2 + 1e-9


def test_far_below_all_demand_it_is_the_mean_less_the_capacity() -> None:
    """Nothing is clipped: the mean of the quantile function remains."""
    levels, known = curve([10, 11, 12, 13, 14])
    mean = np.trapezoid(known[:, 0], levels)
    assert expected_shortfall(levels, known, 2.0)[0] == pytest.approx(mean - 2.0)


def test_no_spread_is_plain_shortfall() -> None:
    """A forecast without doubt misses exactly what is above the capacity."""
    levels, known = curve([3.0] * 5)
    assert expected_shortfall(levels, known, 1.0)[0] == pytest.approx(2.0)
    assert expected_shortfall(levels, known, 3.0)[0] == 0.0


def test_the_tails_go_on_as_steeply_but_not_below_zero() -> None:
    """Beyond q05 and q95 nothing is known; a demand below zero is no demand."""
    levels, known = curve([0.1, 1.0, 2.0, 3.0, 4.0])
    assert levels.tolist() == [0, *LEVELS, 1]
    assert known[-1, 0] == pytest.approx(5.0)
    assert known[0, 0] == 0.0
