"""Forecasts of real and simulated demand: Trimtab's mix beside the models a user would take.

`python -m benchmarks.forecast --data DIR [--full]`, DIR with helios_venus, philly and
alibaba_genai_pods. Every model of a table is asked at the same moments with the past up to then.
Ratios are of mean pinball losses (q10, q50, q90) to the better, per series, of naive and seasonal
naive with conformal bands: residuals of the last 60 days at the same hour, pooled over five leads,
median shifted. MASE is against yesterday's same hour over the whole series.
"""

import argparse
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from tqdm import tqdm

from benchmarks.demand_sets import DemandSet, Values, helios, philly, pods
from benchmarks.forecast_peers import ExactProphet, StatsForecast
from collectors.base import Window
from collectors.simulated_fleet import SimulatedFleet, SimulatedFleetCollector
from data.records.forecasts import Quantity
from data.settings import PlanningSettings
from data.store import open_store
from forecasting.backtest import inside_band, pinball_losses
from forecasting.cold_start import borrowed
from forecasting.demand_model import LEVELS, DemandModel, Quantiles
from forecasting.demand_series import DemandSeries
from forecasting.forecast_path import MODELS, PathTask
from forecasting.job_tasks import JobTask, first_slot_after, job_tasks
from forecasting.mix_model import MixModel
from forecasting.model_comparison import compare_models
from forecasting.naive_model import NaiveModel
from forecasting.path_pool import paths_of
from forecasting.seasonal_naive_model import SeasonalNaiveModel
from forecasting.window_peaks import PeakSubject, window_peaks

RESULTS = Path(__file__).parent / "results" / "forecast.md"
HISTORY_DAYS = 60
FIRST_ORIGIN_DAYS = 42
_DAY = 24
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
    """Give naive or seasonal naive with the quantiles of its own residuals at the same hour."""

    def point(at: int) -> Values:
        if not seasonal:
            return np.full(horizon, values[at - 1])
        return values[at - _DAY : at][np.arange(horizon) % _DAY]

    earlier = np.arange(origin - _DAY, 28 * _DAY - 1, -_DAY)
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
    """Give the values as a series whose lower bound is 0 when they never go below."""
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
    """Ask every model at `origins(length)` of every series for `horizon` hours."""
    rows: dict[str, dict[str, Row]] = {one.name: {} for one in models}
    plain = {"naive, conformal": False, "seasonal naive, conformal": True}
    rows |= {name: {} for name in plain}
    baseline, scale = {}, {}
    for name, values in tqdm(demand.series.items(), desc=f"{demand.name} {horizon} h", leave=False):
        scale[name] = float(np.abs(values[_DAY:] - values[:-_DAY]).mean())
        for key in rows:
            rows[key][name] = Row([], [], [])
        for origin in origins(len(values)):
            truth = values[origin : origin + horizon]
            past = as_series(values[max(0, origin - HISTORY_DAYS * _DAY) : origin], 3600)
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
    """Give the rows of one set: ratio, worst series, MASE, coverage, speed."""
    lines = []
    for model, by_series in judged.rows.items():
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


HEAD = [
    "| set | model | forecasts | pinball / better baseline | worst series | MASE | inside q10–q90 "
    "| by series | per core-s |",
    "|---|---|---:|---:|---:|---:|---:|---:|---:|",
]


def origins_every(
    days: float, horizon: int, *, phases: Sequence[int] = (0,)
) -> Callable[[int], list[int]]:
    """Give moments every `days` from day 42 on, at these hours of the day."""

    def found(length: int) -> list[int]:
        starts = np.arange(FIRST_ORIGIN_DAYS, length / _DAY, days)
        moments = [int(day) * _DAY + phase for day in starts for phase in phases]
        return [one for one in moments if one + horizon <= length]

    return found


