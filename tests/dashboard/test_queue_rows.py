"""Who waits for GPUs, by the command, the API and the page."""

import json
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from factories import H100, NOW, make_collected, make_samples
from waiting_jobs import waiting_jobs

from dashboard.cli import main
from dashboard.resources.queue_rows import queue_rows
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


def test_one_job_is_shown_with_what_would_start_it_sooner(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its number too; a job that does not wait for room has no such change."""
    url = f"duckdb:///{tmp_path}/queue.duckdb"
    with open_store(url) as store:
        store.keep(make_collected(jobs=waiting_jobs(NOW)))
    command = ["--quiet", "--store", url, "queue"]
    assert main([*command, "4", "--format", "json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["job"]["job_id"] == "slurm:4"
    for row in answer["sooner"]:
        assert row["more_minutes_q10"] <= row["more_minutes"] < answer["job"]["more_minutes"]
    assert main([*command, "slurm:3"]) == 0
    said = capsys.readouterr()
    assert "waits for" in said.out
    assert "it does not wait for room" in said.out
    assert "No change is known that would start it sooner." in said.err
    assert main([*command, "5"]) == 1
    assert "no job 5 waits for GPUs" in capsys.readouterr().err


def boards_of(node: str, count: int, held: int) -> pd.DataFrame:
    """An hour of a node's boards, of which jobs hold some."""
    frame = make_samples(gpus=count)
    index = frame["gpu_uuid"].str[-4:].astype(int)
    frame["job_id"] = ["other/job" if number < held else "" for number in index]
    frame.loc[index >= held, ["utilization_ratio", "memory_used_mib", "power_watts"]] = (0, 0, 70)
    return frame.assign(gpu_uuid=node + "-" + frame["gpu_uuid"], node=node)


@pytest.mark.parametrize(
    ("held", "awaited", "words"),
    [
        (3, 0, f"paris: 5 {H100} free"),
        (3, 1, f"paris: 4 {H100} free"),
        (3, 2, ""),
        (5, 0, ""),
        (8, 0, ""),
    ],
)
def test_a_waiting_job_is_told_of_room_in_another_cluster(
    tmp_path: Path, held: int, awaited: int, words: str
) -> None:
    """Less what waits there; its own cluster's boards are no news, nor too few on each node."""
    waiting = [replace(job, gpu_model=H100) for job in waiting_jobs(NOW)[1:2]]
    there = [
        replace(waiting[0], job_id=f"slurm:{number}@paris", source="slurm@paris", gpu_count=1)
        for number in range(awaited)
    ]
    frame = pd.concat([boards_of("n1", 8, 4), boards_of("n1@paris", 8, held)], ignore_index=True)
    with open_store(f"duckdb:///{tmp_path}/store.duckdb") as store:
        store.keep(make_collected(frame, jobs=(*waiting, *there)))
        rows = {row.job_id: row for row in queue_rows(store.reader)}
    assert rows["slurm:2"].elsewhere == words
    assert {row.elsewhere for row in rows.values() if "@" in row.job_id} <= {""}


@pytest.mark.parametrize(
    "option", ["--namespace=b", "--sort=-gpus", "--since=2026-01-01T00:00:00Z"]
)
def test_one_job_is_not_chosen_among(
    option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What chooses or orders rows is refused beside a job, where it would do nothing."""
    url = f"duckdb:///{tmp_path}/t.duckdb"
    with open_store(url):
        command = ["--quiet", "--store", url, "queue", "4711", option]
    assert main(command) != 0
    name = option.partition("=")[0]
    assert f"{name} " in (said := capsys.readouterr().err)
    assert "4711 is one" in said
