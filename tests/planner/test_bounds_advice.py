"""Advice on an autoscaler's bounds: what it says, what it saves, and when it is silent."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from factories import make_job
from planning_cases import AS_OF, H100, boards, case

from dashboard.decisions.repeat_proposals import is_proposed_by
from data.facts.jobs import Job, Platform, SchedulerFacts
from data.records.actions import Action
from data.records.recommendations import Range, Recommendation
from data.records.serving import BoundsUse, ServiceOutlook
from data.settings.all_settings import PlanningSettings
from planner.advise import Advice, advise
from planner.plan import build_plan
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.suppressions import Rejection

DAY = PlanningSettings(slot_minutes=60, horizon_slots=24)
JOB = "search/deployment/chat"


def scaled(**changes: Any) -> Job:
    """A service of 6 replicas with two H100 each, scaled by an autoscaler."""
    facts = SchedulerFacts(
        managed_by=("HorizontalPodAutoscaler", "Argo CD"),
        extra=(("gpus_per_pod", "2"), ("min_replicas", "6"), ("max_replicas", "8")),
    )
    values: dict[str, Any] = {"gpu_model": H100, "gpu_count": 12, "scheduler": facts}
    return make_job(JOB, **(values | changes))


def told(**facts: str) -> Job:
    """The same service, with more facts of the collector."""
    job = scaled()
    assert job.scheduler is not None
    extra = (*job.scheduler.extra, *facts.items())
    return replace(job, scheduler=replace(job.scheduler, extra=extra))


def use(**changes: Any) -> BoundsUse:
    """A week, of which 6 replicas were 3 too many for 50 h."""
    values: dict[str, Any] = {
        "min_replicas": 6, "max_replicas": 8, "span_hours": 168.0, "known_hours": 160.0,
        "replica_hours": 1000.0, "spare_hours": 50.0,
        "spare_replica_hours": Range(low=120.0, central=150.0, high=200.0, unit="replica-h"),
        "least_needed": 3, "times_at_max": 0, "hours_at_max": 0.0, "most_needed": 0,
    }  # fmt: skip
    return BoundsUse(**(values | changes))


def outlook(bounds: BoundsUse | None, job_id: str = JOB) -> ServiceOutlook:
    """The service, with how its bounds served."""
    return ServiceOutlook(
        job_id=job_id, namespace="search", service="chat", engine="vllm", model="m",
        read_until=AS_OF, replicas=6, running_requests=1.0, waiting_requests=0.0,
        requests_per_second=1.0, bounds=bounds,
    )  # fmt: skip


def problem_of(job: Job, planning: PlanningSettings = DAY) -> PlanningProblem:
    """One busy service on boards of its own."""
    return case((job, 0.9, 60_000.0, 600.0 * 12), gpus=boards(H100, 12), planning=planning)


def advised(problem: PlanningProblem, *services: ServiceOutlook, **more: Any) -> Advice:
    """The advice of a plan of the problem."""
    plan = build_plan(problem, budget_seconds=10, created_at=AS_OF)
    return advise(plan, problem, services=services, **more)


def only(problem: PlanningProblem, bounds: BoundsUse) -> Recommendation:
    """The one recommendation about the service's bounds."""
    (found,) = advised(problem, outlook(bounds)).recommendations
    return found


def test_spare_replicas_cost_their_boards_rent() -> None:
    """150 of 160 h x 2 boards x 24 h at the catalogue's price, with the doubt of the spare ones."""
    problem = problem_of(scaled())
    found = only(problem, use())
    model = problem.catalogue.find(H100)
    assert model is not None
    assert found.action is Action.LOWER_MINIMUM
    assert found.is_advice
    assert (found.change, found.now) == ("minReplicas of 3 instead of 6", found.proposed)
    for spared, low, central, high, each in (
        (found.savings.gpu_hours, 120, 150, 200, 1.0),
        (found.savings.cost, 120, 150, 200, model.price_per_hour),
    ):
        assert spared is not None
        assert (spared.low, spared.central, spared.high) == pytest.approx(
            [spare / 160 * 2 * 24 * each for spare in (low, central, high)]
        )
    per_day = 150 / 160 * 2 * 24 * model.price_per_hour
    assert f"{per_day:.2f} (" in found.why
    assert "HorizontalPodAutoscaler and Argo CD" in found.why
    assert found.savings.energy_kwh is None
    assert "energy and emissions unknown: not forecast for this change" in found.evidence.fallbacks
    assert found.confidence.startswith("medium")
    assert ("bounds of its autoscaler", "6 to 8 replicas") in found.evidence.factors


@pytest.mark.parametrize("slots", [6, 24, 48])
def test_the_saving_is_of_the_horizon(slots: int) -> None:
    """As all savings are; the words are of a day."""
    found = only(problem_of(scaled(), replace(DAY, horizon_slots=slots)), use())
    assert found.savings.gpu_hours is not None
    assert found.savings.gpu_hours.central == pytest.approx(150 / 160 * 2 * slots)
    assert found.savings.horizon_hours == slots


def test_a_maximum_that_lets_requests_wait_comes_first() -> None:
    """With the times of the week, and no saving: more replicas cost what nobody knows."""
    found = only(problem_of(scaled()), use(times_at_max=14, hours_at_max=3.5, most_needed=11))
    assert found.action is Action.RAISE_MAXIMUM
    assert found.change == "maxReplicas of 11 instead of 8"
    assert "14 times in 7 days" in found.why
    assert (found.savings.cost, found.savings.gpu_hours) == (None, None)
    once = only(problem_of(scaled()), use(times_at_max=1, hours_at_max=1.0, most_needed=9))
    assert once.change == "maxReplicas of 9 instead of 8"
    assert "there once in" in once.why


