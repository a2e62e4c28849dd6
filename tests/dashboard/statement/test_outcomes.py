"""What came of jobs, by the words of Slurm and Kubernetes, and what it cost."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from factories import make_collected, make_job, make_samples

from collectors.slurm.values import job_state_of
from dashboard.accounting.cost.charges import outcome_of
from dashboard.accounting.cost.statement import make_cost_statement
from data.facts.jobs import JobState, SchedulerFacts
from data.settings.all_settings import Settings
from data.settings.energy import EnergySettings
from data.store import open_store

END = datetime(2026, 1, 5, 12, tzinfo=UTC)
FAILED = {
    "FAILED": "its program",
    "TIMEOUT": "time limit",
    "NODE_FAIL": "node failed",
    "BOOT_FAIL": "node failed",
    "DEADLINE": "time limit",
    "OUT_OF_MEMORY": "out of memory",
    "PREEMPTED": "preempted",
}


def of(state: JobState, reason: str = "") -> str:
    """The outcome of a job of which a scheduler says this."""
    return outcome_of(make_job(scheduler=SchedulerFacts(state=state, reason=reason)))


def test_each_failure_of_slurm_has_its_cause() -> None:
    """Where Slurm gives no reason, the source keeps the word of the state as one."""
    for word, cause in FAILED.items():
        assert of(job_state_of((word,)), word) == f"failed: {cause}"


@pytest.mark.parametrize(
    ("reason", "cause"),
    [
        ("OutOfMemory", "out of memory"),
        ("OOMKilled", "out of memory"),
        ("TimeLimit", "time limit"),
        ("DeadlineExceeded: Job was active longer than specified deadline", "time limit"),
        ("Evicted: The node was low on resource: memory", "preempted"),
        ("NonZeroExitCode", "its program"),
        ("BackoffLimitExceeded: Job has reached the specified backoff limit", "its program"),
        ("", "its program"),
    ],
)
def test_reasons_name_what_ended_a_job(reason: str, cause: str) -> None:
    """Slurm's and Kubernetes' own."""
    assert of(JobState.FAILED, reason) == f"failed: {cause}"


@pytest.mark.parametrize("state", JobState)
def test_each_state_has_an_outcome(state: JobState) -> None:
    """Only what no scheduler tells is unknown, and no failure is called anything else."""
    assert of(state).startswith("failed") == (state is JobState.FAILED)
    assert (of(state) == "(unknown)") == (state is JobState.UNKNOWN)
    assert outcome_of(None) == outcome_of(make_job(scheduler=None)) == "(unknown)"


def test_hours_and_money_go_to_what_came_of_the_job(tmp_path: Path) -> None:
    """An hour each of a job that finished and of one that was cancelled, and nothing beside."""
    said = {"a/done": JobState.FINISHED, "a/gone": JobState.CANCELLED}
    begin = END - timedelta(hours=1)
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        for job_id, state in said.items():
            job = make_job(
                job_id,
                first_seen_at=begin,
                last_seen_at=END,
                scheduler=SchedulerFacts(state=state, started_at=begin, ended_at=END),
            )
            readings = make_samples(end=END, minutes=61, job_id=job_id, gpu_uuid=f"GPU-{job_id}")
            store.keep(make_collected(readings, (job,), batch_id=job_id))
        made = make_cost_statement(
            store.reader,
            Settings(energy=EnergySettings(region="DEU")),
            start=begin,
            end=END,
            by=("outcome",),
        )
    hours = {row.names[0]: row.board_hours for row in made.rows}
    assert hours == pytest.approx({"finished": 1.0, "cancelled": 1.0}, rel=0.05)
    assert sum(hours.values()) == pytest.approx(made.total.board_hours)
