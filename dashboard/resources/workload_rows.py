"""The week and the month of services and recurring jobs, as rows, with what they will cost."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from dashboard.accounting.cost.prices import PriceList, price_list
from dashboard.resources.forecast_rows import group_row
from data.base.clock import utc_now
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.forecasts import Quantity, WorkloadForecast, WorkloadTotal
from data.records.recommendations import Range
from data.settings.all_settings import Settings
from data.store import StoreReader

_SUM_NAMES = {
    Quantity.ALLOCATED_GPUS: "gpu_hours",
    Quantity.EFFECTIVE_GPUS: "used_gpu_hours",
    Quantity.POWER: "energy_kwh",
}
_ENDS = (("", "central"), ("_low", "low"), ("_high", "high"))
SUMMARY = (
    *("days", "gpu_hours", "gpu_hours_low", "gpu_hours_high", "gpu_hours_before"),
    *("used_gpu_hours", "energy_kwh", "cost", "cost_low", "cost_high", "currency"),
)


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
) -> list[dict[str, Any]]:
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


def total_lines(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one flat line for each of 7 and 30 days of each row."""
    lines = []
    for row in rows:
        subject = {key: row[key] for key in ("name", "kind", "runs")}
        for total in row["totals"]:
            gpu_hours, cost = total["gpu_hours"] or {}, total["cost"] or {}
            lines.append(
                subject
                | {
                    "days": total["days"],
                    **{f"gpu_hours{end}": gpu_hours.get(name) for end, name in _ENDS},
                    "gpu_hours_before": total["gpu_hours_before"],
                    **{
                        name: (total[name] or {}).get("central")
                        for name in ("used_gpu_hours", "energy_kwh")
                    },
                    **{f"cost{end}": cost.get(name) for end, name in _ENDS},
                    "currency": cost.get("unit"),
                }
            )
    return lines


def _total_row(total: WorkloadTotal, cost: Range | None) -> dict[str, Any]:
    sums, before = dict(total.sums), dict(total.before)
    return {
        "days": total.days,
        **{name: _range_row(sums.get(quantity)) for quantity, name in _SUM_NAMES.items()},
        "gpu_hours_before": before.get(Quantity.ALLOCATED_GPUS),
        "cost": _range_row(cost),
    }


def _range_row(value: Range | None) -> dict[str, Any] | None:
    if value is None:
        return None
    return {"low": value.low, "central": value.central, "high": value.high, "unit": value.unit}
