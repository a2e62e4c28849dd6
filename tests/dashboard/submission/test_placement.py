"""Where jobs go: the smallest GPU that suffices, the fewest nodes, tensor groups inside a node."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from submission_cases import A100, H100, make_fleet, make_job, node

from dashboard.submission.fleet import Fleet
from dashboard.submission.placement import HostNeed, Placement, place
from dashboard.submission.planning import plans_for
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.errors import ImpossibleProblemError
from planner.training_plans import GpuType, TrainingPlan


@cache
def plans_of(model: str, types: tuple[GpuType, ...]) -> tuple[TrainingPlan, ...]:
    """The plans of a model on GPU types."""
    return plans_for(make_job(model={"name": model}), types, largest_gpus=16)


def plans_on(fleet: Fleet, model: str = "tinyllama-1.1b") -> tuple[TrainingPlan, ...]:
    """The plans of a model on a fleet."""
    return plans_of(model, fleet.gpu_types(load_gpu_catalogue()))


def placed(fleet: Fleet, model: str = "tinyllama-1.1b", **host: int) -> Placement:
    """The placement of a model on a fleet."""
    return place(plans_on(fleet, model), fleet, host=HostNeed(**host), late=lambda _plan: False)


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
    fleet = make_fleet(*(node(f"four-{one}") for one in range(4)), node("eight", gpus=8, free=8))
    plans = tuple(one for one in plans_on(fleet, "llama3-8b") if one.gpus == 8)
    found = place(plans, fleet, host=HostNeed(), late=lambda _plan: False)
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


def test_plans_without_slack_come_after_those_with_it() -> None:
    """A plan is chosen below whose 90 % bound the peak stays on the card."""
    found = placed(make_fleet(node("big", gpus=8, free=8)), "llama3-8b")
    assert found.plan.estimate.p50_bytes * 1.13 <= (found.plan.job.gpu_memory_bytes or 0)


def test_the_deadline_chooses_more_gpus() -> None:
    """Where few GPUs would be late, a plan with more is taken."""
    fleet = make_fleet(node("big", gpus=8, free=8))
    plans = plans_on(fleet)
    quick = place(plans, fleet, host=HostNeed(), late=lambda plan: plan.gpus < 4)
    slow = place(plans, fleet, host=HostNeed(), late=lambda _plan: False)
    assert quick.plan.gpus >= 4 > slow.plan.gpus
    assert place(plans, fleet, host=HostNeed(), late=lambda _plan: True).misses_deadline


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
    room = {one.name: one for one in fleet.nodes}
    assert len(set(found.nodes)) == len(found.nodes)
    assert found.node_count * found.gpus_per_node == found.plan.gpus
    assert found.gpus_per_node % found.plan.job.parallelism.tensor == 0
    for name in found.nodes:
        assert room[name].gpu_type == found.plan.gpu_type
        assert room[name].free_gpus >= found.gpus_per_node
