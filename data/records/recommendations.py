"""Recommendations, and the approvals of them."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Any, TypeVar

from data.facts.cluster_names import cluster_in
from data.facts.identifiers import SHORT_ID_LENGTH, digest_of
from data.facts.jobs import Platform
from data.records.actions import ADVICE, FOR_MEMORY, Action, Risk
from data.records.plans import Configuration

LIFETIME = timedelta(hours=24)
"""A recommendation that is older has expired."""

APPLY_FIRST = "apply first"
"""The factor that names the changes to be made before this one: `TARGET (ACTION), …`."""


BOARD_SHARES = "shares_per_board"
"""The detail of a node that is to offer each of its boards in so many shares."""
SHARE_RESOURCE = "share_resource"
"""The detail of a job that is to ask for shares of boards: the resource that counts them."""


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
    """The savings of a recommendation over `horizon_hours`, net of its transition and longer runs.

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

    @property
    def money(self) -> float:
        """The central saving of cost, 0 where it is unknown."""
        return 0.0 if self.cost is None else self.cost.central


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """The one-time cost of a change: `seconds` without work for the job, in all its parts.

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
    """The evidence of a recommendation, so that it can be followed back to the samples."""

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
class RecommendationFields:
    """The fields of a recommendation.

    `job_id` is empty for advice on the fleet, of which `job_name` says what it is about; `change`
    says what the configurations do not. It holds from `starts_at` (None: at once) to `ends_at`
    (None: for good). `delay_hours` is how much later the horizon's work is done, None without end.

    `details` are (name, value) pairs where two configurations do not say it all: begin_at (ISO
    8601), time_limit_seconds, node, mig_layout, mig_layouts_of (ConfigMap, file), layout and
    layouts_of (ConfigMap) with BOARD_SHARES, SHARE_RESOURCE, memory_limit_mib (of a program on each
    device, to verify by), autoscaler with bound_now and bound_proposed.
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

    @property
    def summary(self) -> str:
        """The proposal in a few words."""
        return self.change or self.proposed.describe()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecommendationRow(RecommendationFields):
    """A recommendation as commands and the API give it."""

    id: str
    digest: str
    target: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedRecommendation(RecommendationRow):
    """A recommendation and its state."""

    state: str


Row = TypeVar("Row", bound=RecommendationRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recommendation(RecommendationFields):
    """One proposed change. `digest` names everything but the digest and the id themselves."""

    kept_digest: str = field(default="", init=False, compare=False, repr=False)

    @property
    def target(self) -> str:
        """The target of the change: the job, or a part of the fleet."""
        return self.job_id or self.job_name

    @property
    def applied_first(self) -> list[str]:
        """The names of the changes to be made before it, as `TARGET (ACTION)`."""
        names = dict(self.evidence.factors).get(APPLY_FIRST, "")
        return names.split(", ") if names else []

    @property
    def name_in_order(self) -> str:
        """The name by which others name it in `applied_first`."""
        return f"{self.target} ({self.action})"

    @property
    def cluster(self) -> str:
        """The cluster in which it changes something, '' for the store's own."""
        return cluster_in(self.target)

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
        """Return whether only a person can do it; so is a bound whose autoscaler is not named."""
        unnamed = self.action.spec.bound and "autoscaler" not in dict(self.details)
        return self.action in ADVICE or bool(unnamed)

    def is_like(self, other: "Recommendation") -> bool:
        """Return whether two propose the same change of the same target, advice of any amount."""
        names = _CHANGE[:3] if self.is_advice and other.is_advice else _CHANGE
        return all(getattr(self, name) == getattr(other, name) for name in names)

    @property
    def recommendation_id(self) -> str:
        """The first characters of the digest, for people to type."""
        return self.digest[:SHORT_ID_LENGTH]

    def as_row(self, kind: type[Row], **columns: Any) -> Row:
        """Return the row of it, with these columns of its own."""
        values = {entry.name: getattr(self, entry.name) for entry in fields(RecommendationFields)}
        return kind(
            id=self.recommendation_id,
            digest=self.digest,
            target=self.target,
            **values,
            **columns,
        )

    @property
    def cancels_job(self) -> bool:
        """Return whether the change ends the job for good: Slurm brings no cancelled job back."""
        return self.action.spec.takes_all and self.platform is Platform.SLURM


_CHANGE = (
    "action", "job_id", "job_name", "namespace", "platform", "now", "proposed", "details", "change",
    "starts_at", "ends_at")  # fmt: skip


class Decision(StrEnum):
    """An event of a recommendation; appended, never edited."""

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


def in_named_order(recommendations: Sequence[Recommendation]) -> list[Recommendation]:
    """Return recommendations with those before each that it says are to be applied first."""
    ordered, rest = list[Recommendation](), list(recommendations)
    while rest:
        names = {entry.name_in_order for entry in rest}
        # Should each of them name another, the first of the list is the first.
        ready = [entry for entry in rest if names.isdisjoint(entry.applied_first)] or rest[:1]
        ordered += ready
        rest = [entry for entry in rest if entry not in ready]
    return ordered
