"""Why a new job goes where it goes, in words and for programs: what was weighed, beside what."""

from typing import Any

from dashboard.submission.estimate import fit_figures, fit_text
from dashboard.submission.placement import Considered, PlacementDecision
from planner.memory.predictor import gib, needed_bytes

_SHOWN = 5


def decision_notes(decision: PlacementDecision) -> tuple[str, ...]:
    """Return the reason of a decision: its basis, every plan weighed, and what else waits."""
    free = ", ".join(
        f"{decision.free[name]} of {count} {name}" for name, count in decision.total.items()
    )
    return (
        f"decided {decision.basis}; free: {free}",
        *(_considered_text(one) for one in decision.considered),
        _waiting_text(decision),
    )


def _considered_text(one: Considered) -> str:
    plan = one.plan
    return (
        f"{plan.gpus} x {plan.gpu_type}: {fit_text(plan.job, plan.estimate)}, "
        f"speed {plan.speed:.2f} ({plan.basis}), {plan.cost:.2f} a unit of work: {one.verdict}"
    )


def _waiting_text(decision: PlacementDecision) -> str:
    if not decision.waiting:
        return "nothing else waits, as far as the store knows"
    shown = ", ".join(f"{one.name} for {one.gpus} GPUs" for one in decision.waiting[:_SHOWN])
    more = len(decision.waiting) - _SHOWN
    return f"what else waits: {shown}" + (f" and {more} more" if more > 0 else "")


def decision_document(decision: PlacementDecision) -> dict[str, Any]:
    """Return a decision as one object for programs."""
    return {
        "basis": str(decision.basis),
        "free": dict(decision.free),
        "total": dict(decision.total),
        "considered": [
            {
                "gpu": one.plan.gpu_type,
                "gpus": one.plan.gpus,
                **fit_figures(one.plan.job, one.plan.estimate),
                "needed_gib": gib(needed_bytes(one.plan.estimate)),
                "speed": round(one.plan.speed, 3),
                "speed_is": one.plan.basis,
                "cost_per_work": round(one.plan.cost, 3),
                "verdict": one.verdict,
            }
            for one in decision.considered
        ],
        "waiting": [
            {"job": one.name, "gpus": one.gpus, "gpu": sorted(one.speeds), "hours": one.hours}
            for one in decision.waiting
        ],
    }
