"""Attested idleness of drawn boards with faulty exporters: none that works is said to be idle."""

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

from outsiders.campaign import SEED, scenario_count, source_of

from benchmarks._drawn_boards import DrawnJob, draw, is_hidden, truth_of, write_answer
from collectors.readings.exposition_text import read_prometheus_json
from dashboard.common.attested_idle import AttestedJob, attested_jobs
from data.base.units import IDLE_RATIO
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.store import open_store

JOBS_A_SCENARIO, JOBS_A_STORE = 20, 400
MAX_MISSED = 0.02


def rows_of(jobs: list[DrawnJob], folder: Path) -> dict[str, AttestedJob]:
    """What is attested of the jobs after an import, by job."""
    write_answer(jobs, folder / "answer.json")
    with open_store(f"duckdb:///{folder / 'readings.db'}") as store:
        store.keep(read_prometheus_json(folder / "answer.json", load_gpu_catalogue()))
        end = store.reader.latest_sample_at()
        assert end is not None
        return {row.job_id: row for row in attested_jobs(store.reader, now=end)}


def worked_since(job: DrawnJob, since: datetime) -> bool:
    """Whether a board of it was truly at work after that time."""
    return any(
        bool((truth.means["engine"][truth.times > since.timestamp()] > IDLE_RATIO).any())
        for truth in (truth_of(job, board) for board in range(job.boards))
    )


def test_no_job_at_work_is_attested_idle(tmp_path: Path, measured: Callable[[str], None]) -> None:
    """Since when it is said to be idle it did nothing; who rests without a fault is told."""
    count = JOBS_A_SCENARIO * scenario_count(3)
    wrong, attested, rests, missed, hidden, boards = [], 0, 0, 0, 0, 0
    for first in range(0, count, JOBS_A_STORE):
        numbers = range(first, min(count, first + JOBS_A_STORE))
        folder = tmp_path / str(first)
        folder.mkdir()
        jobs = [draw(source_of("attested", n), n) for n in numbers]
        rows = rows_of(jobs, folder)
        for job in jobs:
            boards += job.boards
            mine = [row for pod in job.pods if (row := rows.get(f"drawn/{pod}"))]
            idle = [row for row in mine if row.state == "idle"]
            attested += bool(idle)
            hidden += bool(idle) and is_hidden(job)
            if not job.works and not job.fault:
                rests += 1
                missed += len(idle) < job.holders
            since = min((row.idle_since or datetime.max.replace(tzinfo=UTC) for row in idle),
                        default=None)  # fmt: skip
            if since is not None and not is_hidden(job) and worked_since(job, since):
                wrong.append((job, since))
    line = (
        f"attested idle: {boards} boards of {count} jobs, seed {SEED}: {attested} jobs attested, "
        f"{len(wrong)} of them at work, {missed} of {rests} at rest without a fault missed, "
        f"{hidden} at work that nothing shows"
    )
    measured(line)
    assert not wrong, "\n".join([line, *map(str, wrong[:3])])
    assert missed <= MAX_MISSED * rests, line
