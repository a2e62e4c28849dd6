"""Each guard at its limit: what is just enough passes, what is just too little does not."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest
from factories import make_job, make_range
from planning_cases import AS_OF, H100, SLOT_LENGTHS, boards, case

from data.facts.jobs import Job, Platform, SchedulerFacts, WorkloadKind
from data.records.actions import Action
from data.records.recommendations import Range
from data.settings.all_settings import PlanningSettings
from planner.advisers.time_limits import advised_limit, shorter_limit_reason
from planner.jobs.job_end import Remaining
from planner.problem.planning_problem import PlanningProblem
from planner.proposals import guardrails
from planner.proposals.guardrails import contradiction, refusal, saving_ratio
from planner.proposals.proposal import Proposal
from planner.proposals.savings import ProposalOutcome, outcome_of

HOUR = 3600.0


def training(**facts: Any) -> Job:
    """A training job of four GPUs in pods of one, with facts of its scheduler."""
    pods = (("gpus_per_unit", "1"), ("gpu_containers", "1"))
    return make_job(
        "a/job/x",
        kind=WorkloadKind.TRAINING,
        gpu_count=4,
        scheduler=SchedulerFacts(extra=pods, **facts),
    )


def problem_of(
    job: Job, *, level: float = 0.2, watts: float = 800.0, slot_minutes: int = 60,
    hours: float = 24, **planning: Any,
) -> PlanningProblem:  # fmt: skip
    """One job on eight boards."""
    return case(
        (job, level, 5_000.0, watts),
        gpus=boards(H100, 8),
        planning=PlanningSettings(
            slot_minutes=slot_minutes, horizon_slots=int(hours * 60 / slot_minutes), **planning
        ),
    )


def to_boards(problem: PlanningProblem, count: int, **changes: Any) -> Proposal:
    """The proposal to give the job so many whole boards for good."""
    (job,) = problem.jobs
    option = next(
        number
        for number, option in enumerate(job.options)
        if number
        and (option.configuration.gpu_count, option.configuration.gpu_model) == (count, H100)
        and not option.configuration.power_cap_watts
        and not option.configuration.mig_profile
        and not option.paused
    )
    path = (option,) * len(problem.slot_starts)
    values: dict[str, Any] = {
        "job": job, "option": option, "planned": path, "proposed": path, "share": 1.0,
        "action": Action.FEWER_GPUS,
    }  # fmt: skip
    return Proposal(**(values | changes))


def why_not(
    problem: PlanningProblem,
    proposal: Proposal,
    outcome: ProposalOutcome | None = None,
    *,
    past_runs: tuple[float, ...] = (),
    margin_ratio: float = 0.0,
) -> str:
    """Why the proposal is refused."""
    outcome = outcome or outcome_of(proposal, problem.terms)
    return refusal(proposal, outcome, problem.terms, past_runs, margin_ratio=margin_ratio)


def saving(outcome: ProposalOutcome, money: float, **changes: Any) -> ProposalOutcome:
    """The outcome with another central saving, as `money` of a currency."""
    savings = replace(outcome.savings, cost=Range(low=money, central=money, high=money, unit="USD"))
    return replace(outcome, savings=savings, **changes)


@pytest.mark.parametrize("margin", [0.0, 0.1])
@pytest.mark.parametrize("ratio", [2.0, 3.5])
def test_hysteresis_asks_for_what_is_saved_before_the_change_is_paid(
    ratio: float, margin: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A saving net of its change of (ratio - 1) times the change is just enough."""
    monkeypatch.setattr(guardrails, "HYSTERESIS_RATIO", ratio)
    problem = problem_of(training(), min_saving_ratio=0.0)
    proposal = to_boards(problem, 2)
    outcome = outcome_of(proposal, problem.terms)
    assert outcome.transition is not None
    taken = outcome.transition.cost
    assert taken > 0
    enough = taken * ((1 + margin) * ratio - 1)
    passes = saving(outcome, enough + 0.01 * taken)
    assert why_not(problem, proposal, passes, margin_ratio=margin) == ""
    short = saving(outcome, enough - 0.01 * taken)
    reason = why_not(problem, proposal, short, margin_ratio=margin)
    assert f"less than {ratio:g} times the {taken:.3g} that the change costs" in reason
    assert f"it would save {enough + 0.99 * taken:.3g} " in reason


