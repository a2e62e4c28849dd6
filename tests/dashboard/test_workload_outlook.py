"""The week and the month of services and recurring jobs: kept, replaced in time, and told."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pandas as pd
import pytest
from factories import H100, make_collected, make_job, make_plan, make_samples

from dashboard.cli import main
from dashboard.cycle.outlooks import workload_outlooks
from dashboard.resources.workload_rows import total_lines, workload_rows
from data.facts.jobs import Job, OwnNames, WorkloadKind
from data.records.forecasts import GroupKind, Quantity, WorkloadForecast
from data.settings.all_settings import Settings
from data.settings.statements import GpuPrice, StatementSettings
from data.store import Store, open_store
from data.store.handles.tenant_reader import OwnedReader

DAYS = 9
END = datetime(2026, 1, 14, 0, tzinfo=UTC)
SERVICE = make_job("search/ranker", gpu_count=2, last_seen_at=END)
SETTINGS = Settings(
    statement=StatementSettings(prices=(GpuPrice(gpu_model=H100, per_gpu_hour=2.0),))
)


def nightly(day: int) -> Job:
    """The run of one night, that holds one board for three hours."""
    seen = END - timedelta(days=DAYS - 1 - day)
    return make_job(f"team/train-{day}", kind=WorkloadKind.TRAINING, owner="ann", last_seen_at=seen)


def fill(store: Store) -> None:
    """Nine days of a service on two boards, and of a nightly job on a third."""
    runs = [nightly(day) for day in range(DAYS)]
    frames = [make_samples(gpus=2, minutes=DAYS * 24 * 60, end=END, job_id=SERVICE.job_id)]
    for day, run in enumerate(runs):
        end = END - timedelta(days=DAYS - 1 - day, minutes=61)
        board = make_samples(gpus=3, minutes=180, end=end, job_id=run.job_id)
        frames.append(board[board["gpu_uuid"] == "GPU-0002"])
    store.keep(make_collected(pd.concat(frames, ignore_index=True), jobs=(SERVICE, *runs)))


def foreseen(store: Store, now: datetime = END) -> tuple[WorkloadForecast, ...] | None:
    """What a cycle at that time makes."""
    view = store.reader.planning_view(now, slot_seconds=900, history_days=42)
    return workload_outlooks(store.reader, view, SETTINGS, now)


def keep(store: Store, workloads: tuple[WorkloadForecast, ...] | None, number: int) -> None:
    """Keep a cycle of that hour with these forecasts."""
    at = END + timedelta(hours=number)
    store.keep_cycle(
        cycle_id=f"c{number}", started_at=at, finished_at=at, forecasts=(),
        workloads=workloads, plan=make_plan(plan_id=f"{number:064d}"), recommendations=(),
    )  # fmt: skip


def test_they_are_made_every_six_hours_and_take_the_place_of_those_before(store_url: str) -> None:
    """A cycle of the same hours makes none; later ones replace them, and what is gone goes."""
    with open_store(store_url, create=True) as store:
        fill(store)
        made = foreseen(store)
        assert made is not None
        assert [(entry.name, entry.is_service, entry.runs) for entry in made] == [
            ("search/ranker", True, 1), ("team/ann/train", False, DAYS),
        ]  # fmt: skip
        service, recurring = (dict(entry.totals[0].sums) for entry in made)
        assert service[Quantity.ALLOCATED_GPUS].central == pytest.approx(336, rel=0.01)
        assert recurring[Quantity.ALLOCATED_GPUS].central == pytest.approx(21, rel=0.02)
        assert service[Quantity.POWER].central == pytest.approx(336 * 0.4, rel=0.01)
        keep(store, made, 0)
        assert store.reader.workload_forecasts() == made
        assert store.reader.workload_forecast("team/ann/train") == made[1]
        assert foreseen(store, END + timedelta(hours=5, minutes=59)) is None
        keep(store, None, 1)
        assert store.reader.workload_forecasts() == made
        assert foreseen(store, END + timedelta(hours=6, minutes=1)) is not None
        keep(store, made[1:], 2)
        assert store.reader.workload_forecasts() == made[1:]
        assert store.reader.workload_forecast("search/ranker") is None
        keep(store, (), 3)
        assert store.reader.workload_forecasts() == ()


def test_what_jobs_held_adds_up_to_the_fleet(store_url: str) -> None:
    """Boards held, used and their power by job and hour are those of the groups' history.

    Of more days than are read at once.
    """
    with open_store(store_url, create=True) as store:
        fill(store)
        ids = (SERVICE.job_id, *(nightly(day).job_id for day in range(DAYS)))
        start = END - timedelta(days=DAYS)
        held = store.reader.job_holdings(ids, start=start, end=END)
        groups = store.reader.group_history(start=start, end=END, slot_seconds=3600)
    fleet = groups[groups["kind"] == str(GroupKind.FLEET)].set_index("slot_start")
    sums = held.groupby("slot_start")[["allocated_gpus", "effective_gpus", "power_watts"]].sum()
    assert len(sums) == 24 * DAYS
    assert list(held.columns[:2]) == ["job_id", "slot_start"]
    assert not held.duplicated(["job_id", "slot_start"]).any()
    for name in sums.columns:
        assert sums[name].to_numpy() == pytest.approx(fleet[name].to_numpy())


def test_runs_that_wait_are_no_runs(tmp_path: Path) -> None:
    """Four that stand in the queue beside one that held a board make no recurring job."""
    waiting = [
        make_job(f"team/sweep-{number}", kind=WorkloadKind.TRAINING, last_seen_at=END)
        for number in range(1, 5)
    ]
    held = make_job("team/sweep-0", kind=WorkloadKind.TRAINING, last_seen_at=END)
    samples = make_samples(minutes=3 * 24 * 60, end=END, job_id=held.job_id)
    with open_store(f"duckdb:///{tmp_path}/w.duckdb") as store:
        store.keep(make_collected(samples, jobs=(held, *waiting)))
        assert foreseen(store) == ()


def test_an_owner_is_told_their_part_of_a_board(tmp_path: Path) -> None:
    """Ten minutes of an hour that others had for fifty are a sixth of a board, to the owner too."""
    mine = make_job("team/a", owner="ann", last_seen_at=END)
    other = make_job("team/b", owner="bob", last_seen_at=END)
    samples = make_samples(minutes=60, end=END - timedelta(minutes=1), job_id=other.job_id)
    samples.loc[samples.index[:10], "job_id"] = mine.job_id
    with open_store(f"duckdb:///{tmp_path}/w.duckdb") as store:
        store.keep(make_collected(samples, jobs=(mine, other)))
        owned = OwnedReader(
            store.reader_for_pages(), OwnNames(owners=frozenset({"ann"}), users=frozenset())
        )
        ids = (mine.job_id, other.job_id)
        span = {"start": END - timedelta(hours=1), "end": END}
        whole = store.reader.job_holdings((mine.job_id,), **span)
        told = owned.job_holdings(ids, **span)
    pd.testing.assert_frame_equal(told, whole)
    assert list(told["allocated_gpus"]) == [pytest.approx(1 / 6)]


def test_rows_tell_sums_and_what_they_cost(tmp_path: Path) -> None:
    """336 GPU-hours at 2 EUR; a workload on a model without a price costs nothing known."""
    with open_store(f"duckdb:///{tmp_path}/w.duckdb", create=True) as store:
        fill(store)
        keep(store, foreseen(store), 0)
        rows = workload_rows(store.reader, SETTINGS)
        lines = total_lines(rows)
        none = Settings(
            statement=StatementSettings(prices=(GpuPrice(gpu_model="A", per_gpu_hour=2.0),))
        )
        unpriced = total_lines(workload_rows(store.reader, none))
    assert [(line["name"], line["days"]) for line in lines] == [
        ("search/ranker", 7), ("search/ranker", 30), ("team/ann/train", 7), ("team/ann/train", 30),
    ]  # fmt: skip
    assert lines[0]["cost"] == pytest.approx(2 * lines[0]["gpu_hours"])
    assert lines[0]["gpu_hours_before"] == pytest.approx(336, rel=0.01)
    assert lines[1]["gpu_hours_before"] is None
    assert lines[0]["currency"] == "EUR"
    assert [line["cost"] for line in unpriced] == [None] * 4
    assert [len(row["horizons"]) for row in rows] == [2, 2]


def test_the_command_lists_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A table of sums, or all as JSON; nothing of a store without a service says so."""
    url = f"duckdb:///{tmp_path}/w.duckdb"
    with open_store(url, create=True) as store:
        fill(store)
        keep(store, foreseen(store), 0)
    assert main(["--store", url, "forecast", "--by", "workload", "--format", "json"]) == 0
    (first, _second) = json.loads(capsys.readouterr().out)
    assert first["name"] == "search/ranker"
    assert first["gpu_models"] == {H100: 1.0}
    assert main(["--store", url, "forecast", "--by", "workload"]) == 0
    assert "team/ann/train" in capsys.readouterr().out
