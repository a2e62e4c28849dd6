"""What was rejected is not proposed again until what it rested on has changed, or time is over."""

from dataclasses import replace
from datetime import timedelta

import pytest
from factories import NOW, make_job, make_plan, make_range, make_recommendation
from fleet_cases import KUBERNETES, gpu, node_of, pods_job
from planning_cases import AS_OF, H100, boards, case

from dashboard.cycle.cooldowns import rejections
from dashboard.decisions import approvals
from data.records.actions import Action
from data.records.recommendations import Recommendation
from data.settings.all_settings import PlanningSettings
from data.store import Store
from planner.advise import Advice, advise
from planner.plan import build_plan
from planner.problem.planning_problem import FleetRules, PlanningProblem
from planner.proposals.suppressions import Rejection

DAYS = timedelta(days=30)


def idle_jobs() -> PlanningProblem:
    """Two jobs that could do with half of their boards."""
    return case(
        *((make_job(f"a/{name}", gpu_count=4), 0.2, 10_000.0, 800.0) for name in "xy"),
        gpus=boards(H100, 8),
    )


def advised(problem: PlanningProblem, *rejected: Recommendation) -> Advice:
    """What is advised after these were rejected."""
    plan = build_plan(problem, budget_seconds=30, created_at=AS_OF)
    no = {
        (recommendation.target, recommendation.action): Rejection(
            recommendation=recommendation, at=AS_OF, until=AS_OF + DAYS
        )
        for recommendation in rejected
    }
    return advise(plan, problem, rejections=no)


def test_a_rejected_change_is_kept_with_the_reason() -> None:
    """Of that job and of that kind; the sum of the rest still holds."""
    problem = idle_jobs()
    first, second = advised(problem).recommendations
    found = advised(problem, first)
    assert [recommendation.target for recommendation in found.recommendations] == [second.target]
    assert found.kept[first.target].startswith("rejected on 2026-01-05 (recommendation ")
    assert "before 2026-02-04 unless it would save more than" in found.kept[first.target]
    assert second.savings.cost is not None
    assert found.portfolio.together == pytest.approx(second.savings.cost.central)
    other = replace(first, action=Action.POWER_CAP)
    assert len(advised(problem, other).recommendations) == 2


@pytest.mark.parametrize(("share", "proposed"), [(0.5, True), (0.95, False), (1.0, False)])
def test_a_larger_saving_comes_up_again(share: float, proposed: bool) -> None:
    """More an hour than the top of the range that was rejected, whatever the horizon then."""
    problem = idle_jobs()
    first, _second = advised(problem).recommendations
    assert first.savings.cost is not None
    half = replace(
        first.savings,
        horizon_hours=2 * first.savings.horizon_hours,
        cost=make_range(2 * share * first.savings.cost.central, "EUR"),
    )
    found = advised(problem, replace(first, savings=half))
    assert (first.target in found.kept) is not proposed


def test_a_rejected_node_stays_on() -> None:
    """Advice on nodes is rejected by the node."""
    job = pods_job("w1", gpu_count=4)
    problem = case(
        (job, 0.8, 60_000.0, 2_400.0),
        gpus=[
            *(gpu("a", number, H100, job.job_id if number < 4 else "") for number in range(8)),
            *(gpu("b", number, H100) for number in range(8)),
        ],
        nodes=[node_of(name, H100, source=KUBERNETES) for name in "ab"],
        rules=FleetRules(),
        planning=PlanningSettings(slot_minutes=60, horizon_slots=24, power_cap_ratios=""),
    )
    found = advised(problem).recommendations
    (node,) = (entry for entry in found if entry.action is Action.CONSOLIDATE)
    assert node.target == "b"
    assert all(
        recommendation.target != "b" for recommendation in advised(problem, node).recommendations
    )


def test_rejections_are_read_from_decisions_for_as_long_as_they_hold(store: Store) -> None:
    """The newest of a target and kind; approvals and old rejections are none."""
    approved = make_recommendation(job_id="search/other")
    old = make_recommendation()
    newer = make_recommendation(why="again")
    store.keep_cycle(
        cycle_id="c1",
        started_at=NOW,
        finished_at=NOW,
        forecasts=(),
        plan=make_plan(),
        recommendations=(approved, old, newer),
    )
    approvals.approve(store, approved.digest, by="A", now=NOW)
    approvals.reject(store, newer.digest, by="A", now=NOW + timedelta(hours=2))
    approvals.reject(store, old.digest, by="A", now=NOW + timedelta(hours=1))
    found = rejections(store.reader, NOW + timedelta(days=29), 30.0)
    (one,) = found.values()
    assert one.recommendation == newer
    assert one.until == NOW + timedelta(hours=2, days=30)
    assert rejections(store.reader, NOW + timedelta(days=31), 30.0) == {}
    assert rejections(store.reader, NOW + timedelta(days=1), 0.0) == {}
