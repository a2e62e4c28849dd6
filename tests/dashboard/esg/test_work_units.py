"""Emissions per million tokens: only of whole runs whose work is stated and whose time is known."""

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from factories import NOW, make_collected, make_job, make_samples

from dashboard.accounting.energy.build import make_statement
from dashboard.accounting.energy.statement import EsgStatement
from dashboard.accounting.energy.work_units import finished_runs
from data.records.submissions import Attempt, Submission, SubmissionState, SubmittedPlan
from data.settings.all_settings import Settings
from data.settings.energy import EnergySettings
from data.store import open_store

JOB = "slurm:77"
START = NOW - timedelta(hours=12)
PLAN = SubmittedPlan(
    **dict.fromkeys(
        ("gpus", "nodes", "gpus_per_node", "data", "tensor", "pipeline", "micro_batch"), 1
    ),
    **dict.fromkeys(
        (
            *("p50_bytes", "p99_bytes", "needed_bytes", "static_bytes", "dynamic_bytes"),
            "gpu_memory_bytes",
        ),
        1.0,
    ),
    gpu_type="H100-SXM5-80GB",
    sharding="",
    gradient_accumulation=1,
    recompute="",
    tier="",
)


def submission(
    tokens: float | None = 5e6,
    *,
    sent_at: datetime = NOW - timedelta(hours=10),
    ended_at: datetime | None = NOW,
    state: SubmissionState = SubmissionState.FINISHED,
    attempts: int = 1,
) -> Submission:
    """A run of ten hours up to NOW that states its tokens."""
    sent: dict[str, Any] = {"plan": PLAN, "manifest": "", "state": state, "job_id": JOB}
    return Submission(
        name="train",
        target="slurm",
        job=json.dumps({"name": "train", "tokens": tokens}),
        family="f",
        submitted_by="ada",
        created_at=sent_at,
        attempts=tuple(
            Attempt(number=number, sent_at=sent_at, ended_at=ended_at, **sent)
            for number in range(attempts)
        ),
    )


@pytest.mark.parametrize(
    "other",
    [
        {"tokens": None},
        {"ended_at": None, "state": SubmissionState.RUNNING},
        {"state": SubmissionState.FAILED},
        {"sent_at": START - timedelta(hours=1)},
        {"ended_at": NOW + timedelta(hours=1)},
        {"attempts": 2},
    ],
)
def test_only_whole_finished_runs_of_stated_work_count(other: dict[str, Any]) -> None:
    """Part of a run, a failed one or one sent twice would give a wrong figure."""
    assert finished_runs([submission()], start=START, end=NOW) == {JOB: 5e6}
    assert finished_runs([submission(**other)], start=START, end=NOW) == {}


@pytest.fixture
def scored(tmp_path: Path) -> Callable[..., EsgStatement]:
    """The statement of a store that holds the run and its samples."""

    def made(**samples: object) -> EsgStatement:
        with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
            frame = make_samples(minutes=601, job_id=JOB, **samples)
            store.keep(make_collected(frame, (make_job(JOB),)))
            store.keep_submission(
                submission(), at=NOW, actor="ada", event="test", detail="", new=True
            )
            return make_statement(
                store.reader,
                start=START,
                end=NOW,
                settings=Settings(energy=EnergySettings(region="DEU")),
            )

    return made


def test_a_run_is_scored_per_million_tokens(scored: Callable[..., EsgStatement]) -> None:
    """4 kWh at the board, 6.16 at the site, and ten hours of an H100's making, over 5 million."""
    (score,) = scored().unit_scores
    assert score.sci_gco2e is not None
    grams = 6.16 * 380.9 + 1000 * 164 * 10 / 43_800
    assert score.sci_gco2e.central == pytest.approx(grams / 5)
    assert score.sci_gco2e.low < score.sci_gco2e.central < score.sci_gco2e.high


def test_a_run_without_power_is_named_without_a_score(scored: Callable[..., EsgStatement]) -> None:
    """Unknown, not zero."""
    (score,) = scored(power_watts=float("nan")).unit_scores
    assert (score.job_id, score.sci_gco2e) == (JOB, None)
