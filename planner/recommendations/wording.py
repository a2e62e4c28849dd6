"""Why a change is proposed, in words with its figures."""

from data.records.decisions import Action
from planner.problem.cost import missed_service
from planner.problem.planning_problem import PlanningProblem
from planner.recommendations.proposals import Proposal


def why(one: Proposal, problem: PlanningProblem) -> str:
    """Return the reason for a proposal."""
    return _REASONS.get(one.action or Action.FEWER_GPUS, _less_work)(one, problem)


def change_text(one: Proposal, problem: PlanningProblem) -> str:
    """Return what changes where the configurations do not say it, '' where they do."""
    if one.first is None:
        return ""
    starts = f"{problem.slot_starts[one.first]:%Y-%m-%d %H:%M} UTC"
    until = f"{problem.slot_starts[one.last + 1]:%Y-%m-%d %H:%M} UTC" if one.last else "further on"
    if one.spec.pauses:
        return f"pause from {starts} to {until}"
    end = f"until {until}" if one.last else until
    return f"{one.chosen.configuration.describe()} from {starts} {end}"


def _peak(one: Proposal) -> float:
    path, remaining = one.job.demand.demand_q90, one.job.demand.remaining
    return 0.0 if path is None else float((path * (remaining.high > 0)).max())


def _less_work(one: Proposal, problem: PlanningProblem) -> str:
    memory = f"{(one.job.demand.memory_mib or 0) / 1024:.1f} GiB"
    hours = one.job.demand.remaining.hours(problem.terms.slot_hours)
    return (
        f"Over the next {hours:.3g} h it is forecast to do at most {_peak(one):.2f} of "
        f"{one.job.demand.job.gpu_count} devices' work (q90) with {memory} per device; "
        f"{one.chosen.configuration.describe()} gives {one.chosen.service:.2f}."
    )


def _idle(one: Proposal, problem: PlanningProblem) -> str:
    return (
        f"It held {one.present.configuration.describe()} for the last "
        f"{one.job.demand.idle_hours:.1f} h with utilization of at most "
        f"{100 * problem.planning.idle_utilization_ratio:g} %."
    )


def _hot(one: Proposal, problem: PlanningProblem) -> str:
    low, middle, high = (100 * (value - 1) for value in one.chosen.slowdown)
    law = problem.cap_laws[one.chosen.configuration.gpu_model]
    measured = "" if law.measured else "; its own generation was not measured"
    return (
        f"Its boards exceed {one.chosen.configuration.power_cap_watts:g} W, and its forecast "
        f"leaves room for work that takes {middle:.1f} % ({low:.1f}–{high:.1f} %) longer at the "
        f"hottest: at most {_peak(one):.2f} of {one.job.demand.job.gpu_count} devices' work at "
        f"q90 ({law.source}{measured})."
    )


def _shares(one: Proposal, problem: PlanningProblem) -> str:
    demand = one.job.demand
    _low, middle, high = (100 * (value - 1) for value in one.chosen.slowdown)
    return (
        f"It and {one.chosen.configuration.shared_with} together do no more than one board's "
        f"work (P95) in at most 80 % of its memory, and no MIG slice fits it; it holds "
        f"{(demand.memory_mib or 0) / 1024:.1f} GiB and is forecast to do {_peak(one):.2f} of a "
        f"device's work (q90). Pairs like this run {middle:.0f} % longer (up to {high:.0f} %). "
        "The board is freed only when both move."
    )


def _waits(one: Proposal, problem: PlanningProblem) -> str:
    slots = len(problem.slot_starts)
    assert one.first is not None  # noqa: S101 - a shift has its slots by construction
    last = slots - 1 if one.last is None else one.last
    tariff, currency = problem.tariff, problem.energy.currency
    inside = tariff.per_kwh[one.first : last + 1].mean()
    text = (
        f"It can be stopped and started again ({one.job.demand.standing.reason}), may wait "
        f"{problem.planning.shift_slack_hours:g} h, and a kWh costs {inside:.3g} {currency} in "
        f"these hours against {tariff.mean_per_kwh:.3g} over the day"
    )
    if tariff.hourly_carbon:
        carbon = tariff.gco2e[one.first : last + 1].mean()
        text += f" (grid {carbon:.0f} against {tariff.mean_gco2e:.0f} gCO2e/kWh)"
    return text + "."


def _outgrows(one: Proposal, problem: PlanningProblem) -> str:
    demand, planning = one.job.demand, problem.planning
    now = missed_service(demand, one.present, one.present, planning)
    then = missed_service(demand, one.present, one.chosen, planning)
    worst = int(now.argmax())
    return (
        f"Its forecast reaches {_peak(one):.2f} of the {one.present.service:g} devices that it "
        f"has (q90); with {100 * planning.headroom_ratio:g} % headroom it is expected to miss "
        f"{now[worst]:.2g} devices' work around {problem.slot_starts[worst]:%Y-%m-%d %H:%M} UTC, "
        f"and {then[worst]:.2g} with {one.chosen.configuration.describe()}."
    )


_REASONS = {
    Action.RECLAIM: _idle,
    Action.POWER_CAP: _hot,
    Action.CO_LOCATE: _shares,
    Action.SHIFT_IN_TIME: _waits,
    Action.SCALE_OUT: _outgrows,
}
