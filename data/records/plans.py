"""Plans: a configuration per job and slot, with its cost and a certified lower bound."""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What a job may run on: GPU model, count, MIG profile ('' whole), cap (None uncapped).

    `gpu_count` 0 means that the job holds nothing (reclaimed, or paused). `shared_with` names the
    job that has the other half of the board.
    """

    gpu_model: str
    gpu_count: int
    mig_profile: str = ""
    power_cap_watts: float | None = None
    shared_with: str = ""

    def describe(self) -> str:
        """Give the configuration in words, such as `2 × H100-SXM5-80GB capped at 490 W`."""
        if self.gpu_count == 0:
            return "no GPU"
        slice_ = f" slice {self.mig_profile}" if self.mig_profile else ""
        cap = "" if self.power_cap_watts is None else f" capped at {self.power_cap_watts:g} W"
        half = f" shared with {self.shared_with}" if self.shared_with else ""
        return f"{self.gpu_count} × {self.gpu_model}{slice_}{cap}{half}"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """One job over the horizon: `steps[t]` is the configuration in slot t."""

    job_id: str
    now: Configuration
    steps: tuple[Configuration, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """One node over the horizon: whether it is on in each slot; where it is not, it is empty."""

    node: str
    gpu_model: str
    gpus: int
    on: tuple[bool, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A feasible allocation over time; `gap_ratio` = (cost - lower_bound) / cost.

    `cost`, `lower_bound` and `cost_of_now` (keeping today's allocation) are in `currency`.
    """

    plan_id: str
    created_at: datetime
    slot_starts: tuple[datetime, ...]
    slot_seconds: int
    jobs: tuple[JobPlan, ...]
    cost: float
    cost_of_now: float
    lower_bound: float
    currency: str
    seconds: float
    nodes: tuple[NodePlan, ...] = ()

    def __post_init__(self) -> None:
        if self.lower_bound > self.cost + 1e-6 * max(1.0, abs(self.cost)):
            raise ValueError(f"lower bound {self.lower_bound} exceeds the cost {self.cost}")

    @property
    def gap_ratio(self) -> float:
        """Certified relative distance to the optimum, 0..1."""
        return 0.0 if self.cost <= 0 else max(0.0, (self.cost - self.lower_bound) / self.cost)
