"""The waterfall from idle to freed: the same figures on the page, in the picture and by command."""

import json
import sys
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from beds.page_world import page_at, register_world
from browser.conftest import fill
from factories import H100, NOW, make_collected, make_job, make_plan, make_samples

from dashboard.accounting.savings.idle_bridge import (
    IDLE_COLUMNS,
    Segment,
    idle_rows,
    idle_sum,
    keep_reason,
)
from dashboard.cli import main
from data.base.clock import utc_now
from data.facts.collected import Collected
from data.facts.jobs import JobState, Platform, SchedulerFacts
from data.records.plans import Configuration, IdleCause, IdleGpus, JobPlan, Plan
from data.settings.all_settings import Settings
from data.store import open_store

APP = Path(__file__).parents[2] / "dashboard/web/app.py"


def kept_job(now: datetime) -> Collected:
    """A day of an idle pod, which no other size can be given."""
    facts = SchedulerFacts(state=JobState.RUNNING, workload="pod/kept")
    job = make_job("steady/kept", gpu_count=2, scheduler=facts, platform=Platform.KUBERNETES,
                   first_seen_at=now - timedelta(days=1), last_seen_at=now)  # fmt: skip
    idle = make_samples(gpus=2, minutes=24 * 60, job_id=job.job_id, end=now, utilization_ratio=0.0)
    return make_collected(idle.assign(gpu_uuid=lambda frame: "K-" + frame["gpu_uuid"]), (job,))


@pytest.fixture(scope="module")
def url(demo_time: None, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Two days of a small fleet and of a job that is kept, and one cycle on them."""
    url = f"duckdb:///{tmp_path_factory.mktemp('idle')}/t.duckdb"
    fill(url, nodes=3, days=2, extra=kept_job)
    return url


def latest(url: str) -> Plan:
    """The plan as the store gives it back."""
    with open_store(url) as store:
        plan = store.reader.latest_plan()
    assert plan is not None
    return plan


def test_the_command_tells_every_job_and_the_sum(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """As JSON with unknown as null, as a table with the sentence."""
    plan = latest(url)
    assert main(["--store", url, "findings", "idle", "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert {row["job"] for row in rows} == {job.job_id for job in plan.jobs}
    assert all(set(row) == set(IDLE_COLUMNS) for row in rows)
    assert main(["--store", url, "findings", "idle"]) == 0
    assert idle_sum(plan).sentence() in capsys.readouterr().out


def test_the_page_of_a_job_says_why_nothing_is_recommended_for_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The cause and reason of its idle GPUs, in one look."""
    with open_store(url) as store:
        plan = store.reader.latest_plan()
        assert plan is not None
        advised = {row.recommendation.job_id for row in store.reader.recommendations(now=utc_now())}
        kept = next(
            job for job in plan.jobs if job.idle and job.idle.reason and job.job_id not in advised
        )
        assert kept.idle is not None
        monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
        register_world(store, Settings())
        app = page_at("job", job=kept.job_id).run()
        assert not app.exception
        said = "\n".join(str(entry.value).replace("\\", "") for entry in app.markdown)
    assert f"({kept.idle.cause}: {kept.idle.reason})" in said


def test_a_part_of_the_bar_opens_its_jobs(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each job of the plan with GPUs in it; together they are what the bar says."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    with open_store(url) as store:
        plan = store.reader.latest_plan()
        assert plan is not None
        register_world(store, Settings())
        for segment in (Segment.NOW, Segment.NEEDED):
            app = page_at("findings", idle=segment).run()
            assert not app.exception
            (listed,) = [part.value for part in app.dataframe if "peaks" in part.value.columns]
            mine = [row for row in idle_rows(plan) if row.part(segment) >= 0.005]
            assert len(listed) == len(mine) > 0
            bar = "".join(str(part.body) for part in app.get("html"))
            total = sum(row.part(segment) for row in mine)
            assert f'aria-label="{total:.1f} GPUs {segment.words}"' in bar


@pytest.mark.parametrize(
    ("idle", "why"),
    [
        (None, ""),
        (
            IdleGpus(held=2.0, work=0.17, peaks=1.83),
            "its peaks need 2 of 2 GPUs, 0.17 in the mean",
        ),
        (IdleGpus(held=1.0, cause=IdleCause.UNKNOWN), "demand not known"),
        (IdleGpus(held=1.0, cause=IdleCause.COSTLY, reason="x"), "a smaller size does not pay: x"),
    ],
)
def test_why_a_job_is_kept(idle: IdleGpus | None, why: str) -> None:
    """The cause with its reason; busy GPUs are a reason too; no plan gives none."""
    assert keep_reason(idle) == why


def test_before_the_first_cycle_there_is_nothing(
    tmp_path_factory: pytest.TempPathFactory, capsys: pytest.CaptureFixture[str]
) -> None:
    """And the command says what to do."""
    url = f"duckdb:///{tmp_path_factory.mktemp('none')}/t.duckdb"
    open_store(url).close()
    assert main(["--store", url, "findings", "idle"]) == 0
    assert "No plan yet: run `trimtab cycle`." in capsys.readouterr().err


@pytest.mark.parametrize(
    ("profiles", "words"),
    [
        ((), ""),
        (("3g.40gb",), "share of its board's memory (a 3g.40gb: 0.50 of a board)"),
        (("1g.10gb", "3g.40gb", "1g.10gb"), "(a 1g.10gb: 0.12, a 3g.40gb: 0.50 of a board)"),
        (("7g.unknown",), "share of its board's memory."),
    ],
)
def test_it_is_said_how_a_slice_counts(
    store_url: str, capsys: pytest.CaptureFixture[str], profiles: tuple[str, ...], words: str
) -> None:
    """By memory, as the plan counts boards: of a 3g.40gb compute would be three sevenths."""
    jobs = [
        JobPlan(job_id=f"a/{number}", now=now, steps=(now,), idle=IdleGpus(held=0.5, work=0.1))
        for number, profile in enumerate(profiles)
        for now in (Configuration(gpu_model=H100, gpu_count=1, mig_profile=profile),)
    ]
    whole = Configuration(gpu_model=H100, gpu_count=1)
    jobs.append(JobPlan(job_id="a/w", now=whole, steps=(whole,), idle=IdleGpus(held=1.0, work=0.1)))
    plan = make_plan(jobs=tuple(jobs))
    with open_store(store_url) as store:
        store.keep_cycle(
            cycle_id="c1", started_at=NOW, finished_at=NOW, forecasts=(), plan=plan,
            recommendations=(),
        )  # fmt: skip
    assert main(["--store", store_url, "findings", "idle"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert ("A MIG instance counts as its " in said) is bool(profiles)
    assert words in said
