"""`trimtab memory`: from the store's forecasts to what runs out."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from factories import H100, NOW, make_collected, make_job, make_plan, make_samples

from dashboard.cli import main
from data.records.forecasts import DemandForecast, QuantilePath, Quantity
from data.store import open_store

JOB = "ml/job/grows"


def forecast(middle_mib: float) -> DemandForecast:
    """Memory that goes to a level within an hour."""
    rows = [tuple(middle_mib + off for _ in range(4)) for off in (-500.0, 0.0, 500.0)]
    path = QuantilePath(
        quantity=Quantity.MEMORY, model="mix", q10=rows[0], q50=rows[1], q90=rows[2], backtest=None
    )
    return DemandForecast(
        job_id=JOB,
        slot_starts=tuple(NOW + timedelta(minutes=15 * slot) for slot in range(4)),
        paths=(path,),
        missing=(),
        samples=60,
        history_slots=4,
        known_slots=4,
    )


def filled(tmp_path: Path, middle_mib: float) -> str:
    """A store with one running job on one H100 and its forecast; gives the store's address."""
    url = f"duckdb:///{tmp_path}/store.duckdb"
    job = make_job(JOB, gpu_model=H100, gpu_count=1, gpu_memory_mib=81_559.0, last_seen_at=NOW)
    samples = make_samples(job_id=JOB, end=NOW, memory_used_mib=60_000.0)
    with open_store(url) as store:
        store.keep(make_collected(samples, (job,)))
        store.keep_cycle(
            cycle_id="c", started_at=NOW, finished_at=NOW,
            forecasts=(forecast(middle_mib),), plan=make_plan(jobs=()), recommendations=(),
        )  # fmt: skip
    return url


def test_a_job_that_will_run_out_is_listed_first_and_answers_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A forecast beyond the board is a finding with its chance, its time and what to do."""
    url = filled(tmp_path, 90_000.0)
    assert main(["--store", url, "memory", "--format", "json"]) == 3
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["job_id"], row["outlook"]) == (JOB, "runs-out")
    assert row["probability"] >= 0.9
    assert row["advice"][0] == "spread the job over more GPUs"


def test_a_job_with_enough_memory_is_listed_without_a_word(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A job that stays below its board is a row and no finding."""
    url = filled(tmp_path, 60_000.0)
    assert main(["--store", url, "memory", "--format", "json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)
    assert (row["outlook"], row["used_gib"]) == ("", 58.59)