def by_bucket(demand: DemandSet, *, horizon: int) -> list[str]:
    """Give loss and coverage of the mix by lead time, against naive without calibration."""
    edges = [0, 1, 3, 6, 12, 24, 48, 96, 168]
    sums: dict[int, list[tuple[float, float, float]]] = {}
    for values in demand.series.values():
        for origin in origins_every(3, horizon)(len(values)):
            past = as_series(values[max(0, origin - HISTORY_DAYS * _DAY) : origin], 3600)
            past = replace(past, lower=0.0 if values.min() >= 0 else -np.inf)
            truth = values[origin : origin + horizon]
            mine, other = MixModel().forecast(past, horizon), NaiveModel().forecast(past, horizon)
            for low, high in zip(edges, edges[1:], strict=False):
                part = slice(low, high)
                sums.setdefault(high, []).append(
                    (
                        float(pinball_losses(truth, mine)[part].mean()),
                        float(pinball_losses(truth, other)[part].mean()),
                        float(inside_band(truth, mine)[part].mean()),
                    )
                )
    cells = {
        high: (
            np.mean([a for a, _, _ in rows]) / np.mean([b for _, b, _ in rows]),
            np.mean([c for _, _, c in rows]),
        )
        for high, rows in sums.items()
    }
    return [
        f"| {demand.name} | "
        + " | ".join(f"{ratio:.2f} / {100 * cover:.0f} %" for ratio, cover in cells.values())
        + " |"
    ]


def pod_tables(data: Path) -> list[str]:
    """Give the tables of the bursty pods: two hours ahead, peaks of the next six, cold start."""
    lines = [
        "",
        "**Bursty pods** (one day, 5-min slots): two hours ahead from eight hours on, every hour.",
        "",
    ]
    lines += [
        "| quantity | model | forecasts | pinball / naive | inside q10–q90 |",
        "|---|---|---:|---:|---:|",
    ]
    for column, words in (("gpu_util_pct", "utilization"), ("gpu_mem_used_bytes", "memory")):
        demand = pods(data, column)
        long = [row for row in demand.series.values() if len(row) >= 12 * 12]
        models = (NaiveModel(), SeasonalNaiveModel(), MixModel())
        rows = {one.name: Row([], [], []) for one in models}
        ratios: dict[str, list[float]] = {one.name: [] for one in models}
        for values in long:
            mine = {one.name: Row([], [], []) for one in models}
            for origin in range(8 * 12, len(values) - 24, 12):
                truth = values[origin : origin + 24]
                past = as_series(values[:origin], 300)
                if not np.isfinite(truth).any() or past.known.sum() < 48:
                    continue
                for model in models:
                    add(mine[model.name], truth, model.forecast(past, 24))
            losses = {name: np.mean(row.pinball) for name, row in mine.items() if row.pinball}
            for name, row in mine.items():
                rows[name].inside += row.inside
                if losses and losses["naive"] > 0:
                    ratios[name].append(float(losses[name] / losses["naive"]))
        for name, row in rows.items():
            lines.append(
                f"| {words} | {name} | {len(row.inside)} | {np.mean(ratios[name]):.3f} | {np.mean(row.inside):.3f} |"
            )
    return lines + peak_table(data) + cold_table(data)


