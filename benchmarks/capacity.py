"""Boards to keep for a month: the product's rule beside others and an oracle, on recorded demand.

`python -m benchmarks.capacity --data DIR`, which holds philly/hourly_gpu_demand_by_vc.parquet and
helios_venus/venus_10min.parquet. Each month is judged by what came in it; months of a series
overlap (one begins every four days), as the recordings are 67 days and some months long.
"""

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from benchmarks.demand_sets import DemandSet, Values, helios, philly
from dashboard.accounting.facility.capacity import WEEKS, HourPrices, boards_to_keep, cost_per_hour
from data.base.units import SECONDS_PER_DAY, SECONDS_PER_HOUR
from data.records.forecasts import QuantilePath, Quantity
from data.settings.all_settings import PlanningSettings
from forecasting.groups.group_forecasts import by_slot
from forecasting.jobs.forecast_path import PathTask
from forecasting.jobs.path_pool import paths_of
from forecasting.series.demand_series import DemandSeries
from planner.costs.cost import quantile_curve

RESULTS = Path(__file__).parent / "results" / "capacity.md"
DAYS, EVERY_DAYS, MIN_HISTORY_DAYS = 30, 4, 28
MISSING_PRICES = (1.5, 2.5, 4.0, 20.0)
_DAY = 24
_RUNNING_AT_START = 765  # of Helios: its series begins at 0
_ABOUT = (
    "Money of the boards kept and of the GPU-hours missing above them, over the months that came, "
    "above that of the best fixed number. Columns: price of a missing GPU-hour, in prices of a "
    "board-hour. The number of weeks was not chosen on either set; that the past is taken and not "
    "its forecast was chosen on both."
)
_DRAWS = (np.arange(20) + 0.5) / 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Month:
    """A month of a series: demand before it and in it (GPUs, [hours]), and its forecast."""

    before: Values
    came: Values
    forecast: QuantilePath | None = None

    def last(self, days: int) -> Values:
        """Return the demand of the days before it."""
        return self.before[-days * _DAY :]


def months(demand: DemandSet) -> Iterator[Month]:
    """Yield the months of each series, with the history that was known before."""
    for name, row in sorted(demand.series.items()):
        hours = row[-demand.first.get(name, 0) % _DAY :]
        for origin in range(MIN_HISTORY_DAYS, len(hours) // _DAY - DAYS + 1, EVERY_DAYS):
            start, end = origin * _DAY, (origin + DAYS) * _DAY
            yield Month(before=hours[:start], came=hours[start:end])


def forecasted(found: list[Month]) -> list[Month]:
    """Return the months with the forecast of their days, as a cycle makes it."""
    tasks = []
    for month in found:
        series = DemandSeries(
            quantity=Quantity.ALLOCATED_GPUS,
            first_slot=0,
            slot_seconds=SECONDS_PER_HOUR,
            values=month.before,
            lower=0.0,
            upper=np.inf,
        )
        by_day = by_slot(series, SECONDS_PER_DAY)
        first = len(month.before) * SECONDS_PER_HOUR
        tasks.append(PathTask(series=by_day, first_slot=first, horizon=DAYS))
    paths = paths_of(tasks, settings=PlanningSettings(model="mix"))
    return [replace(month, forecast=path) for month, path in zip(found, paths, strict=True)]


def hours_ahead(month: Month) -> Values:
    """Return demands of the hours ahead, equally likely: a day's forecast and hours about it."""
    path = month.forecast
    if path is None:
        raise ValueError("the month has no forecast")
    rows = {0.05: path.q05, 0.1: path.q10, 0.25: path.q25, 0.5: path.q50}
    rows |= {0.75: path.q75, 0.9: path.q90, 0.95: path.q95}
    levels, days = quantile_curve([(level, np.array(row)) for level, row in rows.items() if row])
    means = np.concatenate([np.interp(_DRAWS, levels, day) for day in days.T])
    past = month.last(MIN_HISTORY_DAYS).reshape(-1, _DAY)
    spread = np.quantile(past - past.mean(axis=1, keepdims=True), _DRAWS)
    return np.asarray(np.maximum((means[:, None] + spread).ravel(), 0.0), dtype=np.float64)


RULES: dict[str, Callable[[Month, HourPrices], float]] = {
    "Trimtab": lambda month, prices: boards_to_keep(month.last(7 * WEEKS), prices),
    "the same of the last week": lambda month, prices: boards_to_keep(month.last(7), prices),
    "the same of the month's forecast": lambda month, prices: boards_to_keep(
        hours_ahead(month), prices
    ),
    "mean of the last 8 weeks": lambda month, _prices: np.ceil(month.last(7 * WEEKS).mean()),
    "q95 of the last 8 weeks": lambda month, _prices: np.ceil(
        np.quantile(month.last(7 * WEEKS), 0.95)
    ),
    "peak of the last 8 weeks": lambda month, _prices: np.ceil(month.last(7 * WEEKS).max()),
    "oracle": lambda month, prices: boards_to_keep(month.came, prices),
}


def in_range(month: Month, prices: HourPrices) -> bool:
    """Say whether the oracle's number is within what single weeks of the history asked for."""
    past = month.last(7 * WEEKS)
    week = 7 * _DAY
    asked = [
        boards_to_keep(past[at - week : at], prices) for at in range(len(past), week - 1, -week)
    ]
    return min(asked) <= boards_to_keep(month.came, prices) <= max(asked)


def table(demand: DemandSet) -> list[str]:
    """Return the lines of a set: cost above the oracle by rule and price."""
    found = forecasted(list(months(demand)))
    prices = [HourPrices(board=1.0, missing=missing) for missing in MISSING_PRICES]
    lines = [
        f"## {demand.name}: {len(demand.series)} series, {len(found)} months",
        "",
        "| cost above the oracle's | "
        + " | ".join(f"{price.missing:g}" for price in prices)
        + " |",
        "|---" + "|---:" * len(prices) + "|",
    ]
    costs = {
        name: [
            sum(cost_per_hour(rule(month, price), month.came, price) for month in found)
            for price in prices
        ]
        for name, rule in RULES.items()
    }
    for name, sums in costs.items():
        above = [total / best - 1 for total, best in zip(sums, costs["oracle"], strict=True)]
        lines.append(f"| {name} | " + " | ".join(f"{ratio:.1%}" for ratio in above) + " |")
    held = [np.mean([in_range(month, price) for month in found]) for price in prices]
    lines.append(
        "| months whose best number lay between those of single weeks before | "
        + " | ".join(f"{share:.0%}" for share in held)
        + " |"
    )
    return [*lines, ""]


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--full", action="store_true", help="no difference: all months are read")
    data = parser.parse_args().data
    running = helios(data).series["running_gpu_est"] + _RUNNING_AT_START
    venus = DemandSet(
        name="helios venus",
        slot_seconds=SECONDS_PER_HOUR,
        series={"running": np.maximum(running, 0.0)},
    )
    lines = [
        "# Boards to keep for a month",
        "",
        _ABOUT,
        "",
        *table(philly(data)),
        *table(venus),
    ]
    RESULTS.write_text("\n".join(lines).rstrip() + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
