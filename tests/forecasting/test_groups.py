"""Groups: what is added up is added up once, and what nobody saw is not called zero."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from drawn import examples
from factories import H100, NOW, make_collected, make_job, make_samples
from forecasting_cases import HOURLY, daily, series
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data.facts.columns import GROUP_HISTORY, check_frame, empty_frame
from data.facts.jobs import JobState, SchedulerFacts
from data.records.forecasts import GroupKind, Quantity
from data.store import Store, open_store
from forecasting.groups.group_forecasts import by_slot, forecast_groups
from forecasting.series.group_series import group_series

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


A100 = "A100-SXM4-40GB"
DAYS = 5


def hours_seen(unseen: dict[int, tuple[int, int]], *, held: int = 8) -> pd.DataFrame:
    """Eight A100 and eight H100, of which the first `held` work, but for hours of some boards.

    `unseen` has by A100 the first hour in which nobody saw it, and the first in which it is back.
    """
    end = START + timedelta(days=DAYS) - timedelta(minutes=20)
    samples = make_samples(gpus=16, minutes=1, end=end)
    times = pd.date_range(START, end, freq="20min").as_unit("us")
    frame = samples.loc[samples.index.repeat(len(times))].reset_index(drop=True)
    frame["sampled_at"] = np.tile(times, 16)
    board = frame["gpu_uuid"].str[-4:].astype(int)
    frame.loc[board < 8, "gpu_model"] = A100
    frame.loc[board % 8 >= held, ["job_id", "utilization_ratio", "memory_used_mib"]] = [
        "",
        0.0,
        0.0,
    ]
    hour = (frame["sampled_at"] - START) // timedelta(hours=1)
    seen = pd.Series(True, index=frame.index)
    for away, (since, until) in unseen.items():
        seen &= ~((board == away) & (hour >= since) & (hour < until))
    return frame[seen].reset_index(drop=True)


def known_hours(store: Store, samples: pd.DataFrame) -> dict[str, np.ndarray]:
    """By group whether the demand of each hour is known."""
    store.keep(make_collected(samples, (make_job(gpu_count=16),)))
    window = {"start": START, "end": START + timedelta(days=DAYS)}
    frame = store.reader.group_history(**window, slot_seconds=3600)
    groups = group_series(frame, 3600)
    return {group.name: np.isfinite(group.series[0].values) for group in groups}


@settings(
    max_examples=examples(8),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(
    since=st.integers(1, 30),
    hours=st.integers(1, 80),
    boards=st.integers(1, 8),
    held=st.integers(1, 8),
)
def test_an_outage_of_any_length_and_share_is_unknown(
    since: int, hours: int, boards: int, held: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """Of the fleet, its namespaces and the model; nothing else of the history is."""
    outage = np.zeros(24 * DAYS, dtype=bool)
    outage[since : since + hours] = True
    samples = hours_seen(dict.fromkeys(range(boards), (since, since + hours)), held=held)
    with open_store(f"duckdb:///{tmp_path_factory.mktemp('away') / 't.duckdb'}") as store:
        known = known_hours(store, samples)
    for name in ("fleet", "search", A100):
        assert np.array_equal(known[name], ~outage), name


@pytest.mark.parametrize("comes", [False, True])
def test_boards_that_came_or_left_for_good_are_no_outage(store: Store, *, comes: bool) -> None:
    """Six of eight A100 were bought or given back in the middle: all else is known of them."""
    middle, last = 12 * DAYS, 24 * DAYS
    span = (0, middle) if comes else (middle, last)
    known = known_hours(store, hours_seen(dict.fromkeys(range(6), span)))
    assert known[A100].all()
    assert known["fleet"].all()


def test_a_board_switched_off_while_free_is_no_outage(store: Store) -> None:
    """Nobody held it before or after, as where a node without work is powered down."""
    known = known_hours(store, hours_seen({7: (40, 70)}, held=7))
    assert known[A100].all()


def test_a_board_that_nobody_reports_between_two_jobs_is_no_outage(store: Store) -> None:
    """As where a node is on, or a source tells of a board, only while something runs there."""
    samples = hours_seen(dict.fromkeys(range(3), (40, 70)))
    samples.loc[samples["sampled_at"] >= START + timedelta(hours=70), "job_id"] = "search/next"
    known = known_hours(store, samples)
    assert known[A100].all()


def test_a_model_that_was_seen_is_known_while_another_was_not(store: Store) -> None:
    """A day without one A100: the fleet's sum is unknown, the H100s' is not."""
    known = known_hours(store, hours_seen({0: (40, 64)}))
    assert known[A100].sum() == known["fleet"].sum() == 24 * DAYS - 24
    assert known[H100].all()
