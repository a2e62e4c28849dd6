"""Forecasts: quantile paths per job, or the reason why there is none."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum

from data.records.recommendations import Range

MIN_HISTORY_HOURS = 6.0
"""Fewer show no course of a day: a job then borrows the forecast of similar ones."""


class Quantity(StrEnum):
    """A quantity that is forecast; the value is the history column."""

    EFFECTIVE_GPUS = "effective_gpus"
    MEMORY = "memory_used_mib"
    POWER = "power_watts"
    ALLOCATED_GPUS = "allocated_gpus"


JOB_QUANTITIES = (Quantity.EFFECTIVE_GPUS, Quantity.MEMORY, Quantity.POWER)
GROUP_QUANTITIES = (Quantity.ALLOCATED_GPUS, Quantity.EFFECTIVE_GPUS, Quantity.POWER)

UNIT_OF = {
    Quantity.ALLOCATED_GPUS: "GPU",
    Quantity.EFFECTIVE_GPUS: "GPU",
    Quantity.MEMORY: "MiB",
    Quantity.POWER: "W",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadAccuracy:
    """The accuracy of a model at lead times up to `until_hours`, tested at `origins` past moments.

    Losses are mean pinball losses over q10, q50, q90 in the unit of the quantity, those of naive
    and seasonal naive with residual bands of their own; `coverage_ratio` is the share inside
    q10..q90.
    """

    until_hours: float
    loss: float
    naive_loss: float
    seasonal_naive_loss: float
    coverage_ratio: float
    origins: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadWeights:
    """The weights of a mix's members at lead times up to `until_hours`; they add up to 1."""

    until_hours: float
    weights: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """Mean pinball loss (q10, q50, q90) of what past moments would have forecast.

    `losses` has one (model, loss) pair per model, in the unit of the quantity; `held_out_slots`
    says on how many slots. `coverage_ratio` is the share inside q10..q90 of the model in use.
    `by_lead` tells it per lead time, nearest first.
    """

    losses: tuple[tuple[str, float], ...]
    held_out_slots: int
    coverage_ratio: float
    by_lead: tuple[LeadAccuracy, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantilePath:
    """q10, q50 and q90 of one quantity for every slot of the horizon.

    q05 and q95, q25 and q75 are empty where a model does not give them. `weights` says which
    members a mix rests on; `winsorised_slots` and `censored_slots` how many slots of the history
    were cut down as outliers, and in how many the job used all it had, so that it may have wanted
    more.
    """

    quantity: Quantity
    model: str
    q10: tuple[float, ...]
    q50: tuple[float, ...]
    q90: tuple[float, ...]
    backtest: Backtest | None
    notes: tuple[str, ...] = ()
    q05: tuple[float, ...] = ()
    q95: tuple[float, ...] = ()
    q25: tuple[float, ...] = ()
    q75: tuple[float, ...] = ()
    weights: tuple[LeadWeights, ...] = ()
    winsorised_slots: int = 0
    censored_slots: int = 0

    def __post_init__(self) -> None:
        if not len(self.q10) == len(self.q50) == len(self.q90):
            raise ValueError(f"quantile paths of {self.quantity} differ in length")
        if len(self.q05) not in (0, len(self.q10)) or len(self.q95) != len(self.q05):
            raise ValueError(f"the outer quantiles of {self.quantity} differ in length")
        if len(self.q25) not in (0, len(self.q10)) or len(self.q75) != len(self.q25):
            raise ValueError(f"the quartiles of {self.quantity} differ in length")
        triples = zip(self.q10, self.q50, self.q90, strict=True)
        if not all(low <= mid <= high for low, mid, high in triples):
            raise ValueError(f"quantiles of {self.quantity} cross")


@dataclass(frozen=True, slots=True, kw_only=True)
class WindowPeak:
    """The bounds of the largest slot in the next `window_hours` with 90 and 95 %.

    Split-conformal over `scores` past windows of `cohort`; `coverage_q90_ratio` is the share of
    the latest windows that stayed under a q90 given beforehand, None when none could be tested.
    """

    quantity: Quantity
    window_hours: float
    q90: float
    q95: float
    cohort: str
    scores: int
    coverage_q90_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandForecast:
    """The forecast of one job: a path per quantity that could be forecast.

    A quantity that the job's source never reported is absent from `paths` and named in `missing`.
    `borrowed_from` says whose history a new job's forecast rests on, '' when on its own.
    """

    job_id: str
    slot_starts: tuple[datetime, ...]
    paths: tuple[QuantilePath, ...]
    missing: tuple[tuple[Quantity, str], ...]
    samples: int
    history_slots: int
    known_slots: int
    peaks: tuple[WindowPeak, ...] = ()
    borrowed_from: str = ""

    def path(self, quantity: Quantity) -> QuantilePath | None:
        """Return the path of a quantity, or None when it could not be forecast."""
        return next((path for path in self.paths if path.quantity is quantity), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastSkipped:
    """No forecast for this job, and why."""

    job_id: str
    reason: str
    samples: int
    history_slots: int
    known_slots: int

    @property
    def is_away(self) -> bool:
        """Return whether the job has done nothing for hours: it ended, waits or is suspended."""
        return self.reason.startswith(("ended", "it waits", "it is suspended"))


class GroupKind(StrEnum):
    """The key by which jobs are added up; of a rack (a power domain) the power of its boards alone.

    A workload is a service, or all runs of a recurring job.
    """

    FLEET = "fleet"
    NAMESPACE = "namespace"
    GPU_MODEL = "gpu_model"
    RACK = "rack"
    WORKLOAD = "workload"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupForecast:
    """The forecast of a group of jobs (namespace or partition, GPU model, fleet) or of a rack.

    One path by quantity. Jobs yet to come are part of it, since the history holds the coming and
    going of jobs. A GPU model of a further cluster is called MODEL@CLUSTER.
    """

    kind: GroupKind
    name: str
    slot_starts: tuple[datetime, ...]
    paths: tuple[QuantilePath, ...]
    known_slots: int

    @property
    def by_hour(self) -> bool:
        """Return whether this is the week by the hour, not the month by the day."""
        starts = self.slot_starts
        return len(starts) > 1 and starts[1] - starts[0] == timedelta(hours=1)

    def path(self, quantity: Quantity) -> QuantilePath | None:
        """Return the path of a quantity, or None when it could not be forecast."""
        return next((path for path in self.paths if path.quantity is quantity), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadTotal:
    """The GPUs, use (GPU-h) and energy (kWh) of a workload in the next `days`: 80 % intervals.

    `before` is the same of as many days until now. A quantity is absent where too little is known.
    """

    days: int
    sums: tuple[tuple[Quantity, Range], ...]
    before: tuple[tuple[Quantity, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadForecast:
    """The week and the month of a service, or of a recurring job with all its runs.

    `job_ids` are its newest runs, the newest last; `gpu_models` on what shares of its GPU-hours of
    the last week it ran, by model. `horizons` are the week by the hour and
    the month by the day, with jobs yet to come. Mean quantiles of slots added up would be too wide
    for their sum, so `totals` are forecast from whole days.
    """

    name: str
    job_ids: tuple[str, ...]
    namespace: str
    owner: str
    gpu_models: tuple[tuple[str, float], ...]
    is_service: bool
    runs: int
    known_days: float
    totals: tuple[WorkloadTotal, ...]
    horizons: tuple[GroupForecast, ...]

    @property
    def job_id(self) -> str:
        """Its newest run."""
        return self.job_ids[-1]


_LEAD_TOLERANCE = 1.05
"""Leads that differ by no more are one: a horizon that begins a slot later ends a slot later."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastTest:
    """One path of one job's forecast: its model, its test, and what it rests on."""

    job_id: str
    borrowed_from: str
    quantity: Quantity
    model: str
    backtest: Backtest | None
    notes: tuple[str, ...]
    winsorised_slots: int
    censored_slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadMeans:
    """The mean over series at lead times up to `until_hours`: losses as shares of naive's.

    Series whose naive loss is zero count for the coverage only; None where none is left.
    """

    until_hours: float
    loss_ratio: float | None
    seasonal_naive_ratio: float | None
    coverage_ratio: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastSummary:
    """The sum of all jobs' forecasts of a cycle, and the results of their tests.

    `demand` is the sum of the GPUs that jobs will use, with its slots, None without forecasts;
    `series` counts their paths that were tested.
    """

    demand: tuple[tuple[datetime, ...], QuantilePath] | None
    series: int
    leads: tuple[LeadMeans, ...]


def lead_means(tested: Iterable[LeadAccuracy]) -> tuple[LeadMeans, ...]:
    """Return the means of what was found, by lead time; leads that nothing was tested at lack."""
    import numpy as np

    by_lead: dict[float, list[LeadAccuracy]] = {}
    # A stable order by lead keeps the order of the series within each.
    for accuracy in sorted(tested, key=lambda entry: entry.until_hours):
        first = next(reversed(by_lead), 0.0)
        lead = accuracy.until_hours
        by_lead.setdefault(lead if lead > _LEAD_TOLERANCE * first else first, []).append(accuracy)

    def mean(values: list[float]) -> float | None:
        return float(np.mean(values)) if values else None

    means = []
    for lead, alike in by_lead.items():
        judged = [accuracy for accuracy in alike if accuracy.naive_loss > 0]
        means.append(
            LeadMeans(
                until_hours=lead,
                loss_ratio=mean([entry.loss / entry.naive_loss for entry in judged]),
                seasonal_naive_ratio=mean(
                    [entry.seasonal_naive_loss / entry.naive_loss for entry in judged]
                ),
                coverage_ratio=mean([entry.coverage_ratio for entry in alike]),
            )
        )
    return tuple(means)
