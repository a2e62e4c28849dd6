"""A cycle says why jobs are slow: of simulated jobs their known cause, and their page shows it."""

import sys
from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import unquote

import pytest
from beds.page_world import page_at, register_world
from factories import NOW, make_collected, make_job, make_plan, make_samples
from streamlit.testing.v1 import AppTest

from benchmarks._slow_jobs import cause_of, slow_shape
from benchmarks.slow_work import JUDGING, simulated
from collectors.simulated.fleet import SimulatedFleet, SimulatedFleetCollector
from dashboard.cycle.context import World
from dashboard.cycle.cycle_thread import CycleState
from dashboard.cycle.run_cycle import run_cycle
from dashboard.decisions.findings import findings_now
from dashboard.decisions.service import DecisionService
from dashboard.web.access.context import WebWorld
from dashboard.web.access.identity import register
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.actions import Action
from data.records.recommendations import Range
from data.records.slow_work import SlowCause, SlowWork
from data.settings.all_settings import PlanningSettings, Settings
from data.settings.load import LoadedSettings
from data.store import Store, open_store

AT = datetime(2026, 1, 7, 12, tzinfo=UTC)
FOUND = SlowWork(
    job_id="a", cause=SlowCause.STARVED, boards=2, known_slots=70, votes=66, firm_votes=60,
    confidence="medium", doubt="CPU work looks the same", signals=(("engine", 0.4),),
    lost_ratio=Range(low=0.1, central=0.2, high=0.3, unit="share"), remedy="more loaders",
)  # fmt: skip
UNKNOWN = replace(
    FOUND, cause=SlowCause.UNKNOWN, confidence="", doubt="no source tells SM activity"
)


@pytest.mark.parametrize("slow_jobs", [True, False])
def test_a_cycle_finds_slow_jobs_of_known_cause(tmp_path: Path, slow_jobs: bool) -> None:
    """By their cause, with what it costs and what to try; a fleet that keeps busy has none."""
    fleet = SimulatedFleet(seed=JUDGING[0], nodes=6)
    fleet = replace(fleet, shape_of=slow_shape) if slow_jobs else fleet
    planning = PlanningSettings(slot_minutes=60, horizon_slots=6, budget_seconds=2)
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        world = World(
            settings=replace(Settings(), planning=planning), store=store,
            collectors=(SimulatedFleetCollector(fleet=fleet, step_seconds=120),),
            catalogue=load_gpu_catalogue(), carbon=load_carbon_table().get("DEU"),
        )  # fmt: skip
        outcome = run_cycle(world, now=AT)
        said = {entry.job_id: entry for entry in store.reader.slow_work()}
        rows = [row for row in outcome.recommendations if row.action is Action.SPEED_UP]
        shown = [row for row in findings_now(store.reader, now=AT)
                 if row.finding.action == Action.SPEED_UP]  # fmt: skip
    assert len(said) > 5
    assert len(shown) == len(rows)
    assert bool(rows) == slow_jobs
    tenants = {
        tenant.job_id(run): tenant
        for tenant in fleet.tenants
        for run, _begins, _ends in fleet.runs(tenant, int(AT.timestamp()) - 1, int(AT.timestamp()))
    }
    for row in rows:
        cause = cause_of(tenants[row.job_id])
        assert said[row.job_id].cause is cause
        assert row.change.endswith(f"({cause})")
        assert "To try: " in row.why
        # Activity of boards alone does not say that input is the cause: no money then.
        unmeasured = cause is SlowCause.STARVED or said[row.job_id].lost_ratio is None
        assert (row.savings.cost is None) == unmeasured


def test_findings_name_the_cause_of_simulated_jobs(tmp_path: Path) -> None:
    """Nearly always, on fleets that the thresholds were not set with; never of a busy job."""
    counts = simulated(JUDGING[:1], tmp_path)
    told = {key: count for key, count in counts.items()
            if key[1].is_slow and key[2] in ("medium", "strong")}  # fmt: skip
    right = sum(count for (true, said, _), count in told.items() if true is said)
    assert sum(told.values()) >= 5
    assert right >= 0.9 * sum(told.values())
    assert not any(true is SlowCause.BUSY for true, _said, _confidence in told)


@pytest.mark.parametrize(
    ("found", "said"),
    [
        ((), "no source tells what keeps its GPUs at work"),
        ((FOUND,), "Starved of input (medium: 66 of 70 slots"),
        ((FOUND,), "It takes 20 % (10–30 %) of the time of its GPUs."),
        ((FOUND,), "To try: more loaders"),
        ((replace(FOUND, lost_ratio=None),), "What it costs is unknown"),
        ((UNKNOWN,), "Unknown: no source tells SM activity"),
        ((replace(FOUND, cause=SlowCause.BUSY, lost_ratio=None),), "Not slow: busy"),
    ],
)
def test_the_page_of_a_job_says_why_it_is_slow(
    store: Store, found: tuple[SlowWork, ...], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With its doubt; what is unknown is said to be."""
    store.keep_cycle(
        cycle_id="c1", started_at=NOW, finished_at=NOW, forecasts=(),
        slow_work=found, plan=make_plan(), recommendations=(),
    )  # fmt: skip
    # Streamlit puts the page in the place of `__main__`.
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    register(
        WebWorld(
            store=store,
            settings=LoadedSettings(settings=Settings(), origins={}),
            decision_service=DecisionService(store=store, settings=Settings),
            cycle_state=CycleState,
            worker_problem=lambda: "",
            run_lifespan=nullcontext,
            clock=lambda: NOW,
        )
    )
    app = AppTest.from_string(
        "from dashboard.web.jobs.job_sections import slow_work_line\nslow_work_line('a')"
    ).run()
    assert not app.exception
    shown = [*app.markdown, *app.warning, *app.info, *app.caption]
    text = "\n".join(element.value for element in shown).replace("\\", "")
    assert said in text


def test_slow_jobs_are_listed_by_what_they_lose(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that loses the largest share first, one of unknown loss last, no busy one."""
    lost = {"a/tenth": 0.1, "a/half": 0.5, "b/third": 0.3, "a/unknown": None, "a/busy": None}
    jobs = tuple(make_job(job) for job in lost)
    store.keep(make_collected(make_samples(minutes=60), jobs))
    store.keep_cycle(
        cycle_id="c1", started_at=NOW, finished_at=NOW, forecasts=(),
        slow_work=tuple(
            replace(
                FOUND,
                job_id=job,
                cause=SlowCause.BUSY if job == "a/busy" else SlowCause.THROTTLED,
                lost_ratio=share and Range(low=0.0, central=share, high=share, unit="share"),
            )
            for job, share in lost.items()
        ),
        plan=make_plan(), recommendations=(),
    )  # fmt: skip
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    register_world(store, Settings(), clock=lambda: NOW)
    expected = {
        "": ["a/half", "b/third", "a/tenth", "a/unknown"],
        "a": ["a/half", "a/tenth", "a/unknown"],
    }
    for namespace, names in expected.items():
        app = page_at("jobs", show="slow", **({"namespace": namespace} if namespace else {})).run()
        assert not app.exception
        headings = [entry.value for entry in (*app.title, *app.header, *app.markdown)]
        assert any(
            f"{len(names)} of {len(names) + 1} running jobs are slow" in text for text in headings
        )
        (rows,) = [entry.value for entry in app.dataframe]
        assert [unquote(job.rpartition("=")[2]) for job in rows["job"]] == names
        assert rows["limited by"].iloc[0] == "throttled, 50 % of its time"