@pytest.mark.parametrize("margin", [0.0, 0.1])
def test_a_saving_is_a_share_of_what_the_job_costs(
    margin: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A tenth is asked for: of the cost of now; of a wait, of the electricity."""
    monkeypatch.setattr(guardrails, "HYSTERESIS_RATIO", 0.0)
    problem = problem_of(training(), min_saving_ratio=0.1)
    proposal = to_boards(problem, 2)
    outcome = outcome_of(proposal, problem.terms)
    assert 0 < outcome.energy_bill < outcome.cost_of_now
    for action, whole in (
        (Action.FEWER_GPUS, outcome.cost_of_now),
        (Action.SHIFT_IN_TIME, outcome.energy_bill),
    ):
        one = replace(proposal, action=action)
        least = 0.1 * (1 + margin) * whole
        assert saving_ratio(one, saving(outcome, whole / 4), problem.terms) == pytest.approx(0.25)
        assert not why_not(problem, one, saving(outcome, 1.01 * least), margin_ratio=margin)
        reason = why_not(problem, one, saving(outcome, 0.99 * least), margin_ratio=margin)
        assert reason.startswith(f"it would save {9.9 * (1 + margin):.1f} %, less than the 10 %")
    unknown = replace(outcome, savings=replace(outcome.savings, cost=None))
    assert saving_ratio(proposal, unknown, problem.terms) == 0.0
    assert saving_ratio(proposal, replace(outcome, cost_of_now=0.0), problem.terms) == 0.0


@pytest.mark.parametrize("slot_minutes", SLOT_LENGTHS)
def test_a_cap_is_judged_by_the_energy_of_the_job(slot_minutes: int) -> None:
    """A tenth of 690 W for a day at the site's PUE."""
    problem = problem_of(make_job(), level=0.8, watts=690.0, slot_minutes=slot_minutes)
    proposal = replace(first_option(problem), action=Action.POWER_CAP)
    outcome = outcome_of(proposal, problem.terms)
    kwh = 0.690 * 24 * problem.energy.pue
    tenth = replace(outcome.savings, energy_kwh=make_range(0.1 * kwh, "kWh"))
    ratio = saving_ratio(proposal, replace(outcome, savings=tenth), problem.terms)
    assert ratio == pytest.approx(0.1)
    still = replace(proposal.job.demand, power_q50=np.zeros(len(proposal.held)))
    resting = replace(proposal, job=replace(proposal.job, demand=still))
    assert saving_ratio(resting, outcome, problem.terms) == 0.0
    unknown = replace(outcome.savings, energy_kwh=None)
    assert saving_ratio(proposal, replace(outcome, savings=unknown), problem.terms) == 0.0


def first_option(problem: PlanningProblem) -> Proposal:
    """The proposal to hold the first option that is not the present one for good."""
    path = (1,) * len(problem.slot_starts)
    return Proposal(
        job=problem.jobs[0], option=1, planned=path, proposed=path, share=1.0, action=None
    )


def test_more_gpus_are_asked_to_serve_and_not_to_save() -> None:
    """What they cost is weighed against the demand that they no longer miss."""
    problem = problem_of(training())
    proposal = replace(to_boards(problem, 2), action=Action.SCALE_OUT)
    outcome = outcome_of(proposal, problem.terms)
    assert outcome.transition is not None
    taken = outcome.transition.cost
    served = saving(outcome, -5 * taken, shortfall_saved=6.5 * taken)
    assert why_not(problem, proposal, served) == ""
    assert "that the change costs" in why_not(
        problem, proposal, saving(outcome, -5 * taken, shortfall_saved=5.5 * taken)
    )
    unknown = replace(outcome.savings, cost=None)
    for served, passes in ((1.001 * taken, True), (0.999 * taken, False)):
        one = replace(outcome, savings=unknown, shortfall_saved=served)
        assert (why_not(problem, proposal, one) == "") == passes


@pytest.mark.parametrize("slot_minutes", SLOT_LENGTHS)
@pytest.mark.parametrize(("minutes", "passes"), [(30, False), (55, False), (60, True), (90, True)])
def test_a_change_is_held_for_an_hour_at_least(
    slot_minutes: int, minutes: int, passes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job that is over sooner is left alone, whatever its slots."""
    end = AS_OF + timedelta(minutes=slot_minutes + minutes)
    job = training(started_at=AS_OF - timedelta(hours=9), ended_at=end)
    monkeypatch.setattr(guardrails, "HYSTERESIS_RATIO", 0.0)
    problem = problem_of(job, slot_minutes=slot_minutes, min_saving_ratio=0)
    proposal = to_boards(problem, 2)
    outcome = saving(outcome_of(proposal, problem.terms), 100.0)
    reason = why_not(problem, proposal, outcome)
    assert (reason == "") == passes
    if not passes:
        assert reason.startswith(
            f"the plan would hold the change for {minutes / 60:.3g} h only: its recorded end"
        )


def test_a_horizon_below_an_hour_holds_what_it_can() -> None:
    """Half an hour is planned: a change for all of it is long enough."""
    problem = problem_of(training(), slot_minutes=5, hours=0.5)
    proposal = to_boards(problem, 2)
    outcome = saving(outcome_of(proposal, problem.terms), 100.0)
    assert why_not(problem, proposal, outcome) == ""


@pytest.mark.parametrize(
    ("share", "margin", "passes"),
    [
        (0.5, 0.0, True),
        (0.49, 0.0, False),
        (0.54, 0.1, False),
        (0.55, 0.1, True),
        (1.0, 1.5, True),
        (0.45, -0.1, True),
        (0.44, -0.1, False),
    ],
)
def test_a_change_is_for_most_of_the_horizon(share: float, margin: float, passes: bool) -> None:
    """Half of it, and a tenth more where the change is new; all of it is always enough."""
    problem = problem_of(training(), level=0.01)
    proposal = to_boards(problem, 2, share=share)
    outcome = saving(outcome_of(proposal, problem.terms), 1e6)
    reason = why_not(problem, proposal, outcome, margin_ratio=margin)
    assert (reason == "") == passes
    if not passes:
        assert reason.startswith(f"the plan would change it for {100 * share:.0f} % of the horizon")


@pytest.mark.parametrize(
    ("level", "count", "margin", "passes"),
    [
        (0.41, 2, 0.0, True),
        (0.43, 2, 0.0, False),
        (0.41, 2, 0.1, False),
        (0.37, 2, 0.1, True),
        (0.9, 2, 0.0, False),
        (0.46, 2, -0.1, True),
        (0.47, 2, -0.1, False),
        (0.49, 2, -0.5, True),
        (0.51, 2, -0.5, False),
    ],
)
def test_what_is_needed_with_headroom_is_given(
    level: float, count: int, margin: float, passes: bool
) -> None:
    """Of four boards 41 % with a fifth of headroom need 1.97; a margin asks for a tenth more.

    What was proposed may take a tenth of the headroom, and whatever the margin no more than all.
    """
    problem = problem_of(training(), headroom_ratio=0.2)
    proposal = to_boards(problem, count)
    demand = replace(proposal.job.demand, demand_q90=np.full(24, 4 * level))
    proposal = replace(proposal, job=replace(proposal.job, demand=demand))
    outcome = saving(outcome_of(proposal, problem.terms), 1e6)
    reason = why_not(problem, proposal, outcome, margin_ratio=margin)
    assert (reason == "") == passes
    need = min(4 * level * 1.2, 4)
    assert passes or f"gives {count} of the {need:.3g} devices' work needed" in reason


@pytest.mark.parametrize(
    ("past_hours", "refused"),
    [
        ((1000.0, 2990.0, 1500.0), True),
        ((1000.0, 1400.0, 1500.0), False),
        ((1764.0,), False),
        ((1766.0,), True),
        ((), False),
    ],
)
def test_the_longest_run_must_fit_the_time_limit(
    past_hours: tuple[float, ...], refused: bool
) -> None:
    """A run of 1,765 h that takes 1.7 times as long takes all of 3,000 h."""
    job = training(time_limit_seconds=3000 * HOUR)
    problem = problem_of(job)
    proposal = to_boards(problem, 2)
    option = replace(proposal.chosen, slowdown=(1.0, 1.7, 2.0))
    options = tuple(
        option if number == proposal.option else other
        for number, other in enumerate(proposal.job.options)
    )
    proposal = replace(proposal, job=replace(proposal.job, options=options))
    outcome = saving(outcome_of(proposal, problem.terms), 1e6)
    runs = tuple(hours * HOUR for hours in past_hours)
    reason = why_not(problem, proposal, outcome, past_runs=runs)
    assert (reason != "") == refused
    if refused:
        assert reason == (
            f"it could take {1.7 * max(past_hours):.1f} h, above its time limit of 3000.0 h"
        )


def test_a_job_that_ends_before_the_plan_begins_is_left_alone() -> None:
    """Nothing of it is left to change."""
    problem = problem_of(training())
    proposal = to_boards(problem, 2)
    gone = np.zeros(24)
    over = Remaining(
        low=gone, central=gone, high=gone, likely=gone[None], cut_off=np.array([False]),
        why="it is over",
    )  # fmt: skip
    job = replace(proposal.job, demand=replace(proposal.job.demand, remaining=over))
    outcome = outcome_of(proposal, problem.terms)
    reason = why_not(problem, replace(proposal, job=job), outcome)
    assert reason == "it ends before the plan begins: it is over"


@pytest.mark.parametrize(
    ("busy", "watts", "flagged"),
    [(0.9, 150.0, True), (0.89, 150.0, False), (0.9, 190.0, False), (1.0, 60.0, True)],
)
def test_busy_yet_cool_is_suspicious(busy: float, watts: float, flagged: bool) -> None:
    """Of the range from 80 to 700 W busy work exceeds 15 %: 173 W of each board."""
    problem = problem_of(training())
    model = problem.catalogue.get(H100)
    demand = replace(problem.jobs[0].demand, utilization_mean_ratio=busy, board_mean_watts=watts)
    share = (watts - model.idle_watts) / (model.tdp_watts - model.idle_watts)
    assert (share > 0.15) == (watts > 175)
    said = contradiction(demand, problem.terms)
    assert bool(said) == flagged
    if flagged:
        assert f"{100 * busy:.0f} % utilization at {max(0, 100 * share):.0f} % of its" in said
    for unknown in ({"utilization_mean_ratio": None}, {"board_mean_watts": None}):
        assert contradiction(replace(demand, **unknown), problem.terms) == ""


@pytest.mark.parametrize(
    ("limit_hours", "runs", "advised_hours"),
    [
        (9.0, (2.0, 1.0, 3.0, 1.5, 2.5), 4.5),
        (8.9, (2.0, 1.0, 3.0, 1.5, 2.5), None),
        (48.0, (2.0, 1.0, 3.01, 1.5, 2.5), 4.75),
        (48.0, (2.0, 1.0, 3.0, 1.5), None),
        (None, (1.0,) * 9, None),
    ],
)
def test_the_advised_limit_is_half_again_the_longest_run(
    limit_hours: float | None, runs: tuple[float, ...], advised_hours: float | None
) -> None:
    """In quarters of an hour, of five runs or more, and only where the limit is twice as long."""
    job = training(time_limit_seconds=limit_hours and limit_hours * HOUR)
    job = replace(job, platform=Platform.SLURM)
    seconds = [hours * HOUR for hours in runs]
    found = advised_limit(job, seconds)
    assert found == (advised_hours and advised_hours * HOUR)
    if found:
        said = shorter_limit_reason(job, seconds, found)
        middle, most = sorted(runs)[len(runs) // 2], max(runs)
        assert said.startswith(f"{len(runs)} ended runs of this job took {middle:.3g} h in the")
        assert f"and {most:.3g} h at most, and it asks for {limit_hours:.3g} h" in said
        assert f"With {advised_hours:.3g} h it fits" in said
        assert advised_limit(replace(job, platform=Platform.KUBERNETES), seconds) is None
        shortens = replace(job.scheduler or SchedulerFacts(), extra=(("time_min_minutes", "30"),))
        assert advised_limit(replace(job, scheduler=shortens), seconds) is None
