"""Forecasts: quantile paths per job, or the reason why there is none."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class Quantity(StrEnum):
    """What is forecast; the value is the history column."""

    EFFECTIVE_GPUS = "effective_gpus"
    MEMORY = "memory_used_mib"
    POWER = "power_watts"


UNIT_OF = {
    Quantity.EFFECTIVE_GPUS: "GPU",
    Quantity.MEMORY: "MiB",
    Quantity.POWER: "W",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Backtest:
    """Mean pinball loss (q10, q50, q90) on held-out slots, in the unit of the quantity.

    `losses` has one (model, loss) pair per model tried; `held_out_slots` says on how many slots.
    `coverage_ratio` is the held-out share inside q10..q90 of the chosen model.
    """

    losses: tuple[tuple[str, float], ...]
    held_out_slots: int
    coverage_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantilePath:
    """q10, q50 and q90 of one quantity for every slot of the horizon."""

    quantity: Quantity
    model: str
    q10: tuple[float, ...]
    q50: tuple[float, ...]
    q90: tuple[float, ...]
    backtest: Backtest | None
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not len(self.q10) == len(self.q50) == len(self.q90):
            raise ValueError(f"quantile paths of {self.quantity} differ in length")
        triples = zip(self.q10, self.q50, self.q90, strict=True)
        if not all(low <= mid <= high for low, mid, high in triples):
            raise ValueError(f"quantiles of {self.quantity} cross")


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandForecast:
    """The forecast of one job: a path per quantity that could be forecast.

    A quantity that the job's source never reported is absent from `paths` and named in `missing`.
    """

    job_id: str
    slot_starts: tuple[datetime, ...]
    paths: tuple[QuantilePath, ...]
    missing: tuple[tuple[Quantity, str], ...]
    samples: int
    history_slots: int
    known_slots: int

    def path(self, quantity: Quantity) -> QuantilePath | None:
        """Give the path of a quantity, or None when it could not be forecast."""
        return next((path for path in self.paths if path.quantity is quantity), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForecastSkipped:
    """No forecast for this job, and why."""

    job_id: str
    reason: str
    samples: int
    history_slots: int
    known_slots: int
