"""How often the largest slot of the next window stayed under the limit foreseen for it."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from benchmarks.demand_sets import DemandSet, philly, pods
from benchmarks.demand_sets import helios as helios_set
from benchmarks.rightsizing.past import Values
from data.records.forecasts import Quantity
from forecasting.series.demand_series import DemandSeries
from forecasting.series.window_peaks import PeakSubject, window_peaks

_HISTORY_HOURS = 35 * 24


def _cases(
    series: Mapping[str, Values],
    *,
    slot_seconds: int,
    window: int,
    origins: range,
) -> list[tuple[float, float, float]]:
    """Return (peak, q90, q95) of every window that was seen."""
    cases = []
    most = _HISTORY_HOURS * 3600 // slot_seconds
    for origin in origins:
        begin = max(0, origin - most)
        subjects = [
            PeakSubject(
                job_id=name,
                cohort="one",
                series=DemandSeries(
                    quantity=Quantity.MEMORY,
                    first_slot=begin * slot_seconds,
                    slot_seconds=slot_seconds,
                    values=row[begin:origin],
                    lower=0.0,
                    upper=np.inf,
                ),
                scale=max(1e-9, float(np.nanmax(row[begin:origin], initial=0.0))),
            )
            for name, row in series.items()
            if np.isfinite(row[begin:origin]).any()
        ]
        found = window_peaks(subjects, quantity=Quantity.MEMORY, window_slots=window)
        for name, peak in found.items():
            coming = series[name][origin : origin + window]
            if np.isfinite(coming).any():
                cases.append((float(np.nanmax(coming)), peak.q90, peak.q95))
    return cases


def _hourly(one: DemandSet, first_days: int, window: int) -> list[tuple[float, float, float]]:
    length = min(map(len, one.series.values()), default=0)
    return _cases(
        one.series,
        slot_seconds=3600,
        window=window,
        origins=range(24 * first_days, length - window, 6),
    )


def peak_tables(data: Path) -> tuple[list[str], list[str]]:
    """Return the table of coverage and the lines of the yardstick."""
    running = helios_set(data)
    sets = {
        "philly, next 24 h": _hourly(philly(data), 15, 24),
        "philly, next 6 h": _hourly(philly(data), 15, 6),
        "helios flows, next 24 h": _hourly(
            DemandSet(
                name=running.name,
                slot_seconds=3600,
                series={k: v for k, v in running.series.items() if k != "running_gpu_est"},
            ),
            15,
            24,
        ),
    }
    for column, words in (("gpu_mem_used_bytes", "memory"), ("gpu_util_pct", "utilization")):
        series = {name: row for name, row in pods(data, column).series.items() if len(row) >= 280}
        sets[f"pods, {words}, next 6 h (one day)"] = _cases(
            series, slot_seconds=300, window=72, origins=range(14 * 12, 280 - 72, 12)
        )
    lines = [
        "",
        "## Peaks of the next window",
        "",
        "| set | windows | under q90 | under q95 |",
        "|---|---:|---:|---:|",
    ]
    said = []
    for name, cases in sets.items():
        if not cases:
            lines.append(f"| {name} | 0 | – | – |")
            said.append(f"* {name}: not judged, no series is long enough")
            continue
        top, q90, q95 = np.array(cases).T
        under90, under95 = (float(np.mean(top <= entry + 1e-9)) for entry in (q90, q95))
        lines.append(f"| {name} | {len(cases)} | {100 * under90:.1f} % | {100 * under95:.1f} % |")
        met = "met" if abs(under90 - 0.90) <= 0.02 and abs(under95 - 0.95) <= 0.02 else "missed"
        said.append(
            f"* {name}: peaks under q90 {100 * under90:.1f} %, under q95 {100 * under95:.1f} %, "
            f"within 2 points: {met}"
        )
    return lines, said
