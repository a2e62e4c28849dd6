"""Applications: jobs of one workload are one row, and no two namespaces are mixed."""

import json
from datetime import timedelta
from pathlib import Path

import pytest
from factories import NOW, make_collected, make_job, make_samples

from dashboard.accounting.cost.applications import ApplicationRow, application_of, application_rows
from dashboard.cli import main
from data.facts.job_pages import JobFilter
from data.facts.jobs import Job, JobState, SchedulerFacts
from data.store import open_store


def job_of(
    job_id: str, workload: str, *, state: JobState = JobState.RUNNING, account: str = "lab"
) -> Job:
    """A job of two H100, last seen the later the longer its name."""
    return make_job(
        job_id, namespace=job_id.partition("/")[0], owner=f"owner of {job_id}",
        gpu_count=2, last_seen_at=NOW - timedelta(hours=1) + timedelta(seconds=len(job_id)),
        scheduler=SchedulerFacts(workload=workload, state=state, account=account),
    )  # fmt: skip


CHAT = "deployment/chat"
JOBS = (
    job_of("b/chat-1", CHAT),
    job_of("a/chat-10", CHAT),
    job_of("a/chat-2", CHAT, account=""),
    job_of("a/chat-3", CHAT, state=JobState.PENDING),
    job_of("a/chat-4", CHAT, state=JobState.UNKNOWN),
    make_job("a/alone", namespace="a", scheduler=None, gpu_count=1),
)


def test_jobs_of_a_workload_are_one_application() -> None:
    """Those that wait count as jobs and hold no GPU; what no scheduler names stays unknown."""
    unknown, chat, other = application_rows(JOBS, running_since=NOW - timedelta(hours=1))
    assert chat == ApplicationRow(
        namespace="a", application=CHAT, team="lab",
        owner="owner of a/chat-10, owner of a/chat-2, owner of a/chat-3, owner of a/chat-4",
        jobs=4, running=3, gpu_count=6, gpu_model=JOBS[0].gpu_model,
        last_seen_at=JOBS[1].last_seen_at,
    )  # fmt: skip
    assert (unknown.application, unknown.jobs, unknown.gpu_count) == ("(unknown)", 1, 1)
    assert (other.namespace, other.jobs) == ("b", 1)
    assert application_of(None) == "(unknown)"


@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.UNKNOWN])
def test_what_was_seen_last_before_an_hour_ago_runs_no_more(state: JobState) -> None:
    """Pods that no scheduler tells of end without a word: fourteen of them held no GPU."""
    gone = [job_of(f"a/eval-{day}", CHAT, state=state) for day in range(14)]
    (row,) = application_rows(gone, running_since=NOW)
    assert (row.jobs, row.running, row.gpu_count) == (14, 0, 0)
    assert row.gpu_model == gone[0].gpu_model


def test_the_command_and_the_page_know_applications(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command has a row each; the page filters by them."""
    url = f"duckdb:///{tmp_path}/t.duckdb"
    with open_store(url) as store:
        store.keep(make_collected(make_samples(job_id="a/chat-2"), JOBS))
        assert CHAT in store.reader.job_choices()["application"]
        page = store.reader.job_page(
            JobFilter(fields=(("application", CHAT), ("namespace", "a"))),
            start=NOW - timedelta(days=1), end=NOW, running_since=NOW - timedelta(hours=1),
            order="name", most=9,
        )  # fmt: skip
        assert [row.job.job_id for row in page.rows] == [
            f"a/chat-{number}" for number in (10, 2, 3, 4)
        ]
    assert main(["--quiet", "--store", url, "jobs", "--by", "application", "--format=json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert [(row["namespace"], row["application"], row["gpu_count"]) for row in told] == [
        ("a", "(unknown)", 1), ("a", CHAT, 6), ("b", CHAT, 2),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("--team a --application deployment/chat", ["chat-10", "chat-2", "chat-3", "chat-4"]),
        ("--state pending", ["chat-3"]),
        ("--search ALONE", ["alone"]),
        ("--team a --sort last-seen", ["alone", "chat-10", "chat-2", "chat-3", "chat-4"]),
        ("--team nobody", []),
    ],
)
def test_jobs_are_chosen_and_ordered(
    words: str, names: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As the page Jobs does; the rows are those of the plain list."""
    url = f"duckdb:///{tmp_path}/t.duckdb"
    with open_store(url) as store:
        store.keep(make_collected(make_samples(job_id="a/chat-2"), JOBS))
    command = ["--quiet", "--store", url, "jobs", "--format=json"]
    assert main(command) == 0
    every = {row["job_id"]: row for row in json.loads(capsys.readouterr().out)}
    assert main([*command, *words.split()]) == 0
    told = json.loads(capsys.readouterr().out)
    assert sorted(row["job_id"].partition("/")[2] for row in told) == names
    assert told == [every[row["job_id"]] for row in told]
    seen = [row["last_seen_at"] for row in told]
    assert "last-seen" not in words or seen == sorted(seen, reverse=True)
    assert main([*command, *words.split(), "--use"]) == 0
    used = json.loads(capsys.readouterr().out)
    assert [{name: row[name] for name in every[row["job_id"]]} for row in used] == told
    read = {row["job_id"]: row["utilization_ratio"] for row in used if row["gpu_hours"]}
    assert set(read) <= {"a/chat-2"}
    assert all(0 <= ratio <= 1 for ratio in read.values())


def test_an_order_of_applications_is_refused(tmp_path: Path) -> None:
    """Nothing that was asked is passed over."""
    url = f"duckdb:///{tmp_path}/t.duckdb"
    with open_store(url) as store:
        store.keep(make_collected(make_samples(), JOBS))
    command = ["--quiet", "--store", url, "jobs", "--by", "application"]
    assert main([*command, "--sort", "waste"]) == 2
    assert main([*command, "--use"]) == 2
