"""Which jobs get no recommendation because the scheduler that was just asked does not run them."""

from dataclasses import replace
from datetime import timedelta

from factories import NOW, make_collected, make_job, make_samples
from hypothesis import given, settings
from hypothesis import strategies as st

from dashboard.accounting.savings.idle_bridge import idle_sum
from dashboard.cycle.context import World
from dashboard.cycle.cooldowns import ended_jobs
from dashboard.cycle.run_cycle import run_cycle
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.facts.columns import SAMPLES, empty_frame
from data.facts.fleet import Node, SourceReport, SourceState
from data.facts.jobs import ENDED_STATES, JobState, SchedulerFacts
from data.settings.all_settings import PlanningSettings, Settings
from data.store import Store

SOURCES = ("slurm a", "kubernetes b", "prometheus")


def report_of(source: str, state: SourceState) -> SourceReport:
    """How asking the source went."""
    return replace(make_collected().report, source=source, state=state)


@settings(deadline=None)
@given(
    known=st.lists(
        st.tuples(
            st.sampled_from(SOURCES),
            st.booleans(),
            st.none() | st.sampled_from(JobState),
        ),
        max_size=12,
    ),
    states=st.fixed_dictionaries({name: st.sampled_from(SourceState) for name in SOURCES}),
)
def test_only_a_scheduler_that_answered_ends_a_job(
    known: list[tuple[str, bool, JobState | None]], states: dict[str, SourceState]
) -> None:
    """Known before, with or without a scheduler; told of now as in some state, or not at all."""
    jobs, told, over = [], {name: [] for name in SOURCES}, set()
    for number, (source, scheduled, now) in enumerate(known):
        facts = SchedulerFacts(state=JobState.RUNNING) if scheduled else None
        job = make_job(f"ns/deployment/d{number}", source=source, scheduler=facts)
        jobs.append(job)
        if now is not None:
            told[source].append(replace(job, scheduler=SchedulerFacts(state=now)))
        answered = states[source] is SourceState.RAN
        if scheduled and answered and (now is None or now in ENDED_STATES):
            over.add(job.job_id)
    collected = [
        make_collected(
            empty_frame(SAMPLES),
            tuple(told[name]),
            report=report_of(name, states[name]),
            batch_id=name,
        )
        for name in SOURCES
    ]
    assert set(ended_jobs(jobs, collected)) == over


class Scheduler:
    """A scheduler that answers and knows these jobs, or one that does not answer."""

    name = "kubernetes b"

    def __init__(self, *jobs: str, state: SourceState = SourceState.RAN) -> None:
        self.jobs, self.state = jobs, state

    def collect(self, _window: object) -> Collected:
        """Name the jobs."""
        found = tuple(scheduled(job) for job in self.jobs)
        report = report_of(self.name, self.state)
        return Collected(batch_id=f"{self.jobs}{self.state}", jobs=found, report=report)


def scheduled(job_id: str):  # type: ignore[no-untyped-def]
    """A running Deployment as its scheduler tells it."""
    facts = SchedulerFacts(
        state=JobState.RUNNING,
        workload="deployment/d",
        extra=(("pods", "2"), ("gpus_per_pod", "1"), ("gpu_containers", "1")),
    )
    return make_job(job_id, source="kubernetes b", scheduler=facts, gpu_count=2)


