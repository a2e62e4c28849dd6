"""A free node is cut as the layout that frees most, and only where more is freed than is cut."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
from drawn import examples
from fleet_cases import KUBERNETES, gpu, node_of, pods_job
from hypothesis import given, settings
from hypothesis import strategies as st
from planning_cases import AS_OF, H100, case

from data.facts.fleet import MigLayout, MigManager
from data.facts.jobs import Job
from data.records.actions import Action
from data.records.recommendations import Recommendation
from data.settings.all_settings import PlanningSettings
from planner.advise import Advice, advise
from planner.advisers.mig_layouts import nodes_to_cut
from planner.costs.configurations import options_for
from planner.fleet.fleet_nodes import Reach
from planner.plan import build_plan
from planner.problem.job_problem import JobProblem
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.guardrails import refusal
from planner.proposals.proposal import steady_proposal
from planner.proposals.savings import outcome_of

WHOLE = MigLayout(name="all-disabled", boards=((2, ()),))
LAYOUTS = (
    MigLayout(name="all-1g.10gb", boards=((2, (("1g.10gb", 7),)),)),
    MigLayout(name="all-3g.40gb", boards=((2, (("3g.40gb", 2),)),)),
    MigLayout(name="balanced", boards=((2, (("1g.10gb", 2), ("2g.20gb", 1), ("3g.40gb", 1))),)),
    MigLayout(name="one-cut", boards=((1, ()), (1, (("2g.20gb", 3),)))),
)
MANAGER = MigManager(
    layout="all-disabled",
    state="success",
    strategy="mixed",
    source="gpu-operator/layouts",
    layouts=(WHOLE, *LAYOUTS),
)
HOURS = 6
PRICE = 2.5


def fleet(
    works: Sequence[tuple[Job, float, float]],
    manager: MigManager | None = MANAGER,
    source: str = KUBERNETES,
    **node: object,
) -> PlanningProblem:
    """One-board jobs as (job, level, memory MiB) on node a, and a node b of two free boards."""
    count = len(works)
    return case(
        *((job, level, memory, 150.0) for job, level, memory in works),
        gpus=[
            *(gpu("a", index, H100, job.job_id) for index, (job, *_) in enumerate(works)),
            *(gpu("b", index, H100) for index in range(2)),
        ],
        nodes=[
            node_of("a", H100, gpus=count, source=source, partitions=("gpu",)),
            replace(
                node_of("b", H100, gpus=2, source=source, partitions=("gpu",)),
                mig_manager=manager,
                **node,
            ),
        ],
        planning=PlanningSettings(slot_minutes=60, horizon_slots=HOURS, power_cap_ratios=""),
    )


def advised(problem: PlanningProblem, **more: object) -> Advice:
    """What follows from the plan."""
    return advise(build_plan(problem, budget_seconds=10, created_at=AS_OF), problem, **more)


def layout_in(advice: Advice) -> Recommendation | None:
    """The advice to cut a node."""
    found = [entry for entry in advice.recommendations if entry.action is Action.MIG_LAYOUT]
    assert len(found) <= 1
    return found[0] if found else None


def small(count: int, memory: float = 8_000.0) -> list[tuple[Job, float, float]]:
    """Services that use a twentieth of a board each."""
    return [(pods_job(f"w{number}"), 0.05, memory) for number in range(count)]


def test_a_free_node_is_cut_for_jobs_that_would_do_with_slices() -> None:
    """The whole layout is one recommendation about the node, with what it frees net of the cut."""
    found = layout_in(advised(fleet(small(6))))
    assert found is not None
    assert found.target == "b"
    assert dict(found.details) == {
        "node": "b",
        "mig_layout": "all-1g.10gb",
        "mig_layouts_of": "gpu-operator/layouts",
    }
    assert (found.now.gpu_count, found.proposed.gpu_count) == (2, 0)
    assert found.change == "MIG layout all-1g.10gb: 14 × 1g.10gb"
    assert "nvidia.com/mig.config=all-1g.10gb" in found.why
    hours, cost = found.savings.gpu_hours, found.savings.cost
    assert hours is not None
    assert cost is not None
    # Six boards are freed and two are cut; a start takes 15, 62 or 250 s, cutting as much again.
    restart = 6 * 2 * (0.3 * 15 + 0.4 * 61 + 0.3 * 250) / 3600
    assert hours.central == pytest.approx((6 - 2) * HOURS, abs=restart)
    assert hours.central < (6 - 2) * HOURS
    assert hours.low < hours.central < hours.high
    assert cost.central == pytest.approx((6 - 2) * HOURS * PRICE, rel=0.1)


@pytest.mark.parametrize(
    ("jobs", "layout"), [(0, None), (1, None), (2, "one-cut"), (3, "one-cut"), (5, "all-1g.10gb")]
)
def test_more_boards_are_freed_than_are_cut(jobs: int, layout: str | None) -> None:
    """One board of three slices is worth it from two jobs on, two boards of 14 from five on."""
    works = [*small(jobs), (pods_job("busy"), 0.9, 60_000.0)]
    found = layout_in(advised(fleet(works)))
    assert (None if found is None else dict(found.details)["mig_layout"]) == layout


@pytest.mark.parametrize(
    ("manager", "node"),
    [
        (None, {}),
        (replace(MANAGER, strategy="single"), {}),
        (replace(MANAGER, strategy=""), {}),
        (replace(MANAGER, state="failed"), {}),
        (replace(MANAGER, state="pending"), {}),
        (replace(MANAGER, layout=""), {}),
        (replace(MANAGER, layout="of-another-file"), {}),
        (replace(MANAGER, layout="all-3g.40gb"), {}),
        (replace(MANAGER, layouts=(WHOLE,)), {}),
        (replace(MANAGER, layouts=(replace(WHOLE, boards=((8, ()),)), *LAYOUTS)), {}),
        (MANAGER, {"schedulable": False}),
        (MANAGER, {"mig_instances": (("1g.10gb", 7),)}),
    ],
)
def test_a_node_that_its_manager_cannot_cut_and_give_back_stays(
    manager: MigManager | None, node: dict[str, object]
) -> None:
    """Another strategy, a state of work or failure, a label without a way back, no free node."""
    assert layout_in(advised(fleet(small(6), manager, **node))) is None
    assert layout_in(advised(fleet(small(6)))) is not None


def test_a_layout_whose_slices_do_not_fit_on_a_board_is_not_proposed() -> None:
    """Nobody's file is taken at its word: eight of 1g and two of 4g are more than a board."""
    wrong = tuple(
        MigLayout(name=name, boards=((2, ((name, count),)),))
        for name, count in (("1g.10gb", 8), ("4g.40gb", 2))
    )
    problem = fleet(small(6), replace(MANAGER, layouts=(WHOLE, *wrong)))
    assert layout_in(advised(problem)) is None


