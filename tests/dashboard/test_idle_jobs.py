"""Attested idleness: idle is said of a job alone whose every board was read, and rests."""

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from beds.stores import filled
from factories import NOW, make_collected, make_job, make_samples

from benchmarks._drawn_boards import DrawnJob, write_answer
from collectors.readings.exposition_text import read_prometheus_json
from dashboard.cli import main
from dashboard.common.attested_idle import MAX_AGE, AttestedJob, attested_jobs
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.jobs import Job, JobState, SchedulerFacts
from data.records.feasible_changes import UNREAD_COUNT
from data.store import open_store

BOARDS = 2
HOUR = timedelta(hours=1)


def rest(minutes: int = 180) -> pd.DataFrame:
    """Samples of two boards at rest, up to NOW."""
    return make_samples(gpus=BOARDS, minutes=minutes, utilization_ratio=0.0, power_watts=70.0)


def late(frame: pd.DataFrame, minutes: float, until: float = 0.0) -> pd.Series:
    """Whether a sample is of the minutes before NOW."""
    age = (NOW - frame["sampled_at"]) / timedelta(minutes=1)
    return (age < minutes) & (age >= until)


def row_of(
    folder: Path, frame: pd.DataFrame, job: Job | None = None, now: datetime = NOW
) -> AttestedJob:
    """The row of the one job, from a live source."""
    job = replace(job or make_job(gpu_count=BOARDS), source="prometheus")
    collected = make_collected(frame, (job,))
    collected = replace(collected, report=replace(collected.report, source="prometheus"))
    with filled(f"duckdb:///{folder / 't.duckdb'}") as store:
        store.keep(collected)
        (row,) = attested_jobs(store.reader, now=now)
    return row


def scheduled(state: JobState, *extra: tuple[str, str]) -> Job:
    """The job as its scheduler tells of it."""
    return make_job(gpu_count=BOARDS, scheduler=SchedulerFacts(state=state, extra=extra))


def test_a_job_at_rest_is_idle_since_its_last_work(tmp_path: Path) -> None:
    """To the slot of five minutes, with what was read."""
    frame = rest()
    frame.loc[~late(frame, 61), "utilization_ratio"] = 0.4
    row = row_of(tmp_path, frame)
    assert (row.state, row.gpus) == ("idle", BOARDS)
    assert row.idle_since is not None
    assert timedelta(0) <= row.idle_since - (NOW - HOUR) <= timedelta(minutes=5)
    assert row.idle_minutes == pytest.approx(60, abs=5)
    assert "sm_active of 2 GPUs at most 1 %" in row.evidence


def one_at_work(frame: pd.DataFrame) -> pd.DataFrame:
    """One board works, in one sample of the last slots."""
    here = late(frame, 4, 3) & (frame["gpu_uuid"] == "GPU-0001")
    return frame.assign(utilization_ratio=frame["utilization_ratio"].mask(here, 0.02))


def one_unknown(frame: pd.DataFrame) -> pd.DataFrame:
    """The activity of one board is not read any more."""
    here = late(frame, 6) & (frame["gpu_uuid"] == "GPU-0001")
    return frame.assign(utilization_ratio=frame["utilization_ratio"].mask(here, np.nan))


def one_gone(frame: pd.DataFrame) -> pd.DataFrame:
    """One board is not read any more."""
    return frame[~(late(frame, 11) & (frame["gpu_uuid"] == "GPU-0001"))]


def all_gone_for_long(frame: pd.DataFrame) -> pd.DataFrame:
    """Nothing was read for an hour, up to ten minutes ago."""
    return frame[~late(frame, 70, 10)]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (one_at_work, "at work from 11:55 UTC on: 2 %"),
        (one_unknown, "not all of its GPUs were read"),
        (one_gone, "not all of its GPUs were read"),
        (all_gone_for_long, "read for less than 15 min"),
    ],
)
def test_what_is_unknown_is_active(
    tmp_path: Path, change: Callable[[pd.DataFrame], pd.DataFrame], reason: str
) -> None:
    """Whatever came before, and whatever the other boards show."""
    row = row_of(tmp_path, change(rest()))
    assert (row.state, row.idle_since, row.idle_minutes) == ("active", None, 0.0)
    assert reason in row.evidence


@pytest.mark.parametrize(("signal", "state"), [("gpu_util", "active"), ("sm_active", "idle")])
def test_few_readings_of_moments_attest_nothing(tmp_path: Path, signal: str, state: str) -> None:
    """In 40 of them work of a twentieth of the time may stay unseen; a mean would show it."""
    frame = rest().assign(utilization_signal=signal)
    frame.loc[~late(frame, 40), "utilization_ratio"] = 0.4
    row = row_of(tmp_path, frame)
    assert row.state == state
    assert ("60 are needed" in row.evidence) == (state == "active")
    frame.loc[~late(frame, 70), "utilization_ratio"] = 0.4
    frame.loc[late(frame, 70), "utilization_ratio"] = 0.0
    (tmp_path / "longer").mkdir()
    assert row_of(tmp_path / "longer", frame).state == "idle"


def test_readings_that_are_old_attest_nothing(tmp_path: Path) -> None:
    """They did when they were new."""
    frame = rest()
    limit = NOW + MAX_AGE - timedelta(minutes=5)
    assert row_of(tmp_path, frame, now=limit).state == "idle"
    row = row_of(tmp_path, frame, now=limit + timedelta(minutes=11))
    assert row.state == "active"
    assert "min old" in row.evidence


@pytest.mark.parametrize(
    ("job", "reason"),
    [
        (scheduled(JobState.SUSPENDED), "suspended"),
        (scheduled(JobState.RUNNING, (UNREAD_COUNT, "two")), "'two', is not understood"),
    ],
)
def test_what_its_scheduler_says_makes_it_active(tmp_path: Path, job: Job, reason: str) -> None:
    """A suspended job is somebody's decision; a request that is not understood may be more."""
    row = row_of(tmp_path, rest(), job)
    assert row.state == "active"
    assert reason in row.evidence


@pytest.mark.parametrize("state", [JobState.PENDING, JobState.FINISHED])
def test_jobs_that_do_not_run_have_no_row(tmp_path: Path, state: JobState) -> None:
    """They hold no GPU."""
    with filled(f"duckdb:///{tmp_path / 't.duckdb'}") as store:
        store.keep(make_collected(rest(), (scheduled(state),)))
        assert attested_jobs(store.reader, now=NOW) == []


def test_the_command_tells_of_a_recording_at_its_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job behind a stuck counter is active; options of the other lists are refused."""
    stuck = DrawnJob(
        number=1, kind="steady", fault="stuck engine", fields=("gpu_util", "engine", "power")
    )
    write_answer([stuck, DrawnJob(number=2, boards=2)], tmp_path / "answer.json")
    url = f"duckdb:///{tmp_path / 't.duckdb'}"
    with open_store(url) as store:
        store.keep(read_prometheus_json(tmp_path / "answer.json", load_gpu_catalogue()))
    assert main(["--store", url, "jobs", "--idle", "--format", "json"]) == 0
    rows = {row["job_id"]: row for row in json.loads(capsys.readouterr().out)}
    assert {name: row["state"] for name, row in rows.items()} == {
        "drawn/job-1": "active",
        "drawn/job-2": "idle",
    }
    assert "contradict" in rows["drawn/job-1"]["evidence"]
    assert main(["--store", url, "jobs", "--idle", "--running"]) == 2
    assert "--idle does not go with --running" in capsys.readouterr().err
