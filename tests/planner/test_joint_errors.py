"""Independent errors add up to the q10 and q90 of their sum."""

import numpy as np
import pytest

from planner.jobs.expected_value import mean_of
from planner.proposals.joint_errors import (
    Error,
    above_zero,
    equally_likely,
    in_order,
    range_of,
    two_sided_error,
)


def test_one_error_has_its_own_range() -> None:
    """q10 and q90 of a single error are what was said of it."""
    found = range_of(10.0, [two_sided_error(1.0, 3.0)], "kWh")
    assert (found.low, found.central, found.high) == pytest.approx((9.0, 10.0, 13.0), abs=0.02)


@pytest.mark.parametrize("count", [2, 4, 9])
def test_independent_errors_add_as_their_squares(count: int) -> None:
    """Several alike errors are as wide as one times the root of their number."""
    found = range_of(0.0, [two_sided_error(1.0, 1.0)] * count, "h")
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
    values = mean_of(low, central, high) + above_zero(low, central, high)
    assert values.min() >= 0
    assert np.quantile(values, (0.1, 0.5, 0.9)) == pytest.approx((low, central, high), rel=0.02)


@pytest.mark.parametrize("share", [0.15, 0.5, 0.7])
@pytest.mark.parametrize("side", [-1, 1])
def test_a_range_holds_80_of_100_where_many_values_are_one_end(share: float, side: int) -> None:
    """Of a job that probably runs into its limit, the lowest fifth lies outside."""
    values = side * np.minimum(np.linspace(0.0, 1.0, 2_000) / (1 - share), 1.0)
    mean = float(values.mean())
    found = range_of(mean, [equally_likely(values) - mean], "h")
    inside = (values >= found.low - 1e-3) & (values <= found.high + 1e-3)
    assert inside.mean() == pytest.approx(0.8, abs=0.01)
    assert (found.high if side > 0 else found.low) == pytest.approx(side, abs=1e-3)


def test_a_range_ends_at_both_ends_where_each_is_likely() -> None:
    """15 of 100 at either end: neither end leaves anything out, so the range holds all."""
    values = np.repeat([-1.0, 0.0, 1.0], [150, 700, 150])
    found = range_of(0.0, [equally_likely(values)], "h")
    assert (found.low, found.central, found.high) == (-1.0, 0.0, 1.0)


@pytest.mark.parametrize("survives", [0.3, 0.6, 0.9])
@pytest.mark.parametrize("off", [0.1, 0.5])
def test_what_boards_draw_otherwise_counts_for_as_long_as_they_are_held(
    survives: float, off: float
) -> None:
    """The range of hours times power, drawn a million times: a long hold errs the more."""
    most, draws = 24.0, 1_000_000
    random = np.random.default_rng(5)
    ends = np.where(random.random(draws) < survives, most, most * random.random(draws))
    power = 1 + off / 1.2816 * random.standard_normal(draws)
    hours = np.sort(ends)[:: draws // 2_000]
    mean = float(hours.mean())
    end = Error(kwh=in_order(hours - mean), lasting=in_order(hours / mean))
    rate = Error(kwh=two_sided_error(off * mean, off * mean))
    found = range_of(mean, [end.with_rates([rate]).kwh], "kWh")
    inside = (ends * power >= found.low) & (ends * power <= found.high)
    assert inside.mean() == pytest.approx(0.8, abs=0.02)
    assert (ends * power > found.high).mean() == pytest.approx(0.1, abs=0.02)