def test_jobs_of_others_are_not_counted_on() -> None:
    """A job that is bound to its node, rests, or has to stay whole takes no slice elsewhere."""
    works = small(6)
    bound = [(pods_job(job.name, extra=(("bound_to", "a"),)), 0.05, 8_000.0) for job, *_ in works]
    assert layout_in(advised(fleet(bound))) is None
    resting = {job.job_id: "changed lately" for job, *_ in works}
    assert layout_in(advised(fleet(works), resting=resting)) is None
    assert layout_in(advised(fleet(works), resting={"b": "rolled back"})) is None
    assert layout_in(advised(fleet(small(6, memory=70_000.0)))) is None


def test_a_node_is_cut_or_powered_down_and_not_both() -> None:
    """Without layouts it is powered down; a job is named by at most one recommendation."""
    cut, plain = advised(fleet(small(6))), advised(fleet(small(6, memory=70_000.0), None))
    off = [row.target for row in plain.recommendations if row.action is Action.CONSOLIDATE]
    assert off == ["b"]
    assert [row.target for row in cut.recommendations if row.action.spec.of_node] == ["b"]
    worth = layout_in(cut)
    assert worth is not None
    assert worth.savings.cost is not None
    assert cut.portfolio.nodes == pytest.approx(worth.savings.cost.central)


def gain(problem: PlanningProblem, job: JobProblem, profile: str) -> float | None:
    """What a slice saves for a job beside the rent of its part of a board; None: not for it."""
    reach = Reach(boards={}, slices={H100: frozenset({profile})}, models=frozenset())
    option = next(
        (
            option
            for option in options_for(job.demand, reach, terms=problem.terms)
            if option.configuration.mig_profile
        ),
        None,
    )
    if option is None:
        return None
    alone = replace(job, options=(job.options[0], option))
    proposal = steady_proposal(alone, (1,) * HOURS, 1, 1.0)
    outcome = outcome_of(proposal, problem.terms)
    if outcome.savings.cost is None or refusal(proposal, outcome, problem.terms, ()):
        return None
    return outcome.savings.cost.central + option.boards * HOURS * PRICE


def best_by_trying(problem: PlanningProblem) -> float:
    """The largest net saving of all layouts and all ways to give their slices to jobs."""
    best = 0.0
    for layout in LAYOUTS:
        names = sorted(layout.slices)
        gains = [{name: gain(problem, job, name) for name in names} for job in problem.jobs]
        for choice in product([None, *names], repeat=len(gains)):
            used = [name for name in choice if name is not None]
            if any(used.count(name) > layout.slices[name] for name in names):
                continue
            each = [row[name] for row, name in zip(gains, choice, strict=True) if name is not None]
            known = [value for value in each if value is not None]
            if len(known) == len(each) > layout.cut:
                best = max(best, sum(known) - layout.cut * HOURS * PRICE)
    return best


@settings(max_examples=examples(12), deadline=None, derandomize=True)
@given(
    st.lists(
        st.tuples(st.sampled_from([0.05, 0.1, 0.2, 0.5]), st.sampled_from([6e3, 8e3, 15e3, 3e4])),
        min_size=2,
        max_size=5,
    )
)
def test_the_layout_and_its_jobs_are_the_best_of_all(drawn: list[tuple[float, float]]) -> None:
    """As trying every layout with every way to give out its slices finds."""
    works = [(pods_job(f"w{n}"), level, memory) for n, (level, memory) in enumerate(drawn)]
    problem = fleet(works)
    advice = advised(problem)
    found = layout_in(advice)
    assert advice.kept.keys() == {job.job_id for job, *_ in works}
    saved = found.savings.cost.central if found and found.savings.cost else 0.0
    assert saved == pytest.approx(best_by_trying(problem), abs=1e-6)


def test_of_equal_free_nodes_one_is_cut_at_a_time() -> None:
    """The jobs take the slices of one; the other may be cut by a later plan."""
    works = small(6)
    problem = fleet(works)
    again = replace(
        problem.facts,
        nodes=tuple(
            twin
            for node in problem.facts.nodes
            for twin in (
                (node, replace(node, name="c", known_as="c")) if node.name == "b" else (node,)
            )
        ),
    )
    found = nodes_to_cut(
        replace(problem, facts=again),
        {job.job_id for job, *_ in works},
        unneeded=(),
        wanted=(),
        past_runs={},
        rejections={},
    )
    assert [advice.subject for advice in found] == ["b"]
