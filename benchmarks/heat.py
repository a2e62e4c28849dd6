"""Heat of a day ahead by the hour, beside persistence and seasonal naive, on recorded GPU servers.

`python -m benchmarks.heat --data DIR`, which holds facility/biohpc_gpu_hourly.parquet: hourly GPU
power of six servers, each taken as a rack, as no open series of whole racks was found. Heat is a
stated multiple of that power, so the errors of the two are alike. Nothing was chosen on this data.
"""

import argparse
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks._naive_model import NaiveModel
from dashboard.accounting.facility.heat import HISTORY_DAYS
from data.base.units import SECONDS_PER_HOUR
from data.records.forecasts import Quantity
from data.settings.all_settings import PlanningSettings
from forecasting.jobs.forecast_path import PathTask
from forecasting.jobs.path_pool import paths_of
from forecasting.models.seasonal_naive_model import SeasonalNaiveModel
from forecasting.series.demand_series import DemandSeries, Values

RESULTS = Path(__file__).parent / "results" / "heat.md"
HOURS = 24
LEVELS = (0.05, 0.5, 0.95)
_MIN_KNOWN_HOURS = 14 * 24
_DAYS_JUDGED, _DAYS_JUDGED_FULL = 60, 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Day:
    """A day of a server: the power before it and what came, W by the hour, NaN where unknown."""

    series: DemandSeries
    came: Values


def days_of(power: Values, most: int) -> Iterator[Day]:
    """Yield up to so many days, spread evenly, before which two weeks are known."""
    every = max(1, len(power) // HOURS // most)
    start = HISTORY_DAYS * HOURS
    for origin in range(start, len(power) - HOURS + 1, HOURS * every):
        before, came = power[origin - start : origin], power[origin : origin + HOURS]
        if np.isfinite(before).sum() >= _MIN_KNOWN_HOURS and np.isfinite(came).any():
            yield Day(
                series=DemandSeries(
                    quantity=Quantity.POWER,
                    first_slot=0,
                    slot_seconds=SECONDS_PER_HOUR,
                    values=before,
                    lower=0.0,
                    upper=np.inf,
                ),
                came=came,
            )


def forecasts(days: list[Day]) -> dict[str, Values]:
    """Return the quantiles of each model, [days, levels, hours]."""
    first = HISTORY_DAYS * HOURS * SECONDS_PER_HOUR
    tasks = [PathTask(series=day.series, first_slot=first, horizon=HOURS) for day in days]
    paths = paths_of(tasks, settings=PlanningSettings(model="mix"))
    found = {"Trimtab": [(path.q05, path.q50, path.q95) for path in paths]}
    for name, model in (("persistence", NaiveModel()), ("seasonal naive", SeasonalNaiveModel())):
        made = [model.forecast(day.series, HOURS) for day in days]
        found[name] = [(quantiles.q05, quantiles.q50, quantiles.q95) for quantiles in made]
    return {name: np.array(rows, dtype=float) for name, rows in found.items()}


def judged(quantiles: Values, came: Values) -> tuple[float, float, float]:
    """Return mean absolute error and mean pinball loss in W, and the share inside q05..q95."""
    known = np.isfinite(came)
    losses = [
        np.maximum(level * (came - row), (level - 1) * (came - row))[known].mean()
        for level, row in zip(LEVELS, quantiles.swapaxes(0, 1), strict=True)
    ]
    inside = (came >= quantiles[:, 0]) & (came <= quantiles[:, 2])
    error = np.abs(quantiles[:, 1] - came)[known].mean()
    return float(error), float(np.mean(losses)), float(inside[known].mean())


def main() -> None:
    """Write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--full", action="store_true", help="every day; else about 60 a server")
    options = parser.parse_args()
    frame = pd.read_parquet(options.data / "facility" / "biohpc_gpu_hourly.parquet")
    lines = [
        "# Heat a day ahead",
        "",
        "| server | days | mean, W | model | absolute error, W | pinball loss, W | in 90 % band |",
        "|---|---:|---:|---|---:|---:|---:|",
    ]
    scores: dict[str, list[tuple[float, float, float]]] = {}
    for server, rows in frame.groupby("server"):
        hourly = rows.set_index(pd.to_datetime(rows["time_local"]))["gpu_power_avg_w"].sort_index()
        power = hourly[~hourly.index.duplicated()].asfreq("h").to_numpy(float)
        days = list(days_of(power, _DAYS_JUDGED_FULL if options.full else _DAYS_JUDGED))
        came = np.array([day.came for day in days])
        for name, quantiles in forecasts(days).items():
            error, loss, inside = judged(quantiles, came)
            mean = np.nanmean(came)
            scores.setdefault(name, []).append((error / mean, loss / mean, inside))
            lines.append(
                f"| {server} | {len(days)} | {mean:.0f} | {name} | {error:.1f} | {loss:.2f} "
                f"| {inside:.1%} |"
            )
    for name, rows_of in scores.items():
        error, loss, inside = np.mean(rows_of, axis=0)
        lines.append(f"| all, of the mean | | | {name} | {error:.3f} | {loss:.4f} | {inside:.1%} |")
    RESULTS.write_text("\n".join(lines) + "\n")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
