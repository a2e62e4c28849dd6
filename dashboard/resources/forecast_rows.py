"""Forecasts as rows and documents, of the command line and the API."""

from typing import Any

from data.records.forecasts import (
    UNIT_OF,
    DemandForecast,
    ForecastSkipped,
    GroupForecast,
    QuantilePath,
)


def forecast_row(
    forecast: DemandForecast | ForecastSkipped, *, points: bool = False
) -> dict[str, Any]:
    """Return one job's forecast, with its paths for `points`, or why it has none."""
    common = {
        "job_id": forecast.job_id,
        "samples": forecast.samples,
        "history_slots": forecast.history_slots,
        "known_slots": forecast.known_slots,
    }
    if isinstance(forecast, ForecastSkipped):
        return common | {"skipped": forecast.reason}
    return common | {
        "skipped": None,
        "first_slot": forecast.slot_starts[0],
        "last_slot": forecast.slot_starts[-1],
        "slots": len(forecast.slot_starts),
        "missing": {str(quantity): reason for quantity, reason in forecast.missing},
        "borrowed_from": forecast.borrowed_from or None,
        **_paths(forecast, points=points),
        "peaks": [
            {
                "quantity": str(peak.quantity),
                "unit": UNIT_OF[peak.quantity],
                "window_hours": peak.window_hours,
                "q90": peak.q90,
                "q95": peak.q95,
                "cohort": peak.cohort,
                "scores": peak.scores,
                "coverage_q90_ratio": peak.coverage_q90_ratio,
            }
            for peak in forecast.peaks
        ],
    }


def group_row(forecast: GroupForecast, *, points: bool = False) -> dict[str, Any]:
    """Return the forecast of a namespace, a GPU model or the fleet, with its paths for `points`."""
    return {
        "kind": str(forecast.kind),
        "name": forecast.name,
        "known_slots": forecast.known_slots,
        "first_slot": forecast.slot_starts[0],
        "last_slot": forecast.slot_starts[-1],
        "slots": len(forecast.slot_starts),
        **_paths(forecast, points=points),
    }


def _paths(forecast: DemandForecast | GroupForecast, *, points: bool) -> dict[str, Any]:
    """Return the forecast of each quantity, and with `points` of each slot."""
    rows = {str(path.quantity): _path_row(path) for path in forecast.paths}
    if not points:
        return {"quantities": rows}
    for path in forecast.paths:
        rows[str(path.quantity)] |= {"q10": path.q10, "q50": path.q50, "q90": path.q90}
    return {"slot_starts": list(forecast.slot_starts), "quantities": rows}


def summary_lines(rows: list[dict[str, Any]], keys: tuple[str, ...]) -> list[dict[str, Any]]:
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


def _path_row(path: QuantilePath) -> dict[str, Any]:
    return {
        "unit": UNIT_OF[path.quantity],
        "model": path.model,
        "q10_mean": sum(path.q10) / len(path.q10),
        "q50_mean": sum(path.q50) / len(path.q50),
        "q90_mean": sum(path.q90) / len(path.q90),
        "q90_max": max(path.q90),
        "backtest": None
        if path.backtest is None
        else {
            "pinball_loss": dict(path.backtest.losses),
            "held_out_slots": path.backtest.held_out_slots,
            "coverage_ratio": path.backtest.coverage_ratio,
            "by_lead": [
                {
                    "until_hours": lead.until_hours,
                    "pinball_loss": lead.loss,
                    "naive": lead.naive_loss,
                    "seasonal_naive": lead.seasonal_naive_loss,
                    "coverage_ratio": lead.coverage_ratio,
                    "origins": lead.origins,
                }
                for lead in path.backtest.by_lead
            ],
        },
        "weights": [
            {"until_hours": weight.until_hours} | dict(weight.weights) for weight in path.weights
        ],
        "winsorised_slots": path.winsorised_slots,
        "censored_slots": path.censored_slots,
        "notes": list(path.notes),
    }
