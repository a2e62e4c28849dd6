"""Recommendations, and the approvals of them."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from enum import StrEnum
from types import MappingProxyType
from typing import Any

from data.records.clusters import cluster_in
from data.records.identifiers import SHORT_ID_LENGTH, digest_of
from data.records.jobs import Platform
from data.records.plans import Configuration


class Action(StrEnum):
    """What a recommendation proposes."""

    FEWER_GPUS = "fewer-gpus"
    SMALLER_GPU = "smaller-gpu"
    MIG_SLICE = "mig-slice"
    POWER_CAP = "power-cap"
    RECLAIM = "reclaim"
    CO_LOCATE = "co-locate"
    SHIFT_IN_TIME = "shift-in-time"
    TIME_LIMIT = "time-limit"
    SCALE_OUT = "scale-out"
    CONSOLIDATE = "consolidate"
    MIG_LAYOUT = "mig-layout"
    ADD_GPUS = "add-gpus"
    LARGER_GPU = "larger-gpu"
    SPREAD = "spread"
    LESS_MEMORY = "less-memory"
    LOWER_MINIMUM = "lower-minimum"
    RAISE_MAXIMUM = "raise-maximum"
    SPEED_UP = "speed-up"
    MODEL_FITS = "model-fits"
    GROW = "grow"
    GIVE_BACK = "give-back"

    @property
    def spec(self) -> "ActionSpec":
        """The action's row of `ACTIONS`."""
        return ACTIONS[self]


class Risk(StrEnum):
    """How much a wrong recommendation could hurt (facts: action catalogue)."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSpec:
    """What holds of an action whatever it is proposed for.

    `deeds` say what making and undoing the change do, `appliers` who can; without one a person.
    """

    title: str
    deeds: tuple[str, str] = (
        "give {target} {then} instead of {now}",
        "give {target} its {now} back",
    )
    risk: Risk = Risk.MEDIUM
    appliers: tuple[str, ...] = ()
    for_memory: bool = False
    serves: bool = False  # whether it is proposed to serve a job better, not to save
    resizes: bool = False  # whether the job gets another number or kind of GPUs
    of_node: bool = False  # whether it changes the node that `Recommendation.details` name
    caps_power: bool = False  # whether it caps its boards; a cap lapses unless it is renewed
    cuts: bool = False  # whether it cuts that node's boards, by the layout in `details`
    takes_all: bool = False  # whether the job keeps no GPU, for good
    gives_back: bool = False  # whether it undoes a growth, so that less work is what it is for
    pauses: bool = False  # whether it ends by design, with nothing to put back
    bound: str = ""  # which bound it changes of the autoscaler that `details` name
    of_service: bool = False  # whether it is of how a service is run, which no plan gives
    of_program: bool = False  # whether it changes how a job's program works, which no plan does


_OBJECTS = ("kubernetes", "slurm")
"""No shift-in-time and no time-limit in Kubernetes: an object has no time at which it begins."""
_EVERYWHERE = (*_OBJECTS, "simulated")
_NUMBERS = (*_EVERYWHERE, "git")  # what one number of a manifest says
_OF_BOUNDS = ("kubernetes", "git")
_BOUNDS = ("scale {target} between other bounds: {change}", "scale {target} between its old bounds")

ACTIONS: Mapping[Action, ActionSpec] = MappingProxyType(
    {
        Action.FEWER_GPUS: ActionSpec(title="Fewer GPUs", appliers=_NUMBERS, resizes=True),
        Action.SMALLER_GPU: ActionSpec(title="Smaller GPU", appliers=_EVERYWHERE, resizes=True),
        Action.MIG_SLICE: ActionSpec(title="MIG slice", appliers=_EVERYWHERE, resizes=True),
        Action.POWER_CAP: ActionSpec(
            title="Power cap",
            deeds=("cap the power of {target}", "lift the power cap of {target}"),
            risk=Risk.LOW,
            appliers=("power-cap", "simulated"),
            caps_power=True,
        ),
        Action.RECLAIM: ActionSpec(
            title="Reclaim idle GPU",
            deeds=("take the idle {now} from {target}", "give {target} its {now} back"),
            risk=Risk.HIGH,
            appliers=_NUMBERS,
            takes_all=True,
        ),
        Action.CO_LOCATE: ActionSpec(
            title="Share a board",
            deeds=("let {target} share its boards", "give {target} its own boards back"),
        ),
        Action.SHIFT_IN_TIME: ActionSpec(
            title="Cheaper or cleaner hours",
            deeds=("pause {target}", "let {target} run without the pause"),
            risk=Risk.LOW,
            appliers=("slurm",),
            pauses=True,
        ),
        Action.TIME_LIMIT: ActionSpec(
            title="Shorter time limit",
            deeds=("give {target} a {change}", "give {target} its old time limit back"),
            risk=Risk.LOW,
            appliers=("slurm",),
        ),
        Action.SCALE_OUT: ActionSpec(
            title="More GPUs before a peak",
            risk=Risk.LOW,
            appliers=_NUMBERS,
            serves=True,
            resizes=True,
        ),
        Action.CONSOLIDATE: ActionSpec(
            title="Power a node down",
            deeds=("take {target} out of use, to power it down", "put {target} back into use"),
            appliers=_OBJECTS,
            of_node=True,
        ),
        Action.MIG_LAYOUT: ActionSpec(
            title="Cut a node's boards",
            deeds=("cut {target} as {change}", "give {target} its old MIG layout back"),
            appliers=_OBJECTS[:1],
            of_node=True,
            cuts=True,
        ),
        Action.ADD_GPUS: ActionSpec(
            title="More boards needed",
            deeds=("add boards: {change}", "do without the boards: {change}"),
            risk=Risk.LOW,
        ),
        Action.LARGER_GPU: ActionSpec(
            title="Larger GPU, for memory", appliers=_OBJECTS, for_memory=True, resizes=True
        ),
        Action.SPREAD: ActionSpec(
            title="More GPUs, for memory", appliers=_OBJECTS, for_memory=True, resizes=True
        ),
        Action.LESS_MEMORY: ActionSpec(
            title="Reduce memory use",
            deeds=("let {target} take less memory", "let {target} take its old memory"),
            risk=Risk.LOW,
            for_memory=True,
        ),
        Action.LOWER_MINIMUM: ActionSpec(
            title="Lower minReplicas",
            deeds=_BOUNDS,
            appliers=_OF_BOUNDS,
            bound="minReplicas",
            of_service=True,
        ),
        Action.RAISE_MAXIMUM: ActionSpec(
            title="Raise maxReplicas",
            deeds=_BOUNDS,
            risk=Risk.LOW,
            appliers=_OF_BOUNDS,
            bound="maxReplicas",
            serves=True,
            of_service=True,
        ),
        Action.SPEED_UP: ActionSpec(
            title="Speed up the job",
            deeds=("let {target} work faster: {change}", "let {target} work as before"),
            risk=Risk.LOW,
            of_program=True,
        ),
        Action.MODEL_FITS: ActionSpec(title="Model fits a smaller GPU", of_service=True),
        Action.GROW: ActionSpec(
            title="Grow into free boards", appliers=_OBJECTS[:1], serves=True, resizes=True
        ),
        Action.GIVE_BACK: ActionSpec(
            title="Give boards back",
            appliers=_OBJECTS[:1],
            serves=True,
            resizes=True,
            gives_back=True,
        ),
    }
)
"""All that pages, reports, planner and appliers read of an action."""

ADVICE = frozenset(action for action, spec in ACTIONS.items() if not spec.appliers)
"""What a person does by hand: nothing in a cluster says it. See `Recommendation.is_advice`."""

FOR_MEMORY = frozenset(action for action, spec in ACTIONS.items() if spec.for_memory)
"""What keeps a job from running out of GPU memory. It costs, and no plan's saving contains it."""

