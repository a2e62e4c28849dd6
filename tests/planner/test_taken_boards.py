"""Boards that work outside the plan holds are no room: neither for growth nor for a move."""

from datetime import timedelta

import pytest
from factories import NOW, make_job
from fleet_cases import KUBERNETES, SLURM, gpu, node_of
from planning_cases import AS_OF, H100, case

from data.facts.jobs import JobState, Platform, SchedulerFacts
from data.records.actions import Action
from data.settings.all_settings import PlanningSettings
from planner.advise import advise
from planner.plan import build_plan
from planner.problem.planning_problem import PlanningProblem


def growing(
    *, unexplained: int, unread: int, slot_minutes: int = 60, model: str = H100
) -> PlanningProblem:
    """A job of 2 GPUs that needs 3 for a while; of 8 boards, work outside the plan has some."""
    job = make_job("serve/chat", gpu_count=2, gpu_model=H100)
    busy = {"unexplained_at": AS_OF - timedelta(minutes=1)}
    boards = [
        gpu("n0", number, H100, "serve/chat" if number < 2 else "",
            **(busy if number >= 8 - unexplained else {}))
        for number in range(8)
    ]  # fmt: skip
    planning = PlanningSettings(slot_minutes=slot_minutes, horizon_slots=720 // slot_minutes)
    quarter = planning.horizon_slots // 4
    return case(
        (job, 0.4, 60_000.0, 900.0),
        gpus=boards,
        demand={"serve/chat": [0.8] * quarter + [2.0] * quarter + [0.8] * 2 * quarter},
        occupied={("n0.example", model): unread} if unread else None,
        planning=planning,
    )


@pytest.mark.parametrize("slot_minutes", [5, 15, 30, 60])
@pytest.mark.parametrize(
    ("unexplained", "unread", "free"),
    [(0, 0, 6), (4, 0, 2), (0, 4, 2), (6, 0, 0), (0, 6, 0), (4, 4, 2), (3, 5, 1), (0, 20, 0)],
)
def test_growth_stays_within_what_is_free(
    unexplained: int, unread: int, free: int, slot_minutes: int
) -> None:
    """Both kinds may be the same boards, so the larger count holds; the job keeps its own."""
    problem = growing(unexplained=unexplained, unread=unread, slot_minutes=slot_minutes)
    assert problem.capacity.tolist() == [2 + free]


@pytest.mark.parametrize(("unread", "offered"), [(0, True), (6, False)])
def test_no_growth_is_offered_onto_boards_of_a_job_without_readings(
    unread: int, offered: bool
) -> None:
    """The scheduler would leave the new pods pending."""
    problem = growing(unexplained=0, unread=unread)
    plan = build_plan(problem, budget_seconds=60, created_at=NOW)
    actions = [recommendation.action for recommendation in advise(plan, problem).recommendations]
    assert (Action.SCALE_OUT in actions) is offered


def test_a_job_whose_model_is_not_known_here_may_hold_any_board() -> None:
    """A Slurm job tells the gres type, or nothing."""
    assert growing(unexplained=0, unread=5, model="").capacity.tolist() == [3]
    assert growing(unexplained=0, unread=5, model="h100-of-slurm").capacity.tolist() == [3]


@pytest.mark.parametrize("source", [SLURM, KUBERNETES])
def test_what_left_an_hour_ago_holds_nothing(source: str) -> None:
    """Work without a label counts for an hour after it was last seen."""
    old = {"unexplained_at": AS_OF - timedelta(hours=2)}
    job = make_job(
        "train/x",
        gpu_model=H100,
        source=source,
        platform=Platform.SLURM if source == SLURM else Platform.KUBERNETES,
        scheduler=SchedulerFacts(state=JobState.RUNNING, nodes=("n0",)),
    )
    problem = case(
        (job, 0.9, 30_000.0, 500.0),
        gpus=[gpu("n0", number, H100, "" if number else job.job_id, **old) for number in range(8)],
        nodes=[node_of("n0", H100, source=source)],
        planning=PlanningSettings(slot_minutes=60, horizon_slots=6),
    )
    assert problem.capacity.tolist() == [8]
