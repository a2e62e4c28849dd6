"""Why a new job goes where it goes, in words and for programs: what was weighed, beside what."""

from typing import Any

from dashboard.submission.estimate import GIB
from dashboard.submission.placement import Considered, Decision
from planner.memory_predictor import needed_bytes

_SHOWN = 5


def decision_notes(decision: Decision) -> tuple[str, ...]:
    """Give the reason of a decision: its basis, every plan weighed, and what else waits."""
    free = ", ".join(
        f"{decision.free[name]} of {count} {name}" for name, count in decision.total.items()
    )
    return (
        f"decided {decision.basis}; free: {free}",
        *(_considered_text(one) for one in decision.considered),
        _waiting_text(decision),
    )


def _considered_text(one: Considered) -> str:
    plan, room = one.plan, (one.plan.job.gpu_memory_bytes or 0.0) / GIB
    return (
        f"{plan.gpus} x {plan.gpu_type}: {plan.estimate.p50_bytes / GIB:.1f} GiB expected, "
        f"{plan.bound_bytes / GIB:.1f} at 90 % of {room:.1f}, speed {plan.speed:.2f} "
        f"({plan.basis}), {plan.cost:.2f} a unit of work: {one.verdict}"
    )


def _waiting_text(decision: Decision) -> str:
    if not decision.waiting:
        return "nothing else waits, as far as the store knows"
    shown = ", ".join(f"{one.name} for {one.gpus} GPUs" for one in decision.waiting[:_SHOWN])
    more = len(decision.waiting) - _SHOWN
    return f"what else waits: {shown}" + (f" and {more} more" if more > 0 else "")


def decision_document(decision: Decision) -> dict[str, Any]:
    """Give a decision as one object for programs."""
    return {
        "basis": str(decision.basis),
        "free": dict(decision.free),
        "total": dict(decision.total),
        "considered": [
            {
                "gpu": one.plan.gpu_type,
                "gpus": one.plan.gpus,
                "p50_gib": round(one.plan.estimate.p50_bytes / GIB, 2),
                "p90_gib": round(one.plan.bound_bytes / GIB, 2),
                "needed_gib": round(needed_bytes(one.plan.estimate) / GIB, 2),
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
