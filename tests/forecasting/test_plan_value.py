"""The replay that says what forecasts are worth: same past, same fleet, paid with what came."""

from pathlib import Path

import numpy as np
import pytest

from benchmarks._plan_value_replay import (
    MISSING_PRICE,
    START_HOURS,
    Held,
    ValueCase,
    by_last_value,
    by_truth,
    clipped,
    oracle,
    planned,
)
from benchmarks._plan_value_sets import SOURCES, cases
from benchmarks.demand_sets import DemandSet, on_one_clock


def two_services() -> ValueCase:
    """Return two services that trade ten GPUs in the middle of six hours, after two days alike."""
    first = np.array([10.0] * 51 + [20.0] * 3)
    return ValueCase(
        name="two",
        source="none",
        services=("a", "b"),
        demand=np.stack([first, 30.0 - first]),
        first=48,
        hours=6,
    )


def test_a_path_is_paid_with_what_came() -> None:
    """Held GPU-hours, four rents of what is missing and a start wherever the number changes."""
    held = Held(name="kept", counts=np.array([[10.0] * 6, [20.0] * 5 + [10.0]]))
    cost = held.costs(two_services())
    assert cost[0] == pytest.approx(60 + MISSING_PRICE * 30)
    assert cost[1] == pytest.approx(110 + START_HOURS * 10)
    assert held.missing_ratio(two_services()) == pytest.approx(30 / 180)


def test_who_knows_more_pays_less() -> None:
    """The oracle serves all, plans on the truth come to it, the last value is an hour late."""
    case = two_services()
    best, gap = oracle(case)
    cost = best.costs(case).sum()
    assert gap < 0.01
    assert best.missing_ratio(case) == 0
    known = planned(case, "truth", by_truth)
    late = planned(case, "last", by_last_value)
    assert known.costs(case).sum() == pytest.approx(cost, rel=0.002)
    assert late.costs(case).sum() == pytest.approx(cost + MISSING_PRICE * 10, rel=0.02)
    for entry in (best, known, late):
        assert (entry.counts.sum(axis=0) <= case.capacity).all()


def test_wishes_are_cut_in_proportion() -> None:
    """Where wishes exceed the fleet nobody is served before the others."""
    assert clipped(np.array([30.0, 10.0]), 20).tolist() == [15, 5]
    assert clipped(np.array([3.2, 10.0]), 20).tolist() == [4, 10]


def test_series_of_unequal_lengths_share_a_clock() -> None:
    """A series that begins later or ends earlier is unknown there, whatever the order of names."""
    one = DemandSet(
        name="two",
        slot_seconds=3600,
        series={"late": np.ones(3), "early": np.full(4, 2.0)},
        first={"late": 5, "early": 3},
    )
    names, rows = on_one_clock(one)
    assert names == ("early", "late")
    assert np.array_equal(rows, [[2, 2, 2, 2, np.nan], [np.nan, np.nan, 1, 1, 1]], equal_nan=True)


def test_absent_data_is_named(tmp_path: Path) -> None:
    """A folder without recordings leaves the simulated fleet; each other source is said to lack."""
    for source in sorted(set(SOURCES) - {"simulated"}):
        found, absent = cases(tmp_path, source)
        assert not found
        assert len(absent) == 1
        assert source in absent[0]
