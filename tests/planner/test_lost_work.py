"""What ending a run loses: all since its last checkpoint, or since its start without one."""

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, cast

import pandas as pd
import pytest
from factories import make_job
from hypothesis import given
from hypothesis import strategies as st
from planning_cases import AS_OF, H100, advised, boards, case, history_of

from data.facts.jobs import Job, JobState, Platform, SchedulerFacts
from data.records.actions import Risk
from data.records.plans import Configuration
from data.records.recommendations import Recommendation
from data.settings.all_settings import PlanningSettings
from planner.costs.cost import change_cost, change_costs
from planner.jobs.elasticity import lost_work_of
from planner.jobs.expected_value import mean_of
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.proposal import Proposal
from planner.proposals.wording import _goes_to_others

PLAIN = PlanningSettings(slot_minutes=60, horizon_slots=24)
NO_SIGNS: tuple[tuple[tuple[str, str], ...], ...] = (
    (),
    (("requeue", "yes"), ("batch", "yes")),
    (("requeue", "yes"), ("restarts", "2")),
    (("pods_stay", ""),),
)


def run_of(hours: float, *extra: tuple[str, str], **changes: Any) -> Job:
    """A batch job of Slurm that has run for so long on four boards."""
    started = AS_OF - timedelta(hours=hours)
    facts = SchedulerFacts(
        state=JobState.RUNNING,
        started_at=started,
        extra=(("requeue", "yes"), ("batch", "yes"), ("gres_per", "node"),
               ("nodes_requested", "1"), ("requested_gpus", "4"), *extra),
    )  # fmt: skip
    values: dict[str, Any] = {
        "gpu_model": H100,
        "gpu_count": 4,
        "platform": Platform.SLURM,
        "scheduler": facts,
        "first_seen_at": started,
        "last_seen_at": AS_OF,
    }
    return make_job("slurm:7", **(values | changes))


@given(hours=st.floats(min_value=0, max_value=900), extra=st.sampled_from(NO_SIGNS))
def test_that_a_job_may_be_requeued_is_no_sign_of_a_checkpoint(
    hours: float, extra: tuple[tuple[str, str], ...]
) -> None:
    """JobRequeue=1 is Slurm's default: all that the run has done may be lost."""
    lost = lost_work_of(run_of(hours, *extra), PLAIN)
    assert lost.at_worst
    assert lost.hours == pytest.approx(hours, abs=1e-3)


@pytest.mark.parametrize(
    ("extra", "patterns", "hours", "seconds"),
    [
        ((("checkpoints", "its --comment"),), "", 30.0, (0, 300, 1800)),
        ((("checkpoints", "its --comment"),), "", 0.05, (0, 180, 180)),
        ((), "slurm:*", 30.0, (0, 300, 1800)),
        ((("checkpoint_at", (AS_OF - timedelta(hours=2)).isoformat()),), "", 30.0, (7200,) * 3),
        ((("checkpoint_at", (AS_OF - timedelta(hours=9)).isoformat()),), "", 1.0, (3600,) * 3),
    ],
)
def test_with_a_sign_its_last_checkpoint_counts(
    extra: tuple[tuple[str, str], ...], patterns: str, hours: float, seconds: tuple[float, ...]
) -> None:
    """No more than the run itself has lasted."""
    planning = PlanningSettings(checkpointed_jobs=patterns)
    lost = lost_work_of(run_of(hours, *extra), planning)
    assert lost.seconds == pytest.approx(seconds, abs=1e-3)
    assert not lost.at_worst


