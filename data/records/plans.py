"""Plans: a configuration and a place per job and slot, with their cost and certified bounds."""

from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """A configuration of a job: GPU model, count, MIG profile ('' whole), cap (None uncapped).

    `gpu_count` 0 means that the job holds nothing (reclaimed, or paused). `shared_with` names the
    job that has the other half of the board. `boards` is what its devices amount to where it has
    shares of boards or boards beside MIG instances, None where count and profile tell.
    """

    gpu_model: str
    gpu_count: int
    mig_profile: str = ""
    power_cap_watts: float | None = None
    shared_with: str = ""
    boards: float | None = None

    def describe(self) -> str:
        """Return the configuration in words, such as `2 × H100-SXM5-80GB capped at 490 W`."""
        if self.gpu_count == 0:
            return "no GPU"
        slice_ = f" slice {self.mig_profile}" if self.mig_profile else ""
        cap = "" if self.power_cap_watts is None else f" capped at {self.power_cap_watts:g} W"
        half = f" shared with {self.shared_with}" if self.shared_with else ""
        plural = "" if self.boards == 1 else "s"
        part = "" if self.boards is None else f" (= {self.boards:.2g} board{plural})"
        return f"{self.gpu_count} × {self.gpu_model}{slice_}{cap}{half}{part}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stay:
    """GPUs of a job on a node in slots [start, end).

    `moved`: the job was elsewhere before, without another configuration. A MIG slice has gpus 1,
    the number of its cut board on the node and the position of its first memory slice there.
    """

    node: str
    gpus: int
    start: int
    end: int
    moved: bool = False
    mig_board: int | None = None
    mig_position: int | None = None


class IdleCause(StrEnum):
    """The reason why idle GPUs stay with their job."""

    UNKNOWN = "demand not known"
    WAITS = "waits for its start and holds no GPU"
    KEPT = "not judged"
    RIGID = "no change reaches the job"
    SMALLEST = "no smaller size can be given"
    HOST = "others would share its board"
    COSTLY = "a smaller size does not pay"
    HELD_BACK = "the change is held back"
    RESTING = "not proposed for now"
    OTHER_CHANGE = "another change is proposed"
    REMAINDER = "left by the proposed change"
    NONE = ""

    @classmethod
    def _missing_(cls, value: object) -> "IdleCause | None":
        """Return the cause of a word that plans in stores still use."""
        return cls.RESTING if value == "changed or decided lately" else None


