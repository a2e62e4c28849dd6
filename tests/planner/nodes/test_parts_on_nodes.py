"""A plan has Slurm jobs on nodes as slurmctld starts them: equal parts, each on its own node.

The oracle counts boards node by node, in every slot of the plan. What a job is now it may stay,
wherever that is; a running job that only gives up nodes keeps some of its own.
"""

import random
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import timedelta

import pytest
from drawn import examples
from fleet_cases import SLURM, gpu, node_of, plan_of, slurm_job
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_cases import A100, AS_OF, FREE_NODES, H100, case

from data.facts.jobs import Job, JobState, SchedulerFacts
from data.records.plans import JobPlan, Plan
from data.settings.all_settings import PlanningSettings
from data.settings.fleet import NodeSettings
from planner.problem.planning_problem import FleetRules, PlanningProblem

MODELS = {"h100": H100, "a100": A100}
LEVELS = (0.0, 0.05, 0.1, 0.3, 0.6, 0.95)
PARTITIONS = (("gpu",), ("gpu", "long"), ("gpu", "hot"), ("hot",))


@dataclass
class Site:
    """The nodes with their boards, type and partitions, and the boards that each job holds."""

    nodes: dict[str, tuple[int, str, tuple[str, ...]]] = field(default_factory=dict)
    jobs: dict[str, tuple[Job, float]] = field(default_factory=dict)
    held: dict[str, Counter[str]] = field(default_factory=dict)

    def free(self, name: str) -> int:
        """Boards that nobody holds."""
        return self.nodes[name][0] - sum(at[name] for at in self.held.values())

    def submit(self, kind: str, partition: str, parts: int, each: int, level: float) -> None:
        """Start a job with `each` GPUs on the first so many nodes that have room, if there are."""
        number = len(self.jobs) + 1
        facts = {
            "requeue": "yes", "batch": "yes", "gres_per": "node", "gres": f"gpu:{kind}:{each}",
            "nodes_requested": str(parts), "requested_gpu_type": kind,
            "requested_gpus": str(each), "slurm_release": "24.11", "checkpoints": "its --comment",
        }  # fmt: skip
        job = slurm_job(
            number, gpu_count=parts * each, gpu_model=MODELS[kind], namespace=partition,
            first_seen_at=AS_OF - timedelta(days=3),
            scheduler=SchedulerFacts(state=JobState.RUNNING, extra=tuple(facts.items())),
        )  # fmt: skip
        homes = [
            name
            for name, (_size, its, partitions) in self.nodes.items()
            if its == kind and partition in partitions and self.free(name) >= each
        ][:parts]
        if len(homes) == parts:
            self.jobs[job.job_id] = job, level
            self.held[job.job_id] = Counter(dict.fromkeys(homes, each))

    def problem(self, slot_minutes: int, rules: FleetRules = FREE_NODES) -> PlanningProblem:
        """The problem of planning a day."""
        boards = []
        for name, (size, kind, _partitions) in self.nodes.items():
            holders = [job for job, at in self.held.items() for _ in range(at[name])]
            holders += [""] * (size - len(holders))
            boards += [gpu(name, index, MODELS[kind], job) for index, job in enumerate(holders)]
        return case(
            *((job, level, 9_000.0, 300.0 * job.gpu_count) for job, level in self.jobs.values()),
            gpus=boards,
            nodes=[
                node_of(name, MODELS[kind], gpus=size, source=SLURM, partitions=partitions)
                for name, (size, kind, partitions) in self.nodes.items()
            ],
            planning=PlanningSettings(
                slot_minutes=slot_minutes,
                horizon_slots=12 * 60 // slot_minutes,
                power_cap_ratios="",
            ),
            rules=rules,
        )

    def wrong(self, plan: Plan) -> Iterator[str]:
        """Yield what slurmctld would not start so."""
        yield from (f"{job.job_id}: {job.unplaced}" for job in plan.jobs if job.unplaced)
        for slot in range(len(plan.slot_starts)):
            used = Counter[str]()
            for job in plan.jobs:
                at = Counter[str]()
                for stay in job.stays:
                    if stay.start <= slot < stay.end:
                        at[stay.node] += stay.gpus
                used += at
                yield from self.wrong_in(job, slot, at)
            for name, count in used.items():
                if count > self.nodes[name][0]:
                    yield f"slot {slot}: {count} boards of {name}"

    def wrong_in(self, planned: JobPlan, slot: int, at: Counter[str]) -> Iterator[str]:
        """Yield what is wrong with a job in a slot, which is on these boards then."""
        (job, _level), has = self.jobs[planned.job_id], self.held[planned.job_id]
        then, parts = planned.steps[slot], int(dict(job.scheduling.extra)["nodes_requested"])
        if at == has and then == planned.now:
            return
        kind = next((name for name, model in MODELS.items() if then.gpu_model == model), "")
        each = job.gpu_count // parts
        fewer = then.gpu_model == job.gpu_model and 0 < then.gpu_count < job.gpu_count
        if fewer and not then.gpu_count % each:
            parts = then.gpu_count // each  # in place
        expected = [then.gpu_count // parts] * parts * (then.gpu_count > 0)
        if sorted(at.values()) != expected:
            yield f"slot {slot}: {planned.job_id} of {parts} nodes has {dict(at)} as {then}"
        for name in at:
            if self.nodes[name][1] != kind:
                yield f"slot {slot}: {planned.job_id} as {then} is on {name}"
            if job.namespace not in self.nodes[name][2]:
                yield f"slot {slot}: {planned.job_id} of {job.namespace} is on {name}"


def drawn_site(seed: int) -> Site:
    """Nodes of two, four or eight boards, some in several partitions, with jobs and holes."""
    source, site = random.Random(seed), Site()  # noqa: S311 a drawn fleet
    overlap = source.random() < 0.5
    for kind in MODELS:
        size = source.choice((2, 4, 4, 8))
        for number in range(source.randint(1, 4)):
            partitions = source.choice(PARTITIONS) if overlap else ("gpu",)
            site.nodes[f"{kind[0]}{number}"] = size, kind, partitions
    site.nodes["h0"] = size, "h100", ("gpu",)
    site.submit("h100", "gpu", 1, 1, source.choice(LEVELS))
    for _ in range(source.randint(2, 7)):
        site.submit(
            source.choice(tuple(MODELS)), source.choice(("gpu", "gpu", "hot", "long")),
            source.choice((1, 2, 2, 3, 4)), source.choice((1, 2, 2, 4, 8)),
            source.choice(LEVELS),
        )  # fmt: skip
    return site


@given(st.integers(0, 100_000), st.sampled_from((15, 30, 60)))
@settings(max_examples=examples(60), deadline=None)
def test_equal_parts_of_a_job_are_each_on_a_node_of_its_own(seed: int, slot_minutes: int) -> None:
    """Drawn fleets; the bound of each holds."""
    site = drawn_site(seed)
    watts = random.Random(seed + 1).choice((0.0, 125.0, 2000.0))  # noqa: S311 a drawn fleet
    rules = FleetRules(nodes=NodeSettings(base_watts_per_gpu=watts))
    plan = plan_of(site.problem(slot_minutes, rules))
    assert not [*site.wrong(plan)]
    assert plan.lower_bound <= plan.cost * (1 + 1e-9)
    assert all(bound.value <= bound.attained + 1e-6 for bound in plan.bounds)


@pytest.mark.parametrize("partitions", [("gpu",), ("gpu", "hot")])
@pytest.mark.parametrize(("free", "moves"), [(0, False), (1, True), (2, True)])
def test_a_job_of_two_nodes_moves_where_two_have_room(
    partitions: tuple[str, ...], free: int, *, moves: bool
) -> None:
    """Its partition is all of one pool, or joins two; the other node has four boards free."""
    site = Site()
    for name in ("h0", "h1", "a0", "a1"):
        kind = "h100" if name[0] == "h" else "a100"
        site.nodes[name] = 4, kind, partitions if name[1] == "1" else ("gpu",)
    site.submit("h100", "gpu", 2, 4, 0.1)
    site.submit("a100", "gpu", 1, 4 - free, 0.95)
    plan = plan_of(site.problem(60))
    assert not [*site.wrong(plan)]
    assert (plan.jobs[0].steps[-1].gpu_model == A100) is moves


def test_a_job_across_partitions_keeps_its_boards() -> None:
    """Its nodes are of two pools."""
    site = Site(nodes={"h0": (4, "h100", ("gpu",)), "h1": (4, "h100", ("gpu", "hot"))})
    site.submit("h100", "gpu", 2, 3, 0.95)
    plan = plan_of(site.problem(60))
    assert not [*site.wrong(plan)]
    assert not plan.violations


@pytest.mark.parametrize("model", [f"{A100},{H100}", H100])
def test_a_job_on_boards_of_two_models_keeps_them(model: str) -> None:
    """No other job is planned on them, whatever its model is called."""
    site = Site(nodes={"h0": (4, "h100", ("gpu",)), "a0": (4, "a100", ("gpu",))})
    site.submit("h100", "gpu", 1, 4, 0.95)
    job, level = site.jobs["slurm:1"]
    site.jobs["slurm:1"] = replace(job, gpu_model=model), level
    site.held["slurm:1"] = Counter(h0=2, a0=2)
    site.submit("h100", "gpu", 1, 2, 0.05)
    problem = site.problem(60)
    assert ("several models" in problem.jobs[0].keep_reason) is ("," in model)
    plan = plan_of(problem)
    assert not [*site.wrong(plan)]
    assert plan.jobs[0].steps == (plan.jobs[0].now,) * len(plan.slot_starts)
    assert {(stay.node, stay.gpus) for stay in plan.jobs[0].stays} == {("h0", 2), ("a0", 2)}
