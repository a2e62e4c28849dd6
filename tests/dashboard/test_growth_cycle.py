"""A cycle grows elastic training by what the store knows, and finds the way back."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
from beds.apply_bench import JOB, applied_bench
from factories import NOW, make_collected, make_job, make_recommendation, make_samples
from growth_cases import JOB_ID, elastic
from planning_cases import H100

from dashboard.cycle.context import World
from dashboard.cycle.outlooks import growth_facts
from dashboard.cycle.run_cycle import run_cycle
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.fleet import Node
from data.facts.jobs import Job, JobState, SchedulerFacts
from data.records.actions import Action
from data.records.lifecycle import State
from data.records.plans import Configuration
from data.records.recommendations import Recommendation
from data.settings.all_settings import PlanningSettings, Settings
from data.store import Store, open_store
from data.store.facts.planning_view import PlanningView

PLANNING = PlanningSettings(
    slot_minutes=60, horizon_slots=6, budget_seconds=2,
    grow_elastic_training="assumed",
)  # fmt: skip
HOURS = 30


def samples(free: int) -> pd.DataFrame:
    """Thirty hours of a job on four boards, and of so many free ones, every ten minutes."""
    times = pd.date_range(end=NOW, periods=6 * HOURS, freq="10min").as_unit("us")
    rows = []
    for index in range(4 + free):
        row = make_samples(gpus=1, minutes=6 * HOURS, job_id=JOB_ID if index < 4 else "")
        rows.append(row.assign(
            gpu_uuid=f"GPU-{index}", sampled_at=times.tz_convert("UTC"),
            utilization_ratio=0.9 if index < 4 else 0.0,
                memory_used_mib=40_000.0 if index < 4 else 0.0,
                power_watts=600.0 if index < 4 else 70.0,
        ))  # fmt: skip
    return pd.concat(rows, ignore_index=True)


def filled(store: Store, *others: Job, free: int = 4) -> World:
    """A store with the job, half done by its own reports, on one node."""
    start = NOW - timedelta(hours=24)
    job = elastic()
    assert job.scheduler is not None
    job = replace(job, scheduler=replace(job.scheduler, started_at=start, nodes=("node-1",)))
    times = pd.date_range(start=start, end=NOW, freq="30min").as_unit("us")
    ratios = np.linspace(0.0, 0.5, len(times))
    reported = pd.DataFrame({"label_id": JOB_ID, "reported_at": times, "done_ratio": ratios})
    node = Node(name="node-1", gpu_model=H100, gpu_count=4 + free, seen_at=NOW, source="test")
    store.keep(make_collected(samples(free), jobs=(job, *others), progress=reported, nodes=(node,)))
    return World(
        settings=replace(Settings(), planning=PLANNING), store=store, collectors=(),
        catalogue=load_gpu_catalogue(), carbon=load_carbon_table().get("DEU"),
    )  # fmt: skip


def rows_of(found: Sequence[Recommendation]) -> list[tuple[Action, int]]:
    """What is proposed for the job."""
    return [(row.action, row.proposed.gpu_count) for row in found if row.job_id == JOB_ID]


def test_a_cycle_grows_a_job_into_the_free_boards_of_its_node(store: Store) -> None:
    """Kept in the store with its interval; with the setting off the same cycle has none."""
    world = filled(store)
    outcome = run_cycle(world, now=NOW)
    assert rows_of(outcome.recommendations) == [(Action.GROW, 8)], outcome.kept
    kept = store.reader.recommendations(now=NOW)
    assert [row.recommendation.action for row in kept if row.recommendation.delay_hours]
    off = replace(world.settings, planning=replace(PLANNING, grow_elastic_training="off"))
    later = run_cycle(replace(world, settings=off), now=NOW + timedelta(minutes=1))
    assert rows_of(later.recommendations) == []


def test_a_job_that_waits_has_the_boards(store: Store) -> None:
    """Whoever never ran has no readings, and still comes first."""
    facts = SchedulerFacts(state=JobState.PENDING, submitted_at=NOW - timedelta(hours=1))
    waiting = make_job("ml/job/next", gpu_count=2, scheduler=facts)
    outcome = run_cycle(filled(store, waiting), now=NOW)
    assert rows_of(outcome.recommendations) == []
    assert "ml/job/next waits for 2 GPUs" in outcome.kept[JOB_ID]


@pytest.mark.parametrize(
    ("action", "state", "size", "had"),
    [
        (Action.GROW, State.APPLIED, 8, True),
        (Action.GROW, State.VERIFIED, 8, True),
        (Action.GROW, State.KEPT, 8, True),
        (Action.GROW, State.ROLLED_BACK, 8, False),
        (Action.GROW, State.APPLIED, 4, False),
        (Action.SCALE_OUT, State.APPLIED, 8, False),
    ],
)
def test_what_a_grown_job_had_is_what_its_applied_growth_says(
    action: Action, state: State, size: int, had: bool
) -> None:
    """While it is as large as it was grown; nothing is known of one that was resized since."""
    before, after = (Configuration(gpu_model=H100, gpu_count=count) for count in (4, 8))
    growth = make_recommendation(job_id=JOB_ID, action=action, now=before, proposed=after)
    reader: Any = SimpleNamespace(
        states=lambda: {growth.digest: state},
        recommendations_of=lambda digests, now: {
            digest: SimpleNamespace(recommendation=growth) for digest in digests
        },
    )
    empty = pd.DataFrame()
    view = PlanningView(
        as_of=NOW, cluster=None, jobs=(elastic(count=size),), known_jobs=(), history=empty,  # type: ignore[arg-type]
        groups=empty, readings=empty, signals={},
    )  # fmt: skip
    facts = growth_facts(reader, view, PLANNING, NOW)
    assert facts is not None
    assert dict(facts.had) == ({JOB_ID: before} if had else {})
    assert growth_facts(reader, view, PlanningSettings(), NOW) is None


def test_the_way_back_is_found_after_a_growth_was_applied(tmp_path: Path) -> None:
    """By the states of a real store, while the job is as large as it was grown."""
    growth = make_recommendation(action=Action.GROW)
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        bench = applied_bench(store, tmp_path, growth)
        view = store.reader.planning_view(NOW, slot_seconds=3600, history_days=2)
        for size, had in ((growth.proposed.gpu_count, {JOB: growth.now}), (4, {})):
            seen = replace(view, jobs=(make_job(JOB, gpu_count=size),))
            facts = growth_facts(store.reader, seen, PLANNING, NOW)
            assert facts is not None
            assert dict(facts.had) == had
        bench.roll_back()
        bench.work(visits=3)
        assert bench.state == "rolled-back"
        seen = replace(view, jobs=(make_job(JOB, gpu_count=growth.proposed.gpu_count),))
        facts = growth_facts(store.reader, seen, PLANNING, NOW)
        assert facts is not None
        assert dict(facts.had) == {}
