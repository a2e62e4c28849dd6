"""What is proposed finds room node by node, as schedulers count, in the order that it names.

The oracle follows each proposal after those that it says come first, and all of them in named
order, on nodes of four boards: a part of a Slurm job on each of its nodes, whole pods on any.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from fleet_cases import KUBERNETES, SLURM, gpu, node_of, pods_job, slurm_job
from planning_cases import A100, AS_OF, FREE_NODES, H100, case

from data.facts.jobs import Job, JobState, Platform, SchedulerFacts
from data.records.actions import Action
from data.records.plans import NodePlan
from data.records.recommendations import Recommendation, in_named_order
from data.settings.all_settings import PlanningSettings
from planner.advise import advise
from planner.plan import build_plan

SIZE = 4
NODES = {"h1": H100, "h2": H100, "a1": A100, "a2": A100}
Held = dict[str, Counter[str]]
"""Boards of each job by node."""


def batch(number: int, model: str, nodes: int, each: int) -> Job:
    """A Slurm job of so many nodes that may be requeued and may change its GPU type."""
    kind = "h100" if model == H100 else "a100"
    facts = {
        "requeue": "yes", "batch": "yes", "gres_per": "node", "gres": f"gpu:{kind}:{each}",
        "nodes_requested": str(nodes), "requested_gpu_type": kind, "requested_gpus": str(each),
        "slurm_release": "24.11", "cpus": str(nodes), "checkpoints": "its --comment",
    }  # fmt: skip
    return slurm_job(
        number, gpu_count=nodes * each, gpu_model=model, first_seen_at=AS_OF - timedelta(days=3),
        scheduler=SchedulerFacts(state=JobState.RUNNING, extra=tuple(facts.items())),
    )  # fmt: skip


def served(number: int, model: str, pods: int, each: int) -> Job:
    """A Deployment of so many pods, which may change its GPU type."""
    return pods_job(
        f"w{number}", gpu_count=pods * each, gpu_model=model,
        first_seen_at=AS_OF - timedelta(days=3),
        extra={"gpus_per_pod": str(each), "pods": str(pods), "gpu_containers": "1", "cpus": "1"},
    )  # fmt: skip


def proposals(
    jobs: Iterable[tuple[Job, float]],
    held: Held,
    source: str,
    slot_minutes: int,
    off: tuple[str, ...] = (),
    off_from: int = 0,
) -> list[Recommendation]:
    """What is recommended for jobs, with their levels, that hold these boards.

    The plan has the nodes `off` off from a slot on, if any, and all others on.
    """
    found, levels = [], list(jobs)
    for name, model in NODES.items():
        holders = [job for job, at in held.items() for _ in range(at[name])]
        holders += [""] * (SIZE - len(holders))
        found += [gpu(name, index, model, job) for index, job in enumerate(holders)]
    problem = case(
        *((job, level, 9_000.0, 300.0 * job.gpu_count) for job, level in levels),
        gpus=found,
        nodes=[
            node_of(
                name, model, gpus=SIZE, source=source, cpus=64, free_cpus=40.0,
                memory_mib=900_000, free_memory_mib=800_000.0,
                partitions=("gpu",) * (source == SLURM),
            )
            for name, model in NODES.items()
        ],
        planning=PlanningSettings(
            slot_minutes=slot_minutes, horizon_slots=24 * 60 // slot_minutes, power_cap_ratios=""
        ),
        rules=FREE_NODES,
    )  # fmt: skip
    plan = build_plan(problem, budget_seconds=10, created_at=AS_OF)
    if off:
        slots = len(plan.slot_starts)
        nodes = [
            NodePlan(
                node=name,
                gpu_model=model,
                gpus=SIZE,
                on=tuple(name not in off or slot < off_from for slot in range(slots)),
            )
            for name, model in NODES.items()
        ]
        plan = replace(plan, nodes=tuple(nodes))
    return [
        row
        for row in advise(plan, problem).recommendations
        if row.action.spec.resizes or row.action in (Action.RECLAIM, Action.CONSOLIDATE)
    ]


class Cluster:
    """The boards that are held, and what a change does to them."""

    def __init__(self, jobs: Iterable[Job], held: Held) -> None:
        """Hold the boards of now."""
        self.jobs = {job.job_id: job for job in jobs}
        self.held = {job: Counter(at) for job, at in held.items()}
        self.closed, self.started = set[str](), set[str]()

    def follow(self, row: Recommendation) -> str:
        """Make a change; return why it finds no room, '' when it does."""
        if row.action is Action.CONSOLIDATE:
            self.closed.add(row.target)
            return f"jobs have started on {row.target}" * (row.target in self.started)
        job, before = self.jobs[row.job_id], self.held[row.job_id]
        then = row.proposed
        batch_job = job.platform is Platform.SLURM
        parts = int(dict(job.scheduling.extra)["nodes_requested" if batch_job else "pods"])
        each = job.gpu_count // parts
        # Another number of pods or nodes, where that gives the count, else other parts.
        same = then.gpu_model == job.gpu_model and not then.gpu_count % each
        if same and (not batch_job or then.gpu_count < job.gpu_count):
            parts = then.gpu_count // each
        each = then.gpu_count // parts if parts else 0
        if same and batch_job and parts:  # in place: Slurm takes the last nodes
            self.held[row.job_id] = Counter(dict.fromkeys(sorted(before)[:parts], each))
            return ""
        after = Counter[str]()
        self.held[row.job_id] = after
        # Pods stay where they are as far as they can; Slurm takes the first nodes that fit.
        names = sorted(NODES, key=lambda name: 0 if batch_job else -before[name])
        for _ in range(parts if each else 0):
            at = next(
                (
                    name
                    for name in names
                    if NODES[name] == then.gpu_model and self.free(name) >= each
                    and not (batch_job and after[name])
                ),
                "",
            )  # fmt: skip
            if not at:
                self.held[row.job_id] = before
                return (
                    f"{row.job_id} {row.now.describe()} -> {row.summary}: {self.held} {self.closed}"
                )
            after[at] += each
            self.started |= {at} - {*before}
        return ""

    def free(self, name: str) -> int:
        """Boards of a node that nobody holds, 0 where nothing starts."""
        return 0 if name in self.closed else SIZE - sum(at[name] for at in self.held.values())


def unmade(rows: list[Recommendation], jobs: list[Job], held: Held) -> tuple[list[str], list[str]]:
    """What finds no room: alone after what it names, and as one of all in named order."""
    cluster, alone = Cluster(jobs, held), list[str]()
    together = [cluster.follow(row) for row in in_named_order(rows)]
    for row in rows:
        own = Cluster(jobs, held)
        for other in in_named_order(rows):
            if other.name_in_order in row.applied_first:
                own.follow(other)
        alone.append(own.follow(row))
    return [why for why in alone if why], [why for why in together if why]


@pytest.mark.parametrize("held_there", [4, 3, 2])
@pytest.mark.parametrize("idle_there", [0, 1])
def test_a_job_of_two_nodes_needs_boards_on_two(held_there: int, idle_there: int) -> None:
    """One node has four boards free; the other as many as the job beside it leaves or gives up."""
    wide, other = batch(1, H100, 2, 2), batch(2, A100, 1, held_there)
    held = {
        wide.job_id: Counter(h1=2, h2=2),
        other.job_id: Counter(a1=held_there),
    }
    level = 0.0 if idle_there else 0.95
    rows = proposals([(wide, 0.1), (other, level)], held, SLURM, 60)
    moved = [row for row in rows if row.job_id == wide.job_id and row.proposed.gpu_model == A100]
    assert unmade(rows, [wide, other], held) == ([], [])
    room = held_there < SIZE or idle_there
    assert bool(moved) == bool(room)
    if moved:
        named = f"{other.job_id} (reclaim)" in moved[0].applied_first
        assert named or held_there < SIZE


@pytest.mark.parametrize("slot_minutes", [15, 60])
def test_a_job_that_starts_again_elsewhere_is_to_find_a_node_closed(slot_minutes: int) -> None:
    """A job on the other node of its model may start on the one that is to be empty."""
    moves, shrinks = batch(1, H100, 1, 1), batch(2, H100, 1, 4)
    held = {moves.job_id: Counter(h1=1), shrinks.job_id: Counter(h2=4)}
    rows = proposals([(moves, 0.1), (shrinks, 0.3)], held, SLURM, slot_minutes, off=("h1",))
    changes = {row.target: row for row in rows}
    assert changes[shrinks.job_id].action is Action.FEWER_GPUS
    assert changes["h1"].action is Action.CONSOLIDATE
    assert changes[shrinks.job_id].applied_first == ["h1 (consolidate)"]
    assert unmade(rows, [moves, shrinks], held) == ([], [])


@pytest.mark.parametrize(("level", "closes"), [(0.1, False), (0.95, True)])
def test_a_node_closes_later_once_its_jobs_have_started_again(level: float, closes: bool) -> None:
    """The job finds it open and may start there: the next cycle says what is there then."""
    here, there, full = batch(1, H100, 1, 2), batch(2, H100, 1, 2), batch(3, A100, 2, 4)
    held = {
        here.job_id: Counter(h1=2), there.job_id: Counter(h2=2), full.job_id: Counter(a1=4, a2=4)
    }  # fmt: skip
    jobs = [(here, level), (there, 0.95), (full, 0.95)]
    rows = proposals(jobs, held, SLURM, 60, off=("h1",), off_from=2)
    assert [row.action for row in rows if row.target == here.job_id] == (
        [] if closes else [Action.FEWER_GPUS]
    )
    assert [row.target for row in rows if row.action is Action.CONSOLIDATE] == ["h1"] * closes


@pytest.mark.parametrize(
    ("source", "slot_minutes", "seeds"),
    [(SLURM, 60, 25), (SLURM, 30, 10), (SLURM, 15, 10), (KUBERNETES, 60, 25), (KUBERNETES, 30, 10)],
)
def test_what_is_proposed_for_a_full_fleet_finds_room(
    source: str, slot_minutes: int, seeds: int
) -> None:
    """Drawn jobs on one and two nodes, some of them idle, with few boards free."""
    alone, together, count = list[str](), list[str](), 0
    for seed in range(seeds):
        draw = np.random.default_rng([seed, slot_minutes])
        jobs, held = list[tuple[Job, float]](), Held()
        for number in range(8):
            model = str(draw.choice([H100, A100]))
            wide, each = int(draw.choice([1, 1, 2])), int(draw.choice([1, 2, 2, 3, 4]))
            free = {
                name: SIZE - sum(at[name] for at in held.values())
                for name in NODES if NODES[name] == model
            }  # fmt: skip
            homes = [name for name, left in free.items() if left >= each][:wide]
            if len(homes) == wide:
                job = (batch if source == SLURM else served)(number, model, wide, each)
                jobs.append((job, float(draw.choice([0.0, 0.05, 0.1, 0.3, 0.9]))))
                held[job.job_id] = Counter(dict.fromkeys(homes, each))
        rows = proposals(jobs, held, source, slot_minutes)
        count += len(rows)
        for total, more in zip(
            (alone, together), unmade(rows, [job for job, _ in jobs], held), strict=True
        ):
            total += [f"seed {seed}: {why}" for why in more]
    assert count >= seeds
    assert not alone, "\n".join(alone)
    # On which of several nodes a job starts is the scheduler's to say.
    assert len(together) <= 0.03 * count, "\n".join(together)
