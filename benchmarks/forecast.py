"""Forecasts of real and simulated demand: Trimtab's mix beside the models a user would take.

`python -m benchmarks.forecast --data DIR [--full | --members]`, DIR with helios_venus, philly and
alibaba_genai_pods. `--members` judges the mix without each of its members instead (minutes; writes
forecast_members.md). Every model of a table is asked at the same moments with the past up to then.
Ratios are of mean pinball losses (q10, q50, q90) to the better, per series, of naive and seasonal
naive with conformal bands: residuals of the last 60 days at the same hour, pooled over five leads,
median shifted. MASE is against yesterday's same hour over the whole series.
"""

import argparse
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np

from benchmarks._model_comparison import compare_models
from benchmarks._naive_model import NaiveModel
from benchmarks.demand_sets import DemandSet, helios, philly, simulated_jobs
from benchmarks.forecast_judging import (
    DAY,
    HEAD,
    HISTORY_DAYS,
    Judged,
    as_series,
    judge,
    origins_every,
    table,
)
from benchmarks.forecast_members import member_lines
from benchmarks.forecast_peers import ExactProphet, StatsForecast
from benchmarks.forecast_pods import pod_tables
from data.settings.all_settings import PlanningSettings
from forecasting.jobs.forecast_path import MODELS, PathTask
from forecasting.jobs.path_pool import paths_of
from forecasting.mix.model import MixModel
from forecasting.models.backtest import inside_band, pinball_losses

RESULTS = Path(__file__).parent / "results" / "forecast.md"


def by_bucket(demand: DemandSet, *, horizon: int) -> list[str]:
    """Return loss and coverage of the mix by lead time, against naive without calibration."""
    edges = [0, 1, 3, 6, 12, 24, 48, 96, 168]
    sums: dict[int, list[tuple[float, float, float]]] = {}
    for values in demand.series.values():
        for origin in origins_every(3, horizon)(len(values)):
            past = as_series(values[max(0, origin - HISTORY_DAYS * DAY) : origin], 3600)
            past = replace(past, lower=0.0 if values.min() >= 0 else -np.inf)
            truth = values[origin : origin + horizon]
            mine, other = MixModel().forecast(past, horizon), NaiveModel().forecast(past, horizon)
            for low, high in pairwise(edges):
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


def simulated_table(full: bool) -> list[str]:
    """Return models on the jobs of a simulated fleet of two weeks, 15-min slots, a day ahead."""
    series = simulated_jobs()
    series = series if full else series[::3]
    scores = compare_models(series, (NaiveModel(), *MODELS), horizon=96, origins=6 if full else 3)
    lines = [
        "",
        "**Simulated fleet** (jobs' utilization, memory, power; 15-min slots, 24 h ahead).",
        "",
        "| model | series | forecasts | MASE | pinball / naive | inside q10–q90 |",
        "|---|---:|---:|---:|---:|---:|",
    ]
    return lines + [
        f"| {score.model} | {score.series} | {score.origins} | {score.mase:.3f} | "
        f"{score.pinball_to_naive:.3f} | {score.coverage_ratio:.3f} |"
        for score in scores
    ]


def speed_line(data: Path) -> list[str]:
    """Return the time for 10,000 jobs of 336 hourly slots, bands and backtest included."""
    base = helios(data).series["submit_gpu_job"]
    rng = np.random.default_rng(1)
    tasks = [
        PathTask(
            series=as_series(np.resize(np.roll(base, -start), 336) * noise, 3600),
            first_slot=336 * 3600,
            horizon=24,
        )
        for start, noise in enumerate(rng.lognormal(0, 0.2, (2_000, 336)))
    ]
    paths_of(tasks[:64], settings=PlanningSettings())
    wall, cpu = time.perf_counter(), time.process_time()
    paths_of(tasks, settings=PlanningSettings())
    wall, cpu = 5 * (time.perf_counter() - wall), 5 * (time.process_time() - cpu)
    return [
        "",
        (
            f"10,000 jobs of 336 hourly slots, bands, weights and backtest: {wall:.0f} s on two "
            f"threads, {cpu:.0f} core-s (from 2,000). {verdict(wall <= 30, 'at most 30 s')}"
        ),
    ]


def verdict(met: bool, goal: str) -> str:
    """Say whether a goal was met."""
    return f"Goal {goal}: {'met' if met else 'missed'}."


def goals(day: Sequence[Judged], week: Sequence[Judged]) -> list[str]:
    """Return each line of the yardstick with its figure."""
    lines = ["", "**Goals**", ""]
    limits = {"helios": 0.86, "philly": 0.94}
    for judged in day:
        ratios = ratios_of(judged)
        if not ratios:
            lines.append(f"* {judged.name}: too short to be judged")
            continue
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
        below = sum(ratio < 1 for ratio in ratios.values())
        lines.append(
            f"* {judged.name}, 7 d ahead below both baselines on {below} of {len(ratios)} series: "
            f"{verdict(below == len(ratios), 'all')}"
        )
    return lines


def ratios_of(judged: Judged) -> dict[str, float]:
    """Return the mix's loss over the better baseline's by series."""
    return {
        name: float(np.mean(row.pinball) / judged.baseline[name])
        for name, row in judged.rows["mix"].items()
    }


def main() -> None:
    """Print the tables and write them to benchmarks/results/forecast.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="peers at every daily origin; an hour")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--members", action="store_true", help="the mix without each member")
    options = parser.parse_args()
    if options.members:
        text = "\n".join(member_lines(options.data)) + "\n"
        RESULTS.with_stem("forecast_members").write_text(text, encoding="utf-8")
        print(text)
        return
    sets = (helios(options.data), philly(options.data))
    peers = (
        *MODELS,
        ExactProphet(),
        *(StatsForecast(name) for name in ("AutoETS", "AutoTheta", "MSTL")),
    )
    step = 1 if options.full else 12
    everyone = [
        judge(demand_set, peers, horizon=24, origins=origins_every(step, 24)) for demand_set in sets
    ]
    mine = (MixModel(),)
    daily = [
        judge(demand_set, mine, horizon=24, origins=origins_every(1, 24)) for demand_set in sets
    ]
    phased = [
        judge(demand_set, mine, horizon=24, origins=origins_every(1, 24, phases=(0, 6, 12, 18)))
        for demand_set in sets
    ]
    week = [
        judge(demand_set, mine, horizon=168, origins=origins_every(1, 168)) for demand_set in sets
    ]
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
        "**By lead time**, every 3 d: pinball over plain naive's / share inside q10–q90.",
        "",
        "| set | 1 h | 3 h | 6 h | 12 h | 24 h | 2 d | 4 d | 7 d |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|",
        *(line for demand_set in sets for line in by_bucket(demand_set, horizon=168)),
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
