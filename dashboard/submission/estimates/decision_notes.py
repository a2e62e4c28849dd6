"""Reasons for the place of a new job, in words and for programs: what was weighed, with what."""

from typing_extensions import TypedDict

from dashboard.submission.estimates.estimate import FitFigures, fit_figures, fit_text
from dashboard.submission.job.placement import PlacementDecision, WeighedPlan
from planner.memory.estimate.predictor import gib, needed_bytes
from planner.memory.estimate.training_plans import SPEED_BASIS

_SHOWN = 5


def decision_notes(decision: PlacementDecision) -> tuple[str, ...]:
    """Return the reason of a decision: its basis, every plan weighed, and what else waits."""
    free = ", ".join(
        f"{decision.free[name]} of {count} {name}" for name, count in decision.total.items()
    )
    return (
        f"decided {decision.basis}; free: {free}",
        *(_considered_text(considered) for considered in decision.considered),
        _waiting_text(decision),
    )


def _considered_text(considered: WeighedPlan) -> str:
    plan = considered.plan
    return (
        f"{plan.gpus} x {plan.gpu_type}: {fit_text(plan.job, plan.estimate)}, "
        f"speed {plan.speed:.2f} ({SPEED_BASIS}), {plan.cost:.2f} a unit of work: "
        f"{considered.verdict}"
    )


def _waiting_text(decision: PlacementDecision) -> str:
    if not decision.waiting:
        return "nothing else waits, as far as the store knows"
    names = ", ".join(f"{entry.name} for {entry.gpus} GPUs" for entry in decision.waiting[:_SHOWN])
    more = len(decision.waiting) - _SHOWN
    return f"what else waits: {names}" + (f" and {more} more" if more > 0 else "")


class ConsideredRow(FitFigures):
    """A plan that was weighed, and the verdict on it."""

    gpu: str
    gpus: int
    needed_gib: float
    speed: float
    speed_is: str
    cost_per_work: float
    verdict: str


class WaitingRow(TypedDict):
    """A job that waits too: the types that it runs on, and for how long."""

    job: str
    gpus: int
    gpu: list[str]
    hours: float


class DecisionDocument(TypedDict):
    """A decision as one object for programs; `free` and `total` count GPUs by type."""

    basis: str
    free: dict[str, int]
    total: dict[str, int]
    considered: list[ConsideredRow]
    waiting: list[WaitingRow]


def decision_document(decision: PlacementDecision) -> DecisionDocument:
    """Return a decision as one object for programs."""
    return {
        "basis": str(decision.basis),
        "free": dict(decision.free),
        "total": dict(decision.total),
        "considered": [
            {
                "gpu": considered.plan.gpu_type,
                "gpus": considered.plan.gpus,
                **fit_figures(considered.plan.job, considered.plan.estimate),
                "needed_gib": gib(needed_bytes(considered.plan.estimate)),
                "speed": round(considered.plan.speed, 3),
                "speed_is": SPEED_BASIS,
                "cost_per_work": round(considered.plan.cost, 3),
                "verdict": considered.verdict,
            }
            for considered in decision.considered
        ],
        "waiting": [
            {
                "job": entry.name,
                "gpus": entry.gpus,
                "gpu": sorted(entry.speeds),
                "hours": entry.hours,
            }
            for entry in decision.waiting
        ],
    }