@pytest.mark.parametrize("hours", [0.5, 6.0, 30.4])
def test_plans_pay_for_the_worst_case_of_a_run_without_signs(hours: float) -> None:
    """Its boards for all its hours; money counts the mean, so that no saving is told too large."""
    problem = case(
        (run_of(hours), 0.1, 9_000.0, 900.0),
        gpus=boards(H100, 4),
        planning=PlanningSettings(slot_minutes=60, horizon_slots=24, checkpointed_jobs="none"),
    )
    job = problem.jobs[0]
    option = next(entry for entry in job.options if 0 < entry.boards < 4)
    rent = 4 * problem.terms.catalogue.get(H100).price_per_hour
    found = change_costs(job.demand, job.options[0], option, problem.terms)
    assert change_cost(job.demand, job.options[0], option, problem.terms) >= hours * rent
    assert found.gpu_hours[2] >= hours * 4
    assert found.cost[2] >= hours * rent
    assert found.loss_price == pytest.approx(0.3 * hours * rent, rel=0.05), (
        "beside the mean of the money"
    )
    assert mean_of(*found.cost) + found.loss_price >= hours * rent


@pytest.mark.parametrize(("hours", "signs"), [(30.4, False), (30.4, True), (0.2, False)])
def test_a_change_that_costs_more_work_than_it_saves_is_not_proposed(
    hours: float, signs: bool
) -> None:
    """With checkpoints, or soon after its start, the same change is; the risk is on the card."""
    planning = PlanningSettings(
        slot_minutes=60, horizon_slots=24, checkpointed_jobs="*" if signs else "none"
    )
    problem = case((run_of(hours), 0.1, 9_000.0, 900.0), gpus=boards(H100, 4), planning=planning)
    resized = [
        entry for entry in advised(problem).recommendations if 0 < entry.proposed.gpu_count < 4
    ]
    if hours > 24 and not signs:
        assert not resized
        return
    (found,) = resized
    assert (found.risk is Risk.HIGH) == (not signs)
    assert ("nothing says that it writes checkpoints" in found.why) == (not signs)
    assert found.transition is not None
    assert any("since its start" in what for what, _s in found.transition.parts) == (not signs)


def stopped(
    hours: float, rest_hours: int, signs: bool, slot_minutes: int
) -> tuple[PlanningProblem, list[Recommendation]]:
    """A run of so many hours that has rested lately, and its advised stop."""
    planning = PlanningSettings(
        slot_minutes=slot_minutes,
        horizon_slots=24 * 60 // slot_minutes,
        checkpointed_jobs="*" if signs else "none",
        max_return_chance=0.6,
    )
    job = run_of(hours)
    slot = timedelta(minutes=slot_minutes)
    history = history_of(job, 0.0, 9_000.0, 900.0, slot)
    works = history["slot_start"] < pd.Timestamp(AS_OF - timedelta(hours=rest_hours))
    for column in ("utilization_ratio", "utilization_max_ratio", "effective_gpus"):
        history.loc[works, column] = 0.9
    problem = case(
        (job, 0.0, 9_000.0, 900.0), gpus=boards(H100, 4), planning=planning, history=history
    )
    stops = [one for one in advised(problem).recommendations if not one.proposed.gpu_count]
    return problem, stops


@pytest.mark.parametrize("slot_minutes", [15, 60])
@pytest.mark.parametrize(("hours", "rest_hours"), [(40.0, 5), (30.4, 9), (30.4, 20), (30.4, 40)])
def test_a_stop_counts_the_run_that_is_done_again_if_work_returns(
    hours: float, rest_hours: int, slot_minutes: int
) -> None:
    """Its work before the rest on all its boards, by the chance that it returns."""
    problem, (stop,) = stopped(hours, rest_hours, False, slot_minutes)
    _problem, (free,) = stopped(hours, rest_hours, True, slot_minutes)
    chance = problem.jobs[0].demand.work_return.chance
    redo = max(0.0, hours - rest_hours)
    for lossy, without in (
        (stop.savings.gpu_hours, free.savings.gpu_hours),
        (stop.savings.cost, free.savings.cost),
    ):
        assert lossy is not None
        assert without is not None
        price = 1.0 if lossy.unit == "GPU-h" else problem.terms.catalogue.get(H100).price_per_hour
        expected = chance * redo * 4 * price
        # Beside the rent stands the energy of the run that is done again.
        assert without.central - lossy.central == pytest.approx(expected, rel=0.12)
        if chance > 0.11:
            gain = without.central - 4 * redo * price
            assert lossy.low == pytest.approx(min(gain, 0.0), rel=0.12, abs=1e-6)
    text = f"up to all {redo:.1f} h of its run on 4 GPUs before the present rest are done again"
    assert (text in stop.why) == (redo > 0)
    assert "done again" not in free.why


