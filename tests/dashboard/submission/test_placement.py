"""Where jobs go: the smallest GPU that suffices, the fewest nodes, tensor groups inside a node."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from submission_cases import A100, H100, make_fleet, make_job, node

from dashboard.submission.estimates.decision_notes import decision_notes
from dashboard.submission.job.feasible_plans import plans_for
from dashboard.submission.job.fleet import SubmissionFleet
from dashboard.submission.job.placement import Arrival, HostNeed, Placement, PlacementBasis, place
from data.base.errors import ImpossibleProblemError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from planner.memory.estimate.training_plans import GpuType, TrainingPlan
from planner.scheduling.arrival import WaitingJob


@cache
def plans_of(model: str, types: tuple[GpuType, ...]) -> tuple[TrainingPlan, ...]:
    """The plans of a model on GPU types."""
    return plans_for(make_job(model={"name": model}), types, max_gpus=16)


def plans_on(fleet: SubmissionFleet, model: str = "tinyllama-1.1b") -> tuple[TrainingPlan, ...]:
    """The plans of a model on a fleet."""
    return plans_of(model, fleet.gpu_types(load_gpu_catalogue()))


def placed(fleet: SubmissionFleet, model: str = "tinyllama-1.1b", **host: int) -> Placement:
    """The placement of a model on a fleet."""
    return place(plans_on(fleet, model), fleet, arrival(**host))


def arrival(
    *waiting: WaitingJob, late: Callable[[TrainingPlan], bool] = lambda _plan: False, **host: int
) -> Arrival:
    """A job that meets its deadline with every plan, unless told otherwise."""
    return Arrival(host=HostNeed(**host), late=late, waiting=waiting)


def test_a_small_model_leaves_the_large_gpus_free() -> None:
    """With both kinds free, a model that fits on 40 GB takes no 80 GB."""
    found = placed(make_fleet(node("big"), node("small", A100)))
    assert (found.plan.gpu_type, found.nodes) == (A100, ("small",))


def test_a_busy_type_gives_way_to_the_next() -> None:
    """Where the small GPUs are held, the job starts now on the large ones."""
    found = placed(make_fleet(node("big"), node("small", A100, free=0)))
    assert (found.plan.gpu_type, found.waits) == (H100, False)


def test_a_full_fleet_makes_the_job_wait() -> None:
    """With nothing free the best plan is kept, and its place is told to be none."""
    found = placed(make_fleet(node("big", free=0), node("small", A100, free=0)))
    assert (found.plan.gpu_type, found.nodes, found.waits) == (A100, (), True)


def test_best_fit_takes_the_fullest_node() -> None:
    """Of two nodes that take the job alike, the one with less left is filled."""
    found = placed(make_fleet(node("empty"), node("half", free=2)))
    assert found.nodes == ("half",)


def test_a_large_job_spans_the_fewest_nodes() -> None:
    """Eight GPUs go to one node of eight rather than two of four."""
    fleet = make_fleet(
        *(node(f"four-{number}") for number in range(4)), node("eight", gpus=8, free=8)
    )
    plans = tuple(plan for plan in plans_on(fleet, "llama3-8b") if plan.gpus == 8)
    found = place(plans, fleet, arrival())
    assert found.nodes == ("eight",)


def test_cpu_that_lacks_makes_a_node_unfit() -> None:
    """A node with GPUs and too few CPUs for them does not take the job."""
    fleet = make_fleet(node("starved", cpus=4), node("fed", cpus=64))
    assert placed(fleet, cpus_per_gpu=8).nodes == ("fed",)


def test_what_no_node_could_hold_is_refused_with_what_there_is() -> None:
    """A demand of CPUs beyond every node is an error that names the offer."""
    fleet = make_fleet(node("only"))
    with pytest.raises(ImpossibleProblemError, match="4 x H100-SXM5-80GB on only"):
        placed(fleet, cpus_per_gpu=64)


def test_the_deadline_chooses_more_gpus() -> None:
    """Where few GPUs would be late, a plan with more is taken."""
    fleet = make_fleet(node("big", gpus=8, free=8))
    plans = plans_on(fleet)
    quick = place(plans, fleet, arrival(late=lambda plan: plan.gpus < 4))
    slow = place(plans, fleet, arrival())
    assert quick.plan.gpus >= 4 > slow.plan.gpus
    assert place(plans, fleet, arrival(late=lambda _plan: True)).misses_deadline


@pytest.mark.parametrize("free", [8, 4])
def test_a_deadline_that_no_plan_meets_takes_the_fastest_that_is_free(free: int) -> None:
    """The job that is late already is not given the fewest GPUs, nor made to wait for more."""
    fleet = make_fleet(node("big", gpus=8, free=free), node("small", A100, gpus=8, free=free))
    plans = plans_on(fleet)
    late = place(plans, fleet, arrival(late=lambda _plan: True))
    assert late.misses_deadline
    assert (late.plan.gpus, late.waits) == (free, False)
    seated = [plan.speed for plan in plans if plan.fits and plan.gpus <= free]
    assert late.plan.speed >= max(seated) / 1.5 > place(plans, fleet, arrival()).plan.speed


def waits_for(gpu_type: str, gpus: int, *, hours: float = 2.0) -> WaitingJob:
    """A job in the queue that runs on one type alone."""
    return WaitingJob(name="slurm:7", gpus=gpus, speeds={gpu_type: 1.0}, hours=hours)


def test_what_waits_for_a_type_sends_the_job_to_another() -> None:
    """Two small GPUs that a job of four is gathering are left to it: others are free for all."""
    fleet = make_fleet(node("big"), node("small", A100, free=2))
    plans = plans_on(fleet, "llama3.2-3b")
    assert place(plans, fleet, arrival()).plan.gpu_type == A100
    found = place(plans, fleet, arrival(waits_for(A100, 4)))
    assert (found.plan.gpu_type, found.nodes) == (H100, ("big",))
    assert found.decision is not None
    assert found.decision.basis is PlacementBasis.NOW
    verdicts = {
        considered.plan.gpu_type: considered.verdict for considered in found.decision.considered
    }
    assert verdicts == {H100: "chosen", A100: "worth more to others or dearer"}


def test_the_only_gpu_goes_to_the_shorter_job() -> None:
    """A short job in the queue is not made to wait for a long one, and that is said."""
    fleet = make_fleet(node("small", A100, free=1))
    plans = plans_on(fleet)
    long = Arrival(
        host=HostNeed(),
        late=lambda _plan: False,
        hours=lambda _plan: 10.0,
        waiting=(waits_for(A100, 1, hours=0.5),),
    )
    found = place(plans, fleet, long)
    assert found.waits
    assert found.decision is not None
    assert found.decision.basis is PlacementBasis.LATER


def test_a_queue_that_takes_everything_leaves_the_decision_alone() -> None:
    """What it is asked for is then decided as if nothing waited: a fallback that is told."""
    fleet = make_fleet(node("small", A100, gpus=1, free=0))
    waiting = tuple(waits_for(A100, 1, hours=0.1) for _ in range(3))
    slow = replace(arrival(*waiting), hours=lambda _plan: 50.0)
    found = place(plans_on(fleet), fleet, slow)
    assert found.waits
    assert found.decision is not None
    assert found.decision.basis is PlacementBasis.ALONE
    assert found.decision.waiting == waiting


def test_a_choice_without_a_seat_is_decided_again() -> None:
    """Free GPUs in pieces hold no job that needs them on one node: the next type takes it."""
    fleet = make_fleet(
        *(node(f"piece-{number}", A100, free=1, cpus=4) for number in range(4)),
        node("big", cpus=64),
    )
    found = placed(fleet, cpus_per_gpu=8)
    assert (found.plan.gpu_type, found.nodes) == (H100, ("big",))


def test_the_reason_names_what_was_weighed_and_what_waits() -> None:
    """Memory, speed, price and verdict of every plan, and the jobs in the queue."""
    fleet = make_fleet(node("big"), node("small", A100))
    found = place(plans_on(fleet), fleet, arrival(waits_for(H100, 2)))
    assert found.decision is not None
    first, *weighed, last = decision_notes(found.decision)
    assert first.endswith("free: 4 of 4 A100-SXM4-40GB, 4 of 4 H100-SXM5-80GB")
    assert len(weighed) == 2
    assert all("GiB expected" in entry and "a unit of work" in entry for entry in weighed)
    assert last == "what else waits: slurm:7 for 2 GPUs"


@settings(deadline=None)
@given(
    free=st.lists(st.tuples(st.integers(0, 8), st.booleans()), min_size=1, max_size=6),
    model=st.sampled_from(["tinyllama-1.1b", "llama3.2-3b"]),
)
def test_no_node_is_given_more_than_it_has(free: list[tuple[int, bool]], model: str) -> None:
    """Nodes are distinct, of the plan's type, with room; the shares add up to the plan."""
    fleet = make_fleet(
        *(
            node(f"n{place}", A100 if small else H100, gpus=8, free=count)
            for place, (count, small) in enumerate(free)
        )
    )
    found = placed(fleet, model)
    room = {entry.name: entry for entry in fleet.nodes}
    assert len(set(found.nodes)) == len(found.nodes)
    assert found.node_count * found.gpus_per_node == found.plan.gpus
    assert found.gpus_per_node % found.plan.job.parallelism.tensor == 0
    for name in found.nodes:
        assert room[name].gpu_type == found.plan.gpu_type
        assert room[name].free_gpus >= found.gpus_per_node
