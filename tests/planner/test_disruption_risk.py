"""A change that ends pods whose disruption budget allows none to be ended says so."""

from dataclasses import replace
from datetime import timedelta

import pytest
from fleet_cases import pods_job
from planning_cases import AS_OF, H100, boards, case

from data.records.actions import Action
from data.records.feasible_changes import NO_DISRUPTIONS
from planner.advise import advise
from planner.plan import build_plan

RISK = "Risk: its PodDisruptionBudget keep allows 0 disruptions now"


@pytest.mark.parametrize("budget", ["keep", ""])
@pytest.mark.parametrize(
    ("kind", "level", "demand", "action"),
    [
        ("deployment", 0.2, 0.5, Action.FEWER_GPUS),
        ("job", 0.0, 0.0, Action.RECLAIM),
        ("deployment", 0.9, 3.4, Action.SCALE_OUT),
    ],
)
def test_the_reason_names_the_budget_where_pods_end(
    kind: str, level: float, demand: float, action: Action, budget: str
) -> None:
    """Fewer pods and none; more of them end nobody."""
    job = pods_job(
        "chat", kind, gpu_count=2, first_seen_at=AS_OF - timedelta(days=3),
        extra=((NO_DISRUPTIONS, budget),) if budget else (),
    )  # fmt: skip
    problem = case(
        (job, level, 9_000.0, 300.0), gpus=boards(H100, 8), demand={job.job_id: [demand] * 24}
    )
    plan = build_plan(problem, budget_seconds=10, created_at=AS_OF)
    (found,) = advise(plan, problem).recommendations
    assert found.action is action
    assert (RISK in found.why) is bool(budget and action is not Action.SCALE_OUT)


def test_a_power_cap_ends_no_pod() -> None:
    """Boards are capped under their pods."""
    job = pods_job("chat", gpu_count=2, extra=((NO_DISRUPTIONS, "keep"),))
    problem = case((job, 0.6, 60_000.0, 1_390.0), gpus=boards(H100, 2))
    plan = build_plan(problem, budget_seconds=10, created_at=AS_OF)
    capped = next(
        option for option in problem.jobs[0].options if option.configuration.power_cap_watts
    )
    steps = (capped.configuration,) * 24
    plan = replace(plan, jobs=(replace(plan.jobs[0], steps=steps),))
    rows = advise(plan, problem).recommendations
    assert all(row.action is Action.POWER_CAP and RISK not in row.why for row in rows)
