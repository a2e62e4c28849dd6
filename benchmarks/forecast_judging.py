"""Forecasters judged on hourly demand: conformal baselines, rolling origins, one table row each."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from tqdm import tqdm

from benchmarks.demand_sets import DemandSet, Values
from data.records.forecasts import Quantity
from forecasting.models.backtest import inside_band, pinball_losses
from forecasting.models.demand_model import LEVELS, DemandModel, Quantiles
from forecasting.series.demand_series import DemandSeries

HISTORY_DAYS = 60
FIRST_ORIGIN_DAYS = 42
DAY = 24
_POOL = 2


@dataclass(slots=True)
class Row:
    """What one model did on one series."""

    pinball: list[float]
    error: list[float]
    inside: list[float]
    seconds: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """All models on one set: rows by model and series, the better baseline's loss by series."""

    name: str
    rows: dict[str, dict[str, Row]]
    baseline: dict[str, float]
    scale: dict[str, float]


def conformal(values: Values, origin: int, horizon: int, *, seasonal: bool) -> Quantiles:
    """Return naive or seasonal naive with the quantiles of its own residuals at the same hour."""

    def point(at: int) -> Values:
        if not seasonal:
            return np.full(horizon, values[at - 1])
        return values[at - DAY : at][np.arange(horizon) % DAY]

    earlier = np.arange(origin - DAY, 28 * DAY - 1, -DAY)
    earlier = earlier[earlier + horizon <= origin][:60]
    residuals = np.stack([values[at : at + horizon] - point(int(at)) for at in earlier])
    rows = np.stack(
        [
            np.quantile(residuals[:, max(0, lead - _POOL) : lead + _POOL + 1], LEVELS)
            for lead in range(horizon)
        ],
        axis=1,
    )
    found = point(origin) + rows
    if values.min() >= 0:
        found = np.maximum(found, 0.0)
    return Quantiles(q05=found[0], q10=found[0], q50=found[1], q90=found[2], q95=found[2])


def as_series(values: Values, slot_seconds: int) -> DemandSeries:
    """Return the values as a series whose lower bound is 0 when they never go below."""
    return DemandSeries(
        quantity=Quantity.ALLOCATED_GPUS,
        first_slot=0,
        slot_seconds=slot_seconds,
        values=values,
        lower=0.0 if np.nanmin(values) >= 0 else -np.inf,
        upper=np.inf,
    )


def judge(
    demand: DemandSet,
    models: Sequence[DemandModel],
    *,
    horizon: int,
    origins: Callable[[int], Sequence[int]],
) -> Judged:
    """Ask every model at `origins(length)` of every series for `horizon` hours.

    A series too short for one such moment is left out.
    """
    rows: dict[str, dict[str, Row]] = {demand_model.name: {} for demand_model in models}
    plain = {"naive, conformal": False, "seasonal naive, conformal": True}
    rows |= {name: {} for name in plain}
    baseline, scale = {}, {}
    for name, values in tqdm(demand.series.items(), desc=f"{demand.name} {horizon} h", leave=False):
        if not origins(len(values)):
            continue
        scale[name] = float(np.abs(values[DAY:] - values[:-DAY]).mean())
        for key in rows:
            rows[key][name] = Row([], [], [])
        for origin in origins(len(values)):
            truth = values[origin : origin + horizon]
            past = as_series(values[max(0, origin - HISTORY_DAYS * DAY) : origin], 3600)
            past = replace(past, lower=0.0 if values.min() >= 0 else -np.inf)
            for key, seasonal in plain.items():
                add(rows[key][name], truth, conformal(values, origin, horizon, seasonal=seasonal))
            for model in models:
                started = time.process_time()
                found = model.forecast(past, horizon)
                rows[model.name][name].seconds += time.process_time() - started
                add(rows[model.name][name], truth, found)
        baseline[name] = min(np.mean(rows[key][name].pinball) for key in plain)
    return Judged(name=demand.name, rows=rows, baseline=baseline, scale=scale)


def add(row: Row, truth: Values, found: Quantiles) -> None:
    """Add one answer to a row."""
    known = np.isfinite(truth)
    row.pinball.append(float(np.mean(pinball_losses(truth, found)[known])))
    row.error.append(float(np.mean(np.abs(truth - found.q50)[known])))
    row.inside.append(float(inside_band(truth, found)[known].mean()))


def table(judged: Judged) -> list[str]:
    """Return the rows of one set: ratio, worst series, MASE, coverage, speed."""
    lines: list[str] = []
    for model, by_series in judged.rows.items() if judged.baseline else ():
        ratios = [np.mean(row.pinball) / judged.baseline[name] for name, row in by_series.items()]
        mase = [np.mean(row.error) / judged.scale[name] for name, row in by_series.items()]
        inside = [np.mean(row.inside) for row in by_series.values()]
        seconds = sum(row.seconds for row in by_series.values())
        asked = sum(len(row.pinball) for row in by_series.values())
        speed = f"{asked / seconds:,.0f}" if seconds > 0 else "–"
        lines.append(
            f"| {judged.name} | {model} | {asked} | {np.mean(ratios):.3f} | {max(ratios):.3f} | "
            f"{np.mean(mase):.3f} | {np.mean(inside):.3f} | {min(inside):.2f}–{max(inside):.2f} | "
            f"{speed} |"
        )
    return lines


HEAD = (
    (
        "| set | model | forecasts | pinball / better baseline | worst series | MASE "
        "| inside q10–q90 | by series | per core-s |"
    ),
    "|---|---|---:|---:|---:|---:|---:|---:|---:|",
)


def origins_every(
    days: float, horizon: int, *, phases: Sequence[int] = (0,)
) -> Callable[[int], list[int]]:
    """Return moments every `days` from day 42 on, at these hours of the day."""

    def found(length: int) -> list[int]:
        starts = np.arange(FIRST_ORIGIN_DAYS, length / DAY, days)
        moments = [int(day) * DAY + phase for day in starts for phase in phases]
        return [moment for moment in moments if moment + horizon <= length]

    return found
