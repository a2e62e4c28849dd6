"""Advice on a job that works slowly on its GPUs: the cause, its cost, and the remedy.

Nothing applies it: what helps is in the job's own program, or in the room where its boards are.
What is saved is the rent of the time that the cause takes from its boards, while the job is there.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from data.records.actions import Action
from data.records.plans import Plan
from data.records.recommendations import Range, Recommendation
from data.records.slow_work import SlowCause, SlowWork
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.job_advice import job_advice, savings_of
from planner.proposals.proposal import Proposal
from planner.slow_work.remedies import SHORT

_HOURS_PER_DAY = 24.0
_ADVISED_CONFIDENCES = ("medium", "strong")


def slow_work_advice(
    slow: Sequence[SlowWork],
    proposals: Mapping[str, Proposal],
    unchanged: Collection[str],
    plan: Plan,
    problem: PlanningProblem,
) -> Iterator[Recommendation]:
    """Yield one recommendation at most for each slow job that is kept as it is.

    Weak evidence makes none, nor does a loss below the share that is worth a change.
    """
    for slow_job in slow:
        proposal = proposals.get(slow_job.job_id)
        if proposal is None or slow_job.job_id not in unchanged or not slow_job.cause.is_slow:
            continue
        if proposal.job.demand.is_fixed or slow_job.confidence not in _ADVISED_CONFIDENCES:
            continue
        lost = slow_job.lost_ratio
        if lost is None or lost.central >= problem.planning.min_saving_ratio:
            yield _advice(slow_job, proposal, plan, problem)


def _advice(
    slow_job: SlowWork, proposal: Proposal, plan: Plan, problem: PlanningProblem
) -> Recommendation:
    hours = proposal.job.demand.remaining.hours(problem.terms.slot_hours)
    gpu_hours, cost = _lost(slow_job, proposal, problem, hours)
    return job_advice(
        Action.SPEED_UP,
        proposal,
        plan,
        problem,
        change=f"{SHORT[slow_job.cause]} ({slow_job.cause})",
        why=(
            f"Its GPUs look {_CAUSE_WORDS[slow_job.cause]}. {_costs(slow_job, proposal, problem)} "
            f"To try: {slow_job.remedy}."
        ),
        savings=savings_of(problem, gpu_hours=gpu_hours, cost=cost),
        confidence=f"{slow_job.confidence}: {slow_job.doubt}",
        factors=_factors(slow_job),
        signal="activity of its boards",
    )


_CAUSE_WORDS = {
    SlowCause.STARVED: "starved of input: no kernel runs for part of the time, on all boards alike",
    SlowCause.SMALL_BATCH: "too large for the batch: kernels run, and leave most SMs without work",
    SlowCause.WAITING: "held up by a rank: some boards do much less than the others",
    SlowCause.COMMUNICATION: "held up by communication: links are loaded while little is computed",
    SlowCause.NO_TENSOR: "busy without their tensor cores, which mixed precision would use",
    SlowCause.THROTTLED: "throttled: heat or a power brake slows their clocks",
}


def _lost(
    slow_job: SlowWork, proposal: Proposal, problem: PlanningProblem, hours: float
) -> tuple[Range | None, Range | None]:
    """Return GPU-hours and money that the cause takes in so many hours, None where unknown.

    That no kernel runs for a while is seen, and not why: input is one of several causes, so that
    nothing measured carries money there.
    """
    if slow_job.lost_ratio is None or slow_job.cause is SlowCause.STARVED:
        return None, None
    job = proposal.job.demand.job
    model = problem.catalogue.find(job.gpu_model)
    ratio = slow_job.lost_ratio
    gpu_hours = replace(ratio.times(hours * job.gpu_count), unit="GPU-h")
    if model is None:
        return gpu_hours, None
    rent = ratio.times(hours * proposal.present.boards * model.price_per_hour)
    return gpu_hours, replace(rent, unit=problem.energy.currency)


def _costs(slow_job: SlowWork, proposal: Proposal, problem: PlanningProblem) -> str:
    gpu_hours, cost = _lost(slow_job, proposal, problem, _HOURS_PER_DAY)
    if slow_job.cause is SlowCause.STARVED:
        return "Whether it is the input was not measured, so no saving is counted."
    if gpu_hours is None:
        return "What that costs is unknown: boards do not tell how much slower they work."
    money = "an unknown amount" if cost is None else _text(cost)
    return f"A day of it costs {_text(gpu_hours)}, worth {money}."


def _text(amount: Range) -> str:
    return f"{amount.central:.2f} ({amount.low:.2f}–{amount.high:.2f}) {amount.unit}"


def _factors(slow_job: SlowWork) -> tuple[tuple[str, str], ...]:
    """Return the factors by its boards' signals, for the front of the evidence."""
    signals = ", ".join(f"{name} {value:.2f}" for name, value in slow_job.signals)
    lost = slow_job.lost_ratio
    share = (
        "unknown"
        if lost is None
        else f"{100 * lost.central:.0f} ({100 * lost.low:.0f}–{100 * lost.high:.0f}) % of its time"
    )
    return (
        ("why it is slow", slow_job.describe()),
        ("signals, mean of these slots", signals),
        ("time lost", share),
    )
