"""Forecasts as rows and documents, of the command line and the API."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NotRequired

from typing_extensions import TypedDict

from data.base.rows import row_of
from data.records.forecasts import (
    UNIT_OF,
    Backtest,
    DemandForecast,
    ForecastSkipped,
    GroupForecast,
    QuantilePath,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeadRow:
    """Losses and coverage at lead times up to `until_hours`."""

    until_hours: float
    pinball_loss: float
    naive: float
    seasonal_naive: float
    coverage_ratio: float
    origins: int


@dataclass(frozen=True, slots=True, kw_only=True)
class BacktestRow:
    """Losses by model, and the coverage of the one in use."""

    pinball_loss: dict[str, float]
    held_out_slots: int
    coverage_ratio: float
    by_lead: list[LeadRow]


class PathRow(TypedDict):
    """The forecast of one quantity; its quantiles by slot only where they are asked for."""

    unit: str
    model: str
    q10_mean: float
    q50_mean: float
    q90_mean: float
    q90_max: float
    backtest: BacktestRow | None
    weights: list[dict[str, float]]
    winsorised_slots: int
    censored_slots: int
    notes: list[str]
    q10: NotRequired[tuple[float, ...]]
    q50: NotRequired[tuple[float, ...]]
    q90: NotRequired[tuple[float, ...]]


class PathsRow(TypedDict):
    """Forecasts by quantity; `slot_starts` only where quantiles by slot are asked for."""

    first_slot: datetime
    last_slot: datetime
    slots: int
    slot_starts: NotRequired[list[datetime]]
    quantities: dict[str, PathRow]


class GroupForecastRow(PathsRow):
    """The forecast of a namespace, a GPU model or the fleet."""

    kind: str
    name: str
    known_slots: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakRow:
    """Bounds of the largest slot within a window, as `WindowPeak` has them."""

    quantity: str
    unit: str
    window_hours: float
    q90: float
    q95: float
    cohort: str
    scores: int
    coverage_q90_ratio: float | None


class SkippedRow(TypedDict):
    """A job, how much is known of it, and why it has no forecast: None where it has one."""

    job_id: str
    samples: int
    history_slots: int
    known_slots: int
    skipped: str | None


class JobForecastRow(SkippedRow, PathsRow):
    """The forecast of one job."""

    missing: dict[str, str]
    borrowed_from: str | None
    peaks: list[PeakRow]


def forecast_row(
    forecast: DemandForecast | ForecastSkipped, *, points: bool = False
) -> JobForecastRow | SkippedRow:
    """Return one job's forecast, with its paths for `points`, or why it has none."""
    common = SkippedRow(
        job_id=forecast.job_id,
        samples=forecast.samples,
        history_slots=forecast.history_slots,
        known_slots=forecast.known_slots,
        skipped=forecast.reason if isinstance(forecast, ForecastSkipped) else None,
    )
    if isinstance(forecast, ForecastSkipped):
        return common
    return {
        **common,
        **_paths_row(forecast, points=points),
        "missing": {str(quantity): reason for quantity, reason in forecast.missing},
        "borrowed_from": forecast.borrowed_from or None,
        "peaks": [
            row_of(PeakRow, peak, quantity=str(peak.quantity), unit=UNIT_OF[peak.quantity])
            for peak in forecast.peaks
        ],
    }


def group_row(forecast: GroupForecast, *, points: bool = False) -> GroupForecastRow:
    """Return the forecast of a namespace, a GPU model or the fleet, with its paths for `points`."""
    return {
        "kind": str(forecast.kind),
        "name": forecast.name,
        "known_slots": forecast.known_slots,
        **_paths_row(forecast, points=points),
    }


def _paths_row(forecast: DemandForecast | GroupForecast, *, points: bool) -> PathsRow:
    """Return the forecast of each quantity, and with `points` of each slot."""
    rows = {str(path.quantity): _path_row(path) for path in forecast.paths}
    starts = forecast.slot_starts
    document = PathsRow(
        first_slot=starts[0], last_slot=starts[-1], slots=len(starts), quantities=rows
    )
    if points:
        document["slot_starts"] = list(starts)
        for path in forecast.paths:
            rows[str(path.quantity)].update({"q10": path.q10, "q50": path.q50, "q90": path.q90})
    return document


def summary_lines(rows: Sequence[Any], keys: tuple[str, ...]) -> list[dict[str, Any]]:
    """Return one flat line per quantity of each row, or its reason for having none."""
    lines: list[dict[str, Any]] = []
    for row in rows:
        subject = {key: row[key] for key in keys}
        if row.get("skipped") is not None:
            lines.append(subject | {"skipped": row["skipped"]})
            continue
        span = {"slots": row["slots"], "first_slot": row["first_slot"]}
        for quantity, summary in row["quantities"].items():
            lines.append(subject | span | {"quantity": quantity} | summary)
    return lines


def _path_row(path: QuantilePath) -> PathRow:
    return PathRow(
        unit=UNIT_OF[path.quantity],
        model=path.model,
        q10_mean=sum(path.q10) / len(path.q10),
        q50_mean=sum(path.q50) / len(path.q50),
        q90_mean=sum(path.q90) / len(path.q90),
        q90_max=max(path.q90),
        backtest=None if path.backtest is None else _backtest_row(path.backtest),
        weights=[
            {"until_hours": weight.until_hours} | dict(weight.weights) for weight in path.weights
        ],
        winsorised_slots=path.winsorised_slots,
        censored_slots=path.censored_slots,
        notes=list(path.notes),
    )


def _backtest_row(backtest: Backtest) -> BacktestRow:
    return row_of(
        BacktestRow,
        backtest,
        pinball_loss=dict(backtest.losses),
        by_lead=[
            row_of(
                LeadRow,
                lead,
                pinball_loss=lead.loss,
                naive=lead.naive_loss,
                seasonal_naive=lead.seasonal_naive_loss,
            )
            for lead in backtest.by_lead
        ],
    )
