"""CPUs and memory that nodes have for plans: of slices, of several sources, of lost nodes."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from fleet_cases import KUBERNETES, gpu, node_of, pods_job, whole_node
from planning_cases import AS_OF, H100, L40S, SLOT_LENGTHS, case, day_in_slots

from data.facts.fleet import Cluster, Gpu, Node
from data.facts.jobs import Job, SchedulerFacts
from data.records.actions import Action
from planner.advisers.admission import FreeHosts
from planner.fleet.fleet import fleet_facts
from planner.fleet.fleet_nodes import FleetFacts
from planner.plan import build_plan
from planner.proposals.proposal import Proposal

GIB = 1024.0


def slice_of(node: str, index: int, job_id: str, instance: str = "1") -> Gpu:
    """A 1g.10gb instance of a board, held by a job."""
    return gpu(node, index, H100, job_id, mig_instance=instance, mig_profile="1g.10gb")


def sliced(name: str, count: int, cpus: float, **changes: Any) -> Job:
    """A Deployment with pods of one slice each that ask for so many CPUs together."""
    job = pods_job(
        name,
        gpu_count=count,
        mig_profile="1g.10gb",
        extra={"cpus": f"{cpus}", "memory_mib": "1024"},
    )
    return replace(job, **changes)


def tight(name: str, free_cpus: float) -> Node:
    """A node with MIG that has so many CPUs left."""
    return whole_node(
        name, H100, source=KUBERNETES, cpus=96, memory_mib=900 * GIB,
        free_cpus=free_cpus, free_memory_mib=800 * GIB,
    )  # fmt: skip


def facts(jobs: list[Job], gpus: list[Gpu], nodes: list[Node]) -> FleetFacts:
    """The fleet of these in an hour."""
    return fleet_facts(
        Cluster(as_of=AS_OF, gpus=tuple(gpus), nodes=tuple(nodes)),
        jobs,
        {job.job_id: float(job.gpu_count) for job in jobs},
        slot_starts=[AS_OF],
        slot=timedelta(hours=1),
        maintenance=(),
    )


def test_what_is_free_counts_before_what_a_second_source_calls_all() -> None:
    """Slurm and Kubernetes describe a node at the same time."""
    nodes = [
        node_of("a", H100, source="slurm", cpus=96, memory_mib=900 * GIB),
        tight("a", 4.0),
    ]
    (node,) = facts([], [gpu("a", 0, H100)], nodes).nodes
    assert node.cpus == 4.0


def test_a_job_whose_second_node_is_lost_gives_no_node_more_than_it_has() -> None:
    """Sixteen GPUs on a node that is described and one that is not."""
    job = pods_job("big", gpu_count=16, extra={"cpus": "128", "memory_mib": "1638400"})
    told = replace(job.scheduler or SchedulerFacts(), nodes=("a", "gone"))
    found = facts([replace(job, scheduler=told)], [], [tight("a", 32.0)])
    (node,) = [node for node in found.nodes if node.name == "a"]
    assert (node.cpus, node.memory_mib) == (96, 900 * GIB)


@pytest.mark.parametrize("slot_minutes", SLOT_LENGTHS)
@pytest.mark.parametrize("is_seen", [True, False])
def test_slices_that_run_keep_their_place_on_tight_nodes(slot_minutes: int, is_seen: bool) -> None:
    """Two pods on two nodes with 2 CPUs left each; without pod labels nobody sees where."""
    job = sliced("web", 2, 16.0)
    told = replace(job.scheduler or SchedulerFacts(), nodes=("a", "b"))
    job = replace(job, scheduler=told, gpu_model=H100)
    held = job.job_id if is_seen else ""
    problem = case(
        (job, 0.9, 8_000.0, None),
        gpus=[slice_of("a", 0, held), slice_of("b", 0, held)],
        nodes=[tight("a", 2.0), tight("b", 2.0)],
        planning=day_in_slots(slot_minutes),
    )
    plan = build_plan(problem, budget_seconds=10, created_at=problem.as_of)
    assert [row.unplaced for row in plan.jobs] == [""]


def test_a_cut_board_is_one_board_however_many_slices_are_held() -> None:
    """Seven slices on one of two boards leave the other."""
    jobs = [replace(sliced(f"s{number}", 1, 1.0), gpu_model=H100) for number in range(7)]
    problem = case(
        *((job, 0.9, 8_000.0, None) for job in jobs),
        gpus=[
            *(slice_of("a", 0, job.job_id, f"{n}") for n, job in enumerate(jobs)),
            gpu("a", 1, H100),
        ],
        nodes=[replace(tight("a", 2.0), gpu_count=2)],
    )
    left = FreeHosts(problem)._rooms
    assert left[0, 0] == 1


def test_a_change_takes_what_its_largest_option_asks_for_alone() -> None:
    """Boards for a peak and fewer afterwards are never held together."""
    job = pods_job("x", gpu_model=H100, gpu_count=4, extra={"cpus": "32", "memory_mib": "1024"})
    problem = case(
        (job, 0.5, 8_000.0, None),
        gpus=[
            *(gpu("h", index, H100, job.job_id) for index in range(4)),
            *(gpu("a", index, L40S) for index in range(8)),
        ],
        nodes=[replace(tight("a", 48.0), gpu_model=L40S), tight("h", 0.0)],
    )
    (planned,) = problem.jobs
    many, four = next(
        (number, option)
        for number, option in enumerate(planned.options)
        if option.configuration.gpu_model == L40S
    )
    two = replace(four, configuration=replace(four.configuration, gpu_count=2), boards=2.0)
    few, planned = len(planned.options), replace(planned, options=(*planned.options, two))
    hosts, node = FreeHosts(problem), [node.name for node in problem.facts.nodes].index("a")
    path = (many, many, few, few)
    hosts.take(
        Proposal(
            job=planned, option=many, planned=path, proposed=path, share=1.0,
            action=Action.SMALLER_GPU,
        )
    )  # fmt: skip
    assert hosts._rooms[node, 1] == 16_000