def peak_table(data: Path) -> list[str]:
    """Give how many peaks of the next 6 h stayed under the split-conformal q90 and q95."""
    lines = [
        "",
        "**Peaks of the next 6 h**, 5-min slots, hourly from hour 12; conformal by halves: limits from"
        " the past windows of half the pods, judged on the other half (20 random halves).",
        "",
        "| quantity | rule | cases | under q90 | under q95 | mean q90 |",
        "|---|---|---:|---:|---:|---:|",
    ]
    for column, words, scale in (
        ("gpu_util_pct", "utilization, %", 100.0),
        ("gpu_mem_used_bytes", "memory, GiB", 80.0),
    ):
        series = {name: row for name, row in pods(data, column).series.items() if len(row) >= 280}
        under: list[tuple[bool, bool, float]] = []
        own: list[tuple[bool, float]] = []
        rng = np.random.default_rng(1)
        for origin in range(12 * 12, 280 - 72, 12):
            subjects = [
                PeakSubject(
                    job_id=name, cohort="pods", series=as_series(row[:origin], 300), scale=scale
                )
                for name, row in series.items()
            ]
            for _ in range(20):
                half = rng.permutation(len(subjects))[: len(subjects) // 2]
                found = window_peaks(
                    [subjects[one] for one in half], quantity=Quantity.MEMORY, window_slots=72
                )
                for name, peak in found.items():
                    came = series[name][origin : origin + 72]
                    if np.isfinite(came).any():
                        top = float(np.nanmax(came))
                        under.append((top <= peak.q90 + 1e-9, top <= peak.q95 + 1e-9, peak.q90))
            for row in series.values():
                came = row[origin : origin + 72]
                if np.isfinite(came).any() and np.isfinite(row[:origin]).any():
                    own.append(
                        (
                            float(np.nanmax(came)) <= np.nanquantile(row[:origin], 0.95),
                            float(np.nanquantile(row[:origin], 0.95)),
                        )
                    )
        lines.append(
            f"| {words} | own P95 (KRR's CPU rule) | {len(own)} | {np.mean([a for a, _ in own]):.3f} | – | {np.mean([b for _, b in own]):.1f} |"
        )
        lines.append(
            f"| {words} | split-conformal over the fleet | {len(under)} | {np.mean([a for a, _, _ in under]):.3f} | "
            f"{np.mean([b for _, b, _ in under]):.3f} | {np.mean([c for _, _, c in under]):.1f} |"
        )
    return lines


def cold_table(data: Path) -> list[str]:
    """Give how well a pod of two hours is foreseen from the others' history."""
    lines = [
        "",
        "**Cold start**: a pod's first two hours and the other pods' whole first half day; the next"
        " six hours judged.",
        "",
        "| quantity | rule | pods | pinball / naive | inside q10–q90 |",
        "|---|---|---:|---:|---:|",
    ]
    for column, words in (("gpu_util_pct", "utilization"), ("gpu_mem_used_bytes", "memory")):
        series = [
            row
            for row in pods(data, column).series.values()
            if len(row) >= 144 and np.isfinite(row[:24]).sum() > 12
        ]
        mine, naive = Row([], [], []), Row([], [], [])
        for index, row in enumerate(series):
            truth = row[24:96]
            if not np.isfinite(truth).any():
                continue
            lent = [other[:144] for place, other in enumerate(series) if place != index]
            found = borrowed(row[:24], lent, 72, lower=0.0, upper=np.inf)
            if found is not None:
                add(mine, truth, found)
                add(naive, truth, NaiveModel().forecast(as_series(row[:24], 300), 72))
        for name, one in (("naive on its own two hours", naive), ("borrowed", mine)):
            lines.append(
                f"| {words} | {name} | {len(one.inside)} | {np.mean(one.pinball) / np.mean(naive.pinball):.3f} | {np.mean(one.inside):.3f} |"
            )
    return lines


def simulated_table(full: bool) -> list[str]:
    """Give all models on the jobs of a simulated fleet of two weeks, 15-min slots, a day ahead."""
    end = datetime(2026, 1, 15, 10, tzinfo=UTC)
    planning = PlanningSettings()
    with TemporaryDirectory() as folder, open_store(f"duckdb:///{folder}/b.duckdb") as store:
        collector = SimulatedFleetCollector(fleet=SimulatedFleet(seed=7, nodes=8), step_seconds=900)
        store.keep(collector.collect(Window(start=end - timedelta(days=14), end=end)))
        view = store.reader.planning_view(end, slot_seconds=900, history_days=14)
    tasks = job_tasks(
        view.history,
        jobs=view.jobs,
        first_slot=first_slot_after(view.as_of, 900),
        settings=planning,
    )
    series = [one for task in tasks if isinstance(task, JobTask) for one in task.series]
    series = series if full else series[::3]
    scores = compare_models(series, (NaiveModel(), *MODELS), horizon=96, origins=6 if full else 3)
    lines = [
        "",
        "**Simulated fleet** (jobs' utilization, memory, power; 15-min slots, 24 h ahead; naive with"
        " the quantiles of its own changes).",
        "",
        "| model | series | forecasts | MASE | pinball / naive | inside q10–q90 |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    return lines + [
        f"| {one.model} | {one.series} | {one.origins} | {one.mase:.3f} | {one.pinball_to_naive:.3f} | {one.coverage_ratio:.3f} |"
        for one in scores
    ]


def speed_line(data: Path) -> list[str]:
    """Give the time for 10,000 jobs of 336 hourly slots, bands and backtest included."""
    base = helios(data).series["submit_gpu_job"]
    rng = np.random.default_rng(1)
    tasks = [
        PathTask(
            series=as_series(base[start % 2000 :][:336] * rng.lognormal(0, 0.2, 336), 3600),
            first_slot=336 * 3600,
            horizon=24,
        )
        for start in range(2_000)
    ]
    paths_of(tasks[:64], settings=PlanningSettings())
    wall, cpu = time.perf_counter(), time.process_time()
    paths_of(tasks, settings=PlanningSettings(workers=2))
    wall, cpu = 5 * (time.perf_counter() - wall), 5 * (time.process_time() - cpu)
    return [
        "",
        f"10,000 jobs of 336 hourly slots, 24 h ahead with bands, weights and backtest: {wall:.0f} s"
        f" on two threads ({cpu:.0f} core-s), from 2,000. {verdict(wall <= 30, 'at most 30 s')}",
    ]


def verdict(met: bool, goal: str) -> str:
    """Say whether a goal was met."""
    return f"Goal {goal}: {'met' if met else 'missed'}."


def goals(day: Sequence[Judged], week: Sequence[Judged]) -> list[str]:
    """Give each line of the yardstick with its figure."""
    lines = ["", "**Goals**", ""]
    limits = {"helios": 0.86, "philly": 0.94}
    for judged in day:
        ratios = ratios_of(judged)
        mean = float(np.mean(list(ratios.values())))
        limit = limits[judged.name]
        lines.append(
            f"* {judged.name}, mean {mean:.3f}: {verdict(mean <= limit, f'at most {limit}')}"
        )
        worst = max(ratios, key=lambda name: ratios[name])
        lines.append(
            f"* {judged.name}, worst series {worst} {ratios[worst]:.3f}: "
            f"{verdict(ratios[worst] <= 1.05, 'at most 1.05')}"
        )
        inside = [float(np.mean(row.inside)) for row in judged.rows["mix"].values()]
        mean = float(np.mean(inside))
        lines.append(
            f"* {judged.name}, coverage {mean:.3f}: {verdict(0.78 <= mean <= 0.82, '0.78–0.82')}"
        )
        lines.append(
            f"* {judged.name}, coverage of single series {min(inside):.2f}–{max(inside):.2f}: "
            f"{verdict(min(inside) >= 0.7 and max(inside) <= 0.9, '0.70–0.90')}"
        )
    for judged in week:
        ratios = ratios_of(judged)
        below = sum(one < 1 for one in ratios.values())
        lines.append(
            f"* {judged.name}, 7 d ahead below both baselines on {below} of {len(ratios)} series: "
            f"{verdict(below == len(ratios), 'all')}"
        )
    return lines


def ratios_of(judged: Judged) -> dict[str, float]:
    """Give the mix's loss over the better baseline's by series."""
    return {
        name: float(np.mean(row.pinball) / judged.baseline[name])
        for name, row in judged.rows["mix"].items()
    }


def main() -> None:
    """Print the tables and write them to benchmarks/results/forecast.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="peers at every daily origin; an hour")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    options = parser.parse_args()
    sets = (helios(options.data), philly(options.data))
    peers = (
        *MODELS,
        ExactProphet(),
        *(StatsForecast(one) for one in ("AutoETS", "AutoTheta", "MSTL")),
    )
    step = 1 if options.full else 12
    everyone = [judge(one, peers, horizon=24, origins=origins_every(step, 24)) for one in sets]
    mine = (MixModel(),)
    daily = [judge(one, mine, horizon=24, origins=origins_every(1, 24)) for one in sets]
    phased = [
        judge(one, mine, horizon=24, origins=origins_every(1, 24, phases=(0, 6, 12, 18)))
        for one in sets
    ]
    week = [judge(one, mine, horizon=168, origins=origins_every(1, 168)) for one in sets]
    lines = [
        "Forecasts of GPU demand by the hour, 24 h ahead, from up to 60 d of past, after day 42.",
        "",
        f"**All models**, an origin at midnight every {step} d.",
        "",
        *HEAD,
        *(line for judged in everyone for line in table(judged)),
        "",
        "**Every day at midnight** (the goals are judged here).",
        "",
        *HEAD,
        *(line for judged in daily for line in table(judged)),
        "",
        "**Every six hours.**",
        "",
        *HEAD,
        *(line for judged in phased for line in table(judged)),
        "",
        "**Seven days ahead**, every day at midnight.",
        "",
        *HEAD,
        *(line for judged in week for line in table(judged)),
        "",
        "**By lead time** (pinball over plain naive's / share inside q10–q90), a week ahead every 3 d.",
        "",
        "| set | 1 h | 3 h | 6 h | 12 h | 24 h | 2 d | 4 d | 7 d |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
        *(line for one in sets for line in by_bucket(one, horizon=168)),
        *simulated_table(options.full),
        *pod_tables(options.data),
        *speed_line(options.data),
        *goals(daily, week),
    ]
    text = "\n".join(lines) + "\n"
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
