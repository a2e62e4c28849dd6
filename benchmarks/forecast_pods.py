"""Bursty one-day pods: two hours ahead, peaks of the next window, pods that just began."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from benchmarks._naive_model import NaiveModel
from benchmarks.demand_sets import pods
from benchmarks.forecast_judging import Row, add, as_series
from data.records.forecasts import Quantity
from forecasting.forecast import borrowed
from forecasting.mix.model import MixModel
from forecasting.models.seasonal_naive_model import SeasonalNaiveModel
from forecasting.series.window_peaks import PeakSubject, window_peaks

COLUMNS = (("gpu_util_pct", "utilization, %", 100.0), ("gpu_mem_used_bytes", "memory, GiB", 80.0))
_HOUR = 12


def _mean(values: Sequence[float] | np.ndarray, digits: int = 3) -> str:
    """Return the mean of what was judged, a dash where nothing was."""
    return f"{np.mean(values):.{digits}f}" if len(values) else "–"


def pod_tables(data: Path) -> list[str]:
    """Return the tables of the pods."""
    return [*_ahead_table(data), *_peak_table(data), *_cold_table(data)]


def _ahead_table(data: Path) -> list[str]:
    """Return loss and coverage two hours ahead, asked every second hour from hour 8 on."""
    lines = [
        "",
        "**Bursty pods** (one day, 5-min slots): two hours ahead, every second hour from hour 8.",
        "",
        "| quantity | model | forecasts | pinball / naive | inside q10–q90 |",
        "|---|---|---:|---:|---:|",
    ]
    for column, words, _scale in COLUMNS:
        models = (NaiveModel(), SeasonalNaiveModel(), MixModel())
        ratios: dict[str, list[float]] = {naive_model.name: [] for naive_model in models}
        inside: dict[str, list[float]] = {naive_model.name: [] for naive_model in models}
        for values in pods(data, column).series.values():
            mine = {naive_model.name: Row([], [], []) for naive_model in models}
            for origin in range(8 * _HOUR, len(values) - 2 * _HOUR, 2 * _HOUR):
                truth = values[origin : origin + 2 * _HOUR]
                past = as_series(values[:origin], 300)
                if np.isfinite(truth).any() and past.known.sum() >= 4 * _HOUR:
                    for model in models:
                        add(mine[model.name], truth, model.forecast(past, 2 * _HOUR))
            base = float(np.mean(mine["naive"].pinball)) if mine["naive"].pinball else 0.0
            for name, row in mine.items():
                inside[name] += row.inside
                if base > 0:
                    ratios[name].append(float(np.mean(row.pinball)) / base)
        lines += [
            f"| {words} | {name} | {len(inside[name])} | {_mean(ratios[name])} | "
            f"{_mean(inside[name])} |"
            for name in ratios
        ]
    return lines


def _peak_table(data: Path) -> list[str]:
    """Return how many peaks of the next 6 h stayed under a limit made before."""
    lines = [
        "",
        "**Peaks of the next 6 h** (5-min slots, hourly from hour 14, limits from the past only).",
        "",
        "| quantity | rule | cases | under q90 | under q95 | mean q90 |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for column, words, scale in COLUMNS:
        series = {name: row for name, row in pods(data, column).series.items() if len(row) >= 280}
        own: list[tuple[float, float]] = []
        fleet: list[tuple[float, float, float]] = []
        for origin in range(14 * _HOUR, 280 - 6 * _HOUR, _HOUR):
            subjects = [
                PeakSubject(
                    job_id=name, cohort="pods", series=as_series(row[:origin], 300), scale=scale
                )
                for name, row in series.items()
            ]
            found = window_peaks(subjects, quantity=Quantity.MEMORY, window_slots=6 * _HOUR)
            for name, peak in found.items():
                coming = series[name][origin : origin + 6 * _HOUR]
                if np.isfinite(coming).any():
                    top = float(np.nanmax(coming))
                    own.append((top, float(np.nanquantile(series[name][:origin], 0.95))))
                    fleet.append((top, peak.q90, peak.q95))
        top, limit = np.array(own).reshape(-1, 2).T
        lines.append(
            f"| {words} | own P95 (KRR's CPU rule) | {len(own)} | {_mean(top <= limit)} | – |"
            f" {_mean(limit, 1)} |"
        )
        top, q90, q95 = np.array(fleet).reshape(-1, 3).T
        lines.append(
            f"| {words} | split-conformal over the fleet | {len(fleet)} | "
            f"{_mean(top <= q90 + 1e-9)} | {_mean(top <= q95 + 1e-9)} | {_mean(q90, 1)} |"
        )
    return lines


def _cold_table(data: Path) -> list[str]:
    """Return how well a pod of two hours is foreseen from the others' history."""
    lines = [
        "",
        "**Cold start**: a pod's first two hours and the other pods' first half day; the next six",
        "hours judged.",
        "",
        "| quantity | rule | pods | pinball / naive | inside q10–q90 |",
        "|---|---|---:|---:|---:|",
    ]
    for column, words, _scale in COLUMNS:
        series = [
            row
            for row in pods(data, column).series.values()
            if len(row) >= 12 * _HOUR and np.isfinite(row[: 2 * _HOUR]).sum() > _HOUR
        ]
        mine, naive = Row([], [], []), Row([], [], [])
        for index, row in enumerate(series):
            truth = row[2 * _HOUR : 8 * _HOUR]
            lent = [other[: 12 * _HOUR] for place, other in enumerate(series) if place != index]
            found = borrowed(row[: 2 * _HOUR], lent, len(truth), lower=0.0, upper=np.inf)
            if found is not None and np.isfinite(truth).any():
                add(mine, truth, found)
                past = as_series(row[: 2 * _HOUR], 300)
                add(naive, truth, NaiveModel().forecast(past, len(truth)))
        for name, entry in (("naive on its own two hours", naive), ("borrowed", mine)):
            ratio = [np.mean(entry.pinball) / np.mean(naive.pinball)] if entry.pinball else []
            lines.append(
                f"| {words} | {name} | {len(entry.inside)} | {_mean(ratio)} | "
                f"{_mean(entry.inside)} |"
            )
    return lines