@pytest.mark.parametrize(
    "bounds",
    [
        None,
        use(known_hours=23.9),
        use(spare_replica_hours=Range(low=0.0, central=0.0, high=0.0, unit="replica-h")),
        use(spare_replica_hours=Range(low=1.0, central=2.0, high=3.0, unit="replica-h")),
        use(
            spare_replica_hours=Range(low=0.0, central=0.0, high=0.0, unit="replica-h"),
            times_at_max=1, hours_at_max=0.1, most_needed=9,
        ),
        use(
            spare_replica_hours=Range(low=0.0, central=0.0, high=0.0, unit="replica-h"),
            max_replicas=None,
        ),
        *[use(times_at_max=1, hours_at_max=1.0, most_needed=needed) for needed in (0, 5, 8)],
    ],
)  # fmt: skip
def test_it_is_silent_where_too_little_is_known_or_saved(bounds: BoundsUse | None) -> None:
    """Less than a day of readings, nothing spare, less than is worth a change, a moment's wait.

    Nor where requests waited at a maximum that the model says was enough: it is wrong of something.
    """
    found = advised(problem_of(scaled()), outlook(bounds))
    assert found.recommendations == ()
    assert set(found.kept) == {JOB}


def test_rest_protection_and_rejections_hold() -> None:
    """Nor is anything said of a service that is no job of the plan."""
    assert advised(problem_of(scaled()), outlook(use(), "other")).recommendations == ()
    resting = advised(problem_of(scaled()), outlook(use()), resting={JOB: "it rests"})
    assert (resting.recommendations, resting.kept[JOB]) == ((), "it rests")
    protected = problem_of(scaled(), replace(DAY, protected_jobs="search"))
    assert advised(protected, outlook(use())).recommendations == ()


def test_it_is_part_of_the_sum_and_its_job_is_not_kept_beside() -> None:
    """One recommendation a job; the headline is the sum of its rows."""
    found = advised(problem_of(scaled()), outlook(use()))
    (row,) = found.recommendations
    assert row.savings.cost is not None
    assert found.portfolio.services == row.savings.cost.central
    advised_only = row.savings.cost.central if row.is_advice else 0.0
    assert found.portfolio.together == row.savings.cost.central - advised_only
    assert found.kept == {}


def test_little_of_the_time_is_weak_evidence() -> None:
    """Which is told as a share."""
    found = only(problem_of(scaled()), use(known_hours=84.0))
    assert found.confidence.startswith("weak")
    assert "50 % of the time" in found.confidence


HELD = {
    "horizontalpodautoscaler.autoscaling/chat": "/chat; nobody else is seen to keep",
    "scaledobject.keda.sh/chat": "/chat, of which KEDA makes the autoscaler; nobody else",
}


@pytest.mark.parametrize("holder", HELD)
@pytest.mark.parametrize(
    ("changes", "action", "bound"),
    [({}, Action.LOWER_MINIMUM, ("6", "3")),
     ({"times_at_max": 2, "hours_at_max": 3.5, "most_needed": 11}, Action.RAISE_MAXIMUM,
      ("8", "11"))],
)  # fmt: skip
def test_a_bound_with_a_holder_is_a_change_of_it(
    holder: str, changes: dict[str, Any], action: Action, bound: tuple[str, str]
) -> None:
    """Its numbers stand in the details, which the digest covers; the owner is named."""
    found = only(problem_of(told(autoscaler=holder)), use(**changes))
    assert (found.action, found.is_advice) == (action, False)
    named = (("autoscaler", holder), ("bound_now", bound[0]), ("bound_proposed", bound[1]))
    assert found.details == named
    assert f"The change is of {holder.partition('/')[0]}{HELD[holder]}" in found.why
    assert "Only who owns" not in found.why


def test_a_bound_that_others_keep_is_advice_with_their_name() -> None:
    """So is one of another platform, and one whose autoscaler nobody names."""
    kept = only(problem_of(told(bounds_kept_by="several autoscalers (a, b)")), use())
    assert (kept.is_advice, kept.details) == (True, ())
    assert "can move them: several autoscalers (a, b)." in kept.why
    ray = scaled(scheduler=SchedulerFacts(
        managed_by=("Ray autoscaler",), extra=(("min_replicas", "6"), ("gpus_per_pod", "2")),
    ))  # fmt: skip
    assert "can move them: Ray autoscaler." in only(problem_of(ray), use()).why
    elsewhere = replace(told(autoscaler="horizontalpodautoscaler.autoscaling/chat"),
                        platform=Platform.SLURM)  # fmt: skip
    assert only(problem_of(elsewhere), use()).is_advice


def test_another_amount_is_another_change_but_the_same_advice() -> None:
    """An approval holds for the numbers that were seen; advice is the same as long as it is given.

    A rejection holds for any amount.
    """
    holder = told(autoscaler="horizontalpodautoscaler.autoscaling/chat")
    changes = [only(problem_of(holder), use(least_needed=least)) for least in (3, 4, 3)]
    assert [changes[0].is_like(change) for change in changes] == [True, False, True]
    assert not is_proposed_by(changes[1], changes[0])
    advice = [only(problem_of(scaled()), use(least_needed=least)) for least in (3, 4)]
    assert is_proposed_by(advice[1], advice[0])
    assert not changes[0].is_like(advice[0])
    no = Rejection(recommendation=changes[0], at=AS_OF, until=AS_OF + timedelta(days=7),
                   outcome="rejected")  # fmt: skip
    given = advised(
        problem_of(holder),
        outlook(use(least_needed=4)),
        rejections={(JOB, Action.LOWER_MINIMUM): no},
    )
    assert given.recommendations == ()
