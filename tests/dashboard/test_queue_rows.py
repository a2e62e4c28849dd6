"""Who waits for GPUs, by the command, the API and the page."""

import json
from pathlib import Path

import pytest
from factories import NOW, make_collected
from waiting_jobs import waiting_jobs

from dashboard.cli import main
from dashboard.queue_rows import queue_rows
from data.store import open_store


def test_places_reasons_and_forecasts(store_url: str) -> None:
    """A held job is nobody's hindrance; what nobody can know is None, with the reason."""
    with open_store(store_url) as store:
        store.keep(make_collected(jobs=waiting_jobs(NOW)))
        rows = queue_rows(store.reader)
    assert [(row.job_id, row.reason, row.jobs_ahead, row.gpus_ahead) for row in rows] == [
        ("slurm:2", "Resources", 0, 0),
        ("slurm:3", "JobHeldUser", 1, 4),
        ("slurm:4", "Priority", 1, 4),
    ]
    first, held, last = rows
    assert first.waited_hours == pytest.approx(0.5)
    assert held.more_minutes is None
    assert held.rests_on == "it does not wait for room"
    assert last.rests_on == "from 1 start in the last 7 d"
    assert last.more_minutes_q10 is not None
    assert last.more_minutes_q90 is not None
    assert last.more_minutes is not None
    assert last.more_minutes_q10 <= last.more_minutes <= last.more_minutes_q90


def test_the_command_lists_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In the order of the queue; and says so when nobody waits."""
    nobody, url = (f"duckdb:///{tmp_path}/{name}.duckdb" for name in ("nobody", "queue"))
    for address, jobs in ((nobody, waiting_jobs(NOW)[:1]), (url, waiting_jobs(NOW))):
        with open_store(address) as store:
            store.keep(make_collected(jobs=jobs))
    assert main(["--quiet", "--store", nobody, "queue"]) == 0
    assert "No job waits for GPUs." in capsys.readouterr().err
    assert main(["--quiet", "--store", url, "queue", "--format=json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [row["job_id"] for row in rows] == ["slurm:2", "slurm:3", "slurm:4"]
    assert rows[0]["gpus"] == 4