NOT_FOR_SAVING = FOR_MEMORY | {action for action, spec in ACTIONS.items() if spec.serves}
"""What is proposed to serve a job: its saving may be negative, and no limit on savings holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Range:
    """An estimate as low, central, high, with its unit."""

    low: float
    central: float
    high: float
    unit: str

    def __post_init__(self) -> None:
        if not self.low <= self.central <= self.high:
            raise ValueError(f"range {self.low}..{self.central}..{self.high} is out of order")

    def times(self, factor: float) -> "Range":
        """Return it multiplied by a factor of at least 0."""
        low, central, high = (factor * value for value in (self.low, self.central, self.high))
        return Range(low=low, central=central, high=high, unit=self.unit)


@dataclass(frozen=True, slots=True, kw_only=True)
class Savings:
    """What a recommendation saves over `horizon_hours`, net of its transition and longer runs.

    None where a factor is unknown. `gpu_hours` counts in GPU-hours of the present model; a
    negative value is a loss. `emissions_kgco2e` is location-based, `market_emissions_kgco2e`
    market-based and None unless its factor is configured; the two are never added or mixed.
    """

    horizon_hours: float
    gpu_hours: Range | None
    energy_kwh: Range | None
    emissions_kgco2e: Range | None
    cost: Range | None
    market_emissions_kgco2e: Range | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """What making the change takes once: `seconds` without work for the job, in all its parts.

    `parts` are (what, central seconds), assumed per kind of job; `cost` and `gpu_hours` are in the
    savings already. `queue` tells the forecast of the wait in the queue, '' where there is none.
    """

    seconds: Range
    parts: tuple[tuple[str, float], ...]
    gpu_hours: float
    cost: float
    queue: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a recommendation rests on, so that it can be followed back to the samples."""

    signal: str
    samples: int
    window_start: datetime
    window_end: datetime
    completeness_ratio: float
    utilization_p95_ratio: float | None
    memory_max_mib: float | None
    power_mean_watts: float | None
    forecast_model: str
    backtest_error: float | None
    backtest_baseline: float | None
    factors: tuple[tuple[str, str], ...]
    assumed: tuple[tuple[str, str], ...]
    fallbacks: tuple[str, ...]
    plan_gap_ratio: float
    elasticity: str = ""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation:
    """One proposed change. `digest` names everything but the digest and the id themselves.

    `job_id` is empty for advice on the fleet, of which `job_name` says what it is about; `change`
    says what the configurations do not. It holds from `starts_at` (None: at once) to `ends_at`
    (None: for good). `delay_hours` is how much later the horizon's work is done, None without end.

    `details` are (name, value) pairs where two configurations do not say it all: begin_at (ISO
    8601), time_limit_seconds, node, mig_layout, mig_layouts_of (ConfigMap, file), memory_limit_mib
    (of a program on each device, to verify by), autoscaler with bound_now and bound_proposed.
    """

    plan_id: str
    created_at: datetime
    expires_at: datetime
    action: Action
    job_id: str
    job_name: str
    namespace: str
    platform: Platform
    now: Configuration
    proposed: Configuration
    why: str
    evidence: Evidence
    savings: Savings
    risk: Risk
    confidence: str
    details: tuple[tuple[str, str], ...] = ()
    change: str = ""
    transition: Transition | None = None
    delay_hours: Range | None = None
    starts_at: datetime | None = None
    ends_at: datetime | None = None
    kept_digest: str = field(default="", init=False, compare=False, repr=False)

    @property
    def target(self) -> str:
        """What would change: the job, or what of the fleet."""
        return self.job_id or self.job_name

    @property
    def cluster(self) -> str:
        """The cluster in which it changes something, '' for the store's own."""
        return cluster_in(self.target)

    @property
    def summary(self) -> str:
        """What is proposed, in a few words."""
        return self.change or self.proposed.describe()

    @property
    def digest(self) -> str:
        """SHA-256 of the whole recommendation, as its text was when it was kept."""
        return self.kept_digest or digest_of(self)

    def as_kept(self, digest: str) -> "Recommendation":
        """Return it with the digest of its text: later fields change none. A copy has its own."""
        object.__setattr__(self, "kept_digest", digest)
        return self

    @property
    def urgency(self) -> tuple[bool, float]:
        """Order recommendations: what keeps a job from running out of memory, the soonest first."""
        for_memory = self.action in FOR_MEMORY
        return not for_memory, self.expires_at.timestamp() if for_memory else 0.0

    @property
    def is_advice(self) -> bool:
        """Whether a person alone can do it; so is a bound whose autoscaler is not named."""
        unnamed = self.action.spec.bound and "autoscaler" not in dict(self.details)
        return self.action in ADVICE or bool(unnamed)

    def is_like(self, other: "Recommendation") -> bool:
        """Say whether two propose the same change of the same target, advice of any amount."""
        names = _CHANGE[:3] if self.is_advice and other.is_advice else _CHANGE
        return all(getattr(self, name) == getattr(other, name) for name in names)

    @property
    def recommendation_id(self) -> str:
        """The first characters of the digest, for people to type."""
        return self.digest[:SHORT_ID_LENGTH]

    def as_dict(self) -> dict[str, Any]:
        """Return the recommendation as the command line prints it."""
        told = {"id": self.recommendation_id, "digest": self.digest, "target": self.target}
        return told | {name: of for name, of in asdict(self).items() if name != "kept_digest"}

    @property
    def cancels_job(self) -> bool:
        """Whether the change ends the job for good: Slurm brings no cancelled job back."""
        return self.action.spec.takes_all and self.platform is Platform.SLURM


_CHANGE = (
    "action", "job_id", "job_name", "namespace", "platform", "now", "proposed", "details", "change",
    "starts_at", "ends_at")  # fmt: skip


class Decision(StrEnum):
    """What happened to a recommendation; appended, never edited."""

    APPROVED = "approved"
    REJECTED = "rejected"
    WRITTEN = "written"
    KEPT = "kept"


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """A person said yes to exactly this digest, and to exactly this change where one was shown."""

    digest: str
    approved_by: str
    approved_at: datetime
    comment: str = ""
    change_digest: str = ""