@dataclass(frozen=True, slots=True, kw_only=True)
class IdleGpus:
    """The forecast use of a job's GPUs over the horizon; GPUs, on average over its slots.

    idle = peaks + freed_idle + after + stays. `work` is the forecast's median, `peaks` what q90
    with headroom needs beyond it, `freed` what the recommendation takes. `work` is None where
    demand is not known and while the job waits for its start: it holds nothing then. `cause` and
    `reason` say why `stays` stays. `after` is the part that a change frees which a person can make,
    named by `change`; `partners` are the jobs with which it would share a board.
    """

    held: float
    work: float | None = None
    peaks: float = 0.0
    freed: float = 0.0
    cause: IdleCause = IdleCause.NONE
    reason: str = ""
    after: float = 0.0
    change: str = ""
    partners: tuple[str, ...] = ()

    @property
    def idle(self) -> float:
        """Held less work; 0 where work is not known."""
        return 0.0 if self.work is None else self.held - self.work

    @property
    def freed_idle(self) -> float:
        """The freed part of the idle; the rest of `freed` is work that moves to fewer GPUs."""
        return min(self.freed, self.idle)

    @property
    def stays(self) -> float:
        """The part that stays idle beyond the peaks."""
        return self.idle - self.freed_idle - self.after - self.peaks


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPlan:
    """One job over the horizon: `steps[t]` is the configuration in slot t, `stays` where it is.

    Without a place in some slot (its node is not known, say) `unplaced` says why. `idle` is None in
    plans kept before it was counted. `scaled_by` names the autoscaler that other numbers of GPUs
    are left to, '' where there is none in the plan. `shares_with` are the jobs that are on the same
    boards.
    """

    job_id: str
    now: Configuration
    steps: tuple[Configuration, ...]
    stays: tuple[Stay, ...] = ()
    unplaced: str = ""
    idle: IdleGpus | None = None
    scaled_by: str = ""
    shares_with: tuple[str, ...] = ()

    def is_asked(self, step: Configuration) -> bool:
        """Return whether a step changes the job otherwise than its autoscaler does by itself."""
        alone = bool(self.scaled_by) and step == replace(self.now, gpu_count=step.gpu_count)
        return step != self.now and not alone

    def describe(self, step: Configuration) -> str:
        """Return a step in words, with the autoscaler where that does it."""
        alone = step != self.now and not self.is_asked(step)
        return step.describe() + f" by its {self.scaled_by}" * alone

    def stretches(self) -> tuple[tuple[int, int, Configuration], ...]:
        """Return (start, end, configuration) of the runs of slots without a change."""
        steps = self.steps
        starts = [slot for slot in range(len(steps)) if slot == 0 or steps[slot] != steps[slot - 1]]
        ends = [*starts[1:], len(steps)]
        return tuple(
            (start, end, steps[start]) for start, end in zip(starts, ends, strict=bool(starts))
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePlan:
    """One node over the horizon: whether it is on in each slot; where it is not, it is empty.

    Not `open`: it takes no new jobs (cordoned, draining).
    """

    node: str
    gpu_model: str
    gpus: int
    on: tuple[bool, ...]
    open: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanBound:
    """A lower bound by name, beside what the plan attains, both in `unit`.

    Cost bounds hold for every plan of the problem; those in node-hours or nodes for every
    placement of this plan's configurations.
    """

    name: str
    value: float
    attained: float
    unit: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantPlan:
    """Boards of one tenant: what it may hold, holds now, and holds in each slot.

    It borrows what is above its quota. It lends what it leaves of its quota as far as others
    borrow it, in proportion to what all leave.
    """

    tenant: str
    quota: float
    guaranteed: float
    now: float
    used: tuple[float, ...]
    borrowed: tuple[float, ...]
    lent: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanPrice:
    """The worth of one more scarce unit in each slot, for the next plan's start."""

    of: str
    per_slot: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A feasible allocation over time; `gap_ratio` = (cost - lower_bound) / cost.

    `cost`, `lower_bound` and `cost_of_now` are in `currency`, the last that of today's allocation
    and of what autoscalers do by themselves; cost includes `moves` that placement forces.
    `violations` names soft limits that are broken, at a price. `revised_jobs` counts jobs that left
    the path which the plan before announced for them, None without such a plan. `frozen_slots` are
    taken over from it, and the bound holds for plans that keep them. `unread_jobs` run without
    readings and hold `unread_gpus`: no part of the plan. `slots_gap_ratio` is the certified gap
    before places, None in plans of earlier versions.
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
    bounds: tuple[PlanBound, ...] = ()
    nodes: tuple[NodePlan, ...] = ()
    tenants: tuple[TenantPlan, ...] = ()
    violations: tuple[str, ...] = ()
    moves: int = 0
    move_cost: float = 0.0
    changes_per_job_day: float = 0.0
    revised_jobs: int | None = None
    frozen_slots: int = 0
    prices: tuple[PlanPrice, ...] = ()
    unread_jobs: int = 0
    unread_gpus: float = 0
    slots_gap_ratio: float | None = None

    def __post_init__(self) -> None:
        if self.lower_bound > self.cost + 1e-6 * max(1.0, abs(self.cost)):
            raise ValueError(f"lower bound {self.lower_bound} exceeds the cost {self.cost}")

    @property
    def gap_ratio(self) -> float:
        """Certified relative distance to the optimum, 0..1."""
        return 0.0 if self.cost <= 0 else max(0.0, (self.cost - self.lower_bound) / self.cost)