@pytest.mark.parametrize("slot_minutes", [15, 60])
def test_a_run_that_is_dearer_than_its_rest_is_not_stopped(slot_minutes: int) -> None:
    """The reason says what would be lost, and its chance."""
    problem, stops = stopped(900.0, 9, False, slot_minutes)
    assert not stops
    (reason,) = advised(problem).kept.values()
    assert "891.0 h of its run are done again if its work returns" in reason
    _problem, stops = stopped(900.0, 9, True, slot_minutes)
    assert stops


def on_kubernetes(job_id: str, count: int, state: JobState, **extra: str) -> Job:
    """A workload of H100 boards as its scheduler tells of it."""
    facts = SchedulerFacts(state=state, extra=tuple(extra.items()))
    return make_job(
        job_id, gpu_count=count, gpu_model=H100, platform=Platform.KUBERNETES, scheduler=facts
    )


@pytest.mark.parametrize(
    ("changes", "extra", "named"),
    [
        ({}, {"gpus_per_pod": "4"}, True),
        ({}, {"gpus_per_pod": "16"}, False),
        ({"gpu_model": "A100-SXM4-80GB"}, {}, False),
        ({}, {"kueue": "waits for quota"}, False),
        ({}, {"kueue": "admitted"}, True),
    ],
)
def test_jobs_that_wait_for_what_a_change_frees_are_named_in_its_reason(
    changes: dict[str, Any], extra: dict[str, str], named: bool
) -> None:
    """Of the same model, no larger than what is freed, and admitted where Kueue decides."""
    idle = on_kubernetes("ml/deployment/idle", 8, JobState.RUNNING)
    other = replace(on_kubernetes("ml/job/next", 4, JobState.PENDING, **extra), **changes)
    jobs = [SimpleNamespace(demand=SimpleNamespace(job=job)) for job in (idle, other)]
    nothing = SimpleNamespace(configuration=Configuration(gpu_model=H100, gpu_count=0))
    proposal = cast("Proposal", SimpleNamespace(job=jobs[0], chosen=nothing))
    text = _goes_to_others(proposal, cast("PlanningProblem", SimpleNamespace(jobs=jobs)))
    assert ("ml/job/next waits for such GPUs" in text) == named


@pytest.mark.parametrize("line", ["", "job 8 waits (Priority), job 9 waits (Resources)"])
@pytest.mark.parametrize("state", [JobState.RUNNING, JobState.PENDING])
def test_jobs_of_slurm_that_wait_for_what_a_change_frees_are_named(
    line: str, state: JobState
) -> None:
    """As its queue tells of them; what waits itself frees nothing."""
    found = run_of(6.0, *([("waiting", line)] if line else []))
    assert found.scheduler is not None
    job = replace(found, scheduler=replace(found.scheduler, state=state))
    planned = SimpleNamespace(demand=SimpleNamespace(job=job))
    fewer = SimpleNamespace(configuration=Configuration(gpu_model=H100, gpu_count=2))
    proposal = cast("Proposal", SimpleNamespace(job=planned, chosen=fewer))
    text = _goes_to_others(proposal, cast("PlanningProblem", SimpleNamespace(jobs=[planned])))
    assert ("job 8 waits (Priority), job 9 waits (Resources): they may take" in text) == (
        bool(line) and state is JobState.RUNNING
    )