def test_a_deleted_deployment_is_not_recommended(store: Store) -> None:
    """Two idle Deployments and a job that only labels name: the deleted one is kept out."""
    ids = ("a/deployment/x", "a/deployment/y", "a/labels-only")
    for number, job_id in enumerate(ids):
        frame = make_samples(gpus=2, minutes=3 * 1440, job_id=job_id, utilization_ratio=0.02)
        frame["gpu_uuid"] = f"{number}-" + frame["gpu_uuid"]
        frame["node"] = f"node-{number}"
        by_labels = make_job(job_id, gpu_count=2, source="prometheus")
        job = scheduled(job_id) if "deployment" in job_id else by_labels
        store.keep(make_collected(frame, (job,), batch_id=job_id))
    chosen = replace(Settings(), planning=PlanningSettings(horizon_slots=12, budget_seconds=0.1))
    world = World(
        settings=chosen,
        store=store,
        collectors=(Scheduler(ids[1]),),
        catalogue=load_gpu_catalogue(),
        carbon=load_carbon_table().get("DEU"),
    )
    first = run_cycle(replace(world, collectors=(Scheduler(state=SourceState.FAILED),)), now=NOW)
    assert {recommendation.job_id for recommendation in first.recommendations} == set(ids)
    second = run_cycle(world, now=NOW + timedelta(minutes=1))
    assert {recommendation.job_id for recommendation in second.recommendations} == set(ids[1:])
    assert second.kept[ids[0]] == "its scheduler (kubernetes b) names no GPU of it any more"
    assert {entry.job_id for entry in second.plan.jobs} == set(ids)
    later = NOW + timedelta(minutes=40)
    for number, job_id in enumerate(ids[1:], start=1):
        frame = make_samples(gpus=2, minutes=40, job_id=job_id, utilization_ratio=0.02, end=later)
        frame["gpu_uuid"] = f"{number}-" + frame["gpu_uuid"]
        frame["node"] = f"node-{number}"
        store.keep(make_collected(frame, (), batch_id=f"later {job_id}"))
    third = run_cycle(world, now=later)
    assert {entry.job_id for entry in third.plan.jobs} == set(ids[1:])


def test_a_deleted_deployment_holds_nothing_once_its_boards_say_so(store: Store) -> None:
    """Its boards are read as free, or as those of another job: no later slot is waited for."""
    ids = ("a/deployment/x", "a/deployment/y", "a/deployment/z")
    quiet = replace(
        make_job("a/deployment/quiet", source="kubernetes b", gpu_count=8),
        scheduler=SchedulerFacts(state=JobState.RUNNING, nodes=("node-9",)),
    )
    now = NOW + timedelta(minutes=3)
    nodes = (
        Node(
            name="node-9", gpu_model=quiet.gpu_model, gpu_count=8, seen_at=now, source=quiet.source
        ),
    )
    for number, job_id in enumerate(ids):
        frame = make_samples(gpus=2, minutes=3 * 1440, job_id=job_id, utilization_ratio=0.02)
        frame["gpu_uuid"] = f"{number}-" + frame["gpu_uuid"]
        frame["node"] = f"node-{number}"
        after = make_samples(
            gpus=2, minutes=3, end=now, job_id=("", ids[1], ids[2])[number],
            utilization_ratio=0.0, memory_used_mib=0.0, power_watts=60.0,
        )  # fmt: skip
        after["gpu_uuid"] = f"{number}-" + after["gpu_uuid"]
        after["node"] = f"node-{number}"
        store.keep(make_collected(frame, (scheduled(job_id),), batch_id=job_id))
        store.keep(make_collected(after, (), batch_id=f"{job_id} after"))
    store.keep(
        replace(
            make_collected(empty_frame(SAMPLES), (replace(quiet, last_seen_at=now),), batch_id="q"),
            nodes=nodes,
        )
    )
    world = World(
        settings=replace(
            Settings(), planning=PlanningSettings(horizon_slots=12, budget_seconds=0.1)
        ),
        store=store,
        collectors=(Scheduler(ids[1]),),
        catalogue=load_gpu_catalogue(),
        carbon=load_carbon_table().get("DEU"),
    )
    plan = run_cycle(world, now=now).plan
    assert {job.job_id for job in plan.jobs} == set(ids[1:])
    assert (plan.unread_jobs, plan.unread_gpus) == (1, 8)
    found = idle_sum(plan)
    assert found.held + found.unknown == 2 * 2 + 8
    assert "Beside them" in found.sentence()
