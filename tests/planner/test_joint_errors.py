"""Independent errors add up to the q10 and q90 of their sum."""

import numpy as np
import pytest

from planner.recommendations.joint_errors import (
    above_zero,
    either_side,
    equally_likely,
    range_of,
    unless,
)


def test_one_error_has_its_own_range() -> None:
    """q10 and q90 of a single error are what was said of it."""
    found = range_of(10.0, [either_side(1.0, 3.0)], "kWh")
    assert (found.low, found.central, found.high) == pytest.approx((9.0, 10.0, 13.0), abs=0.02)


@pytest.mark.parametrize("count", [2, 4, 9])
def test_independent_errors_add_as_their_squares(count: int) -> None:
    """Several alike errors are as wide as one times the root of their number."""
    found = range_of(0.0, [either_side(1.0, 1.0)] * count, "h")
    assert found.high == pytest.approx(np.sqrt(count), rel=0.06)
    assert found.low == pytest.approx(-np.sqrt(count), rel=0.06)


def test_no_error_leaves_no_width_and_likely_values_keep_their_ends() -> None:
    """Without an error nothing is unsure; of ten likely values the range spans the middle eight."""
    certain = range_of(5.0, [0.0], "h")
    assert (certain.low, certain.high) == (5.0, 5.0)
    ten = range_of(0.0, [equally_likely(np.arange(10.0))], "h")
    assert 0.0 <= ten.low <= 1.0
    assert 8.0 <= ten.high <= 9.0


@pytest.mark.parametrize(("low", "central", "high"), [(20.0, 392.0, 2170.0), (0.0, 0.0, 5.0)])
def test_what_is_never_negative_has_its_quantiles_and_no_value_below_zero(
    low: float, central: float, high: float
) -> None:
    """Nothing takes less than no time: a saving is never more than all that can be saved."""
    values = central + above_zero(low, central, high)
    assert values.min() >= 0
    assert np.quantile(values, (0.1, 0.5, 0.9)) == pytest.approx((low, central, high), rel=0.02)


@pytest.mark.parametrize("share", [0.0, 0.3, 0.5, 1.0])
def test_a_share_of_values_is_otherwise(share: float) -> None:
    """The others keep their spread."""
    values = equally_likely(np.arange(1.0, 11.0))
    found = unless(values, share, -1.0)
    assert len(found) == len(values)
    assert np.mean(found == -1.0) == pytest.approx(share, abs=0.001)
    assert list(found) == sorted(found)
    if share < 1:
        assert np.median(found[found > 0]) == pytest.approx(np.median(values), abs=1.0)
