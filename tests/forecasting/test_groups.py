"""Groups: what is added up is added up once, and what nobody saw is not called zero."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from factories import NOW, make_collected, make_job, make_samples
from forecasting_cases import HOURLY, daily, series

from data.columns import GROUP_HISTORY, check_frame, empty_frame
from data.records.forecasts import GroupKind, Quantity
from data.records.jobs import JobState, SchedulerFacts
from data.store import open_store
from forecasting.group_forecasts import by_slot, forecast_groups
from forecasting.group_series import group_series

START = datetime(2026, 1, 1, tzinfo=UTC)


def group_history(values: dict[str, np.ndarray], boards: np.ndarray) -> pd.DataFrame:
    """Hourly rows of namespaces; NaN means no row at all."""
    rows = [
        {
            "kind": "namespace",
            "name": name,
            "slot_start": START + timedelta(hours=hour),
            "boards": boards[hour],
            "allocated_gpus": value,
            "effective_gpus": value / 2,
        }
        for name, row in values.items()
        for hour, value in enumerate(row)
        if np.isfinite(value) and boards[hour] > 0
    ]
    frame = pd.DataFrame(rows)
    frame["slot_start"] = frame["slot_start"].astype("datetime64[us, UTC]")
    return check_frame(frame, GROUP_HISTORY)


def test_a_group_without_a_row_held_nothing() -> None:
    """While others were seen, absence is zero; a slot without the fleet is unknown."""
    boards = np.array([8.0, 8, 8, 0, 8])
    frame = group_history(
        {"a": np.array([4.0, np.nan, 4, 4, 4]), "b": np.array([1.0, 1, 1, 1, 1])}, boards
    )
    found = {entry.name: entry for entry in group_series(frame, 3600)}
    values = found["a"].series[0].values
    assert np.array_equal(values, [4, 0, 4, np.nan, 4], equal_nan=True)
    assert found["a"].known_slots == 4
    assert [entry.quantity for entry in found["a"].series] == ["allocated_gpus", "effective_gpus"]


def test_a_slot_that_missed_boards_is_unknown() -> None:
    """When a source failed and half the boards were not seen, nobody knows what they did."""
    boards = np.full(30, 8.0)
    boards[10] = 4
    (found,) = group_series(group_history({"a": np.full(30, 6.0)}, boards), 3600)
    assert np.isnan(found.series[0].values[10])
    assert np.isfinite(np.delete(found.series[0].values, 10)).all()


def test_slots_with_a_queue_are_censored() -> None:
    """A job that waited from half past one to five leaves three whole hours; a pending one all."""
    frame = group_history({"a": np.full(8, 4.0), "b": np.full(8, 1.0)}, np.full(8, 8.0))
    waited = make_job(
        "a/x",
        scheduler=SchedulerFacts(
            submitted_at=START + timedelta(minutes=90), started_at=START + timedelta(hours=5)
        ),
    )
    pending = make_job(
        "b/y",
        scheduler=SchedulerFacts(state=JobState.PENDING, submitted_at=START + timedelta(hours=6)),
    )
    lost = make_job("b/z", scheduler=SchedulerFacts(submitted_at=START))
    found = {entry.name: entry for entry in group_series(frame, 3600, jobs=[waited, pending, lost])}
    assert found["a"].series[0].censored == 3
    assert found["b"].series[0].censored == 2


def test_both_horizons_are_forecast() -> None:
    """A week by the hour from the next hour on; a month by the day from the next day on."""
    frame = group_history({"a": daily(20)}, np.full(24 * 20, 100.0))
    as_of = START + timedelta(days=20) - timedelta(minutes=1)
    week, month = forecast_groups(frame, as_of=as_of, settings=HOURLY)
    assert (week.kind, week.name) == (GroupKind.NAMESPACE, "a")
    assert week.slot_starts[0] == START + timedelta(days=20)
    assert (len(week.slot_starts), len(month.slot_starts)) == (168, 30)
    assert month.slot_starts[0] == START + timedelta(days=20)
    path = week.path(Quantity.ALLOCATED_GPUS)
    assert path is not None
    assert np.abs(np.array(path.q50[:24]) - daily(1, noise=0)).mean() < 10
    mean = month.path(Quantity.ALLOCATED_GPUS)
    assert mean is not None
    assert np.abs(np.array(mean.q50) - 50).max() < 5


def test_nothing_known_gives_no_group() -> None:
    """An empty history has no groups; three hours are too few."""
    assert forecast_groups(empty_frame(GROUP_HISTORY), as_of=NOW, settings=HOURLY) == ()
    short = group_history({"a": np.full(3, 2.0)}, np.full(3, 8.0))
    assert forecast_groups(short, as_of=START, settings=HOURLY) == ()


def test_days_begin_at_midnight() -> None:
    """A series from 22:00 on loses its first two hours; a day less than half known is unknown."""
    values = np.concatenate([[9.0, 9.0], np.full(24, 4.0), np.full(24, np.nan), np.full(5, 7.0)])
    values[26:36] = 2.0
    one = replace(series(values), first_slot=22 * 3600)
    found = by_slot(one, 86_400)
    assert found.first_slot == 86_400
    assert np.array_equal(found.values, [4.0, np.nan], equal_nan=True)


def test_groups_of_the_store_add_up_to_the_fleet(tmp_path: Path) -> None:
    """Two namespaces on three boards, one idle: allocated, used and power are the jobs' sums."""
    end = NOW + timedelta(minutes=59)
    parts = [
        make_samples(gpus=2, minutes=60, end=end, job_id="a/x", utilization_ratio=0.5),
        make_samples(gpus=3, minutes=60, end=end, job_id="b/y", power_watts=100.0).query(
            "gpu_uuid == 'GPU-0002'"
        ),
    ]
    samples = pd.concat([*parts, _idle_board(end)], ignore_index=True)
    with open_store(f"duckdb:///{tmp_path}/g.duckdb") as store:
        store.keep(make_collected(samples, jobs=(make_job("a/x", gpu_count=2), make_job("b/y"))))
        frame = store.reader.group_history(
            start=NOW - timedelta(hours=2), end=NOW + timedelta(hours=1), slot_seconds=3600
        )
    rows = {(row.kind, row.name): row for row in frame.itertuples()}
    assert rows["fleet", "fleet"].boards == 4
    assert rows["fleet", "fleet"].allocated_gpus == pytest.approx(3.0)
    assert rows["namespace", "a"].allocated_gpus == pytest.approx(2.0)
    assert rows["namespace", "a"].effective_gpus == pytest.approx(1.0)
    assert rows["namespace", "a"].power_watts == pytest.approx(800.0)
    assert rows["namespace", "b"].power_watts == pytest.approx(100.0)
    assert rows["fleet", "fleet"].power_watts == pytest.approx(900.0)


def _idle_board(end: datetime) -> pd.DataFrame:
    frame = make_samples(gpus=4, minutes=60, end=end, job_id="", utilization_ratio=0.0)
    return frame.assign(memory_used_mib=0.0).query("gpu_uuid == 'GPU-0003'")
