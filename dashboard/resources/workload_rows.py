"""The week and the month of services and recurring jobs, as rows, with what they will cost."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

from typing_extensions import TypedDict

from dashboard.accounting.cost.prices import PriceList, price_list
from dashboard.resources.forecast_rows import (
    GroupForecastRow,
    JobForecastRow,
    SkippedRow,
    forecast_row,
    group_row,
)
from dashboard.resources.resource import NoQuery, Resource, View
from data.base.clock import utc_now
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.forecasts import Quantity, WorkloadForecast, WorkloadTotal
from data.records.recommendations import Range
from data.settings.all_settings import Settings
from data.store import StoreReader

_ENDS = (("", "central"), ("_low", "low"), ("_high", "high"))
SUMMARY = (
    *("days", "gpu_hours", "gpu_hours_low", "gpu_hours_high", "gpu_hours_before"),
    *("used_gpu_hours", "energy_kwh", "cost", "cost_low", "cost_high", "currency"),
)


class TotalRow(TypedDict):
    """GPU-hours, use, energy and cost of the next `days`; None where too little is known."""

    days: int
    gpu_hours: Range | None
    used_gpu_hours: Range | None
    energy_kwh: Range | None
    gpu_hours_before: float | None
    cost: Range | None


class WorkloadRow(TypedDict):
    """The week and the month of a service or recurring job."""

    name: str
    kind: str
    job_id: str
    namespace: str
    owner: str
    gpu_models: dict[str, float]
    runs: int
    known_days: float
    totals: list[TotalRow]
    horizons: list[GroupForecastRow]


def cost_ahead(
    forecast: WorkloadForecast, total: WorkloadTotal, prices: PriceList, currency: str
) -> Range | None:
    """Return the cost of the GPU-hours ahead at today's prices, on the models of the last week.

    None where the hours or one of the prices are unknown.
    """
    hours, price = dict(total.sums).get(Quantity.ALLOCATED_GPUS), 0.0
    for model, share in forecast.gpu_models:
        price_now = prices.find(model, utc_now())
        if price_now is None:
            return None
        price += share * price_now.charged
    return None if hours is None else replace(hours.times(price), unit=currency)


def workload_rows(
    reader: StoreReader, settings: Settings, *, points: bool = False
) -> list[WorkloadRow]:
    """Return a row for each service and recurring job, the largest first.

    `totals` are of the next 7 and 30 days, `horizons` the week by the hour and the month by the
    day, with the quantiles of each slot for `points`.
    """
    prices, currency = price_list(settings, load_gpu_catalogue()), settings.energy.currency
    return [
        {
            "name": forecast.name,
            "kind": "service" if forecast.is_service else "recurring job",
            "job_id": forecast.job_id,
            "namespace": forecast.namespace,
            "owner": forecast.owner,
            "gpu_models": dict(forecast.gpu_models),
            "runs": forecast.runs,
            "known_days": forecast.known_days,
            "totals": [
                _total_row(total, cost_ahead(forecast, total, prices, currency))
                for total in forecast.totals
            ],
            "horizons": [group_row(horizon, points=points) for horizon in forecast.horizons],
        }
        for forecast in reader.workload_forecasts()
    ]


def total_lines(rows: Sequence[WorkloadRow]) -> list[dict[str, Any]]:
    """Return one flat line for each of 7 and 30 days of each row."""
    return [
        {"name": row["name"], "kind": row["kind"], "runs": row["runs"]}
        | {"days": total["days"], "gpu_hours_before": total["gpu_hours_before"]}
        | _columns("gpu_hours", total["gpu_hours"])
        | {
            "used_gpu_hours": total["used_gpu_hours"] and total["used_gpu_hours"].central,
            "energy_kwh": total["energy_kwh"] and total["energy_kwh"].central,
        }
        | _columns("cost", total["cost"])
        | {"currency": total["cost"] and total["cost"].unit}
        for row in rows
        for total in row["totals"]
    ]


def _columns(name: str, value: Range | None) -> dict[str, float | None]:
    return {f"{name}{end}": getattr(value, part, None) for end, part in _ENDS}


def _total_row(total: WorkloadTotal, cost: Range | None) -> TotalRow:
    sums = dict(total.sums)
    return TotalRow(
        days=total.days,
        gpu_hours=sums.get(Quantity.ALLOCATED_GPUS),
        used_gpu_hours=sums.get(Quantity.EFFECTIVE_GPUS),
        energy_kwh=sums.get(Quantity.POWER),
        gpu_hours_before=dict(total.before).get(Quantity.ALLOCATED_GPUS),
        cost=cost,
    )


class ForecastQuery(NoQuery):
    """The forecasts to give, and whether with the quantiles of each slot."""

    by: Literal["job", "group", "workload"] = "group"
    points: bool = False


Forecasts = list[JobForecastRow | SkippedRow] | list[GroupForecastRow] | list[WorkloadRow]


def _read(view: View, query: ForecastQuery) -> Forecasts:
    if query.by == "job":
        forecasts = view.reader.forecasts()
        return [forecast_row(forecast, points=query.points) for forecast in forecasts]
    if query.by == "workload":
        return workload_rows(view.reader, view.settings, points=query.points)
    return [group_row(group, points=query.points) for group in view.reader.group_forecasts()]


FORECASTS = Resource(
    name="forecasts",
    about="The forecasts of the latest cycle with what they were worth in the past",
    kind=Forecasts,
    query=ForecastQuery,
    read=_read,
)
