"""Prophet's additive model for many series at once: speed beside Prophet, and equality with it.

`python -m benchmarks.prophet_batch --data DIR`. Speed: simulated series (daily wave, noise, and in
some a level shift, a weekend drop or an exponential), CPU time of this process and its children,
best of three for the batch. Equality: windows of helios_venus/venus_10min.parquet (hourly sums, 28
days), philly/hourly_gpu_demand_by_vc.parquet (14 days) and
alibaba_genai_pods/pod_gpu_timeseries.parquet (one day by the minute, with gaps): the objective of
our fit and of a default Prophet fit, both evaluated on the same columns and data, and Prophet
started at our answer. `--full`: three times the windows, more Prophet fits for the speed.
"""

import argparse
import logging
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from benchmarks._prophet_design import bands, design_of, parameters
from benchmarks._prophet_sets import MONDAY, SEED, SETS, Floats, RealSet
from forecasting.prophet.batch import FitStatus, ProphetFits, fit_batch

RESULTS = Path(__file__).parent / "results" / "prophet_batch.md"
SHARED_GOAL, OWN_GOAL = 50_000, 4_000
"""Series per core-second at 336 points with a daily term (yardstick 6)."""
SPEED_HEAD = (
    "| series | shared grid | own gaps | forecast with bands | Prophet fit "
    "| fit + points | fit + bands | shared / Prophet fit |"
)
EQUALITY_HEAD = (
    "| set | series | f not above Prophet's | gap in f, nats | moved, sd(y) | gained "
    "| apart in-sample | apart in the next 24 h |"
)


def quiet_prophet(**options: Any) -> Any:
    """Return a Prophet without log lines; its loggers get their handlers at import."""
    from prophet import Prophet

    for name in ("cmdstanpy", "prophet", "prophet.models"):
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.addHandler(logging.NullHandler())
        logger.propagate = False
    return Prophet(**options)


def cpu_seconds() -> float:
    """Return the CPU time of this process and of the children that it has waited for."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


def best_rate(work: Callable[[], object], series: int) -> float:
    """Return series per core-second, best of three after one run that may compile."""
    taken = []
    for _ in range(4):
        begin = time.process_time()
        work()
        taken.append(time.process_time() - begin)
    return series / min(taken[1:])


# --- speed


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Series of one length and step."""

    name: str
    slots: int
    slot_seconds: int
    series: int


CASES = (
    Case(name="336 x 1 h, daily", slots=336, slot_seconds=3600, series=4000),
    Case(name="504 x 1 h, daily + weekly", slots=504, slot_seconds=3600, series=4000),
    Case(name="2,016 x 5 min, daily", slots=2016, slot_seconds=300, series=1000),
)


def simulated(case: Case) -> Floats:
    """Return series of the case: [series, slots]."""
    rng = np.random.default_rng(SEED)
    hours = np.arange(case.slots) * case.slot_seconds / 3600
    rows = []
    for i in range(case.series):
        wave = 5 * rng.uniform(0.2, 2) * np.sin(2 * np.pi * hours / 24 + rng.uniform(0, 6))
        row = 20 + wave + rng.normal(0, rng.uniform(0.3, 3), len(hours))
        row += rng.uniform(-0.02, 0.02) * hours
        if i % 2:
            row += rng.uniform(-8, 8) * (hours > rng.uniform(0, hours[-1]))
        if i % 5 == 0:
            row = np.exp(row / 10)
        if i % 10 == 3:
            row[hours // 24 % 7 >= 5] *= 0.4
        rows.append(row)
    return np.stack(rows)


def speed_row(case: Case, prophets: int) -> tuple[str, float, float]:
    """Return the table's line of one case, and the rates on a shared and on own grids."""
    values = simulated(case)
    prophet_rates(case, values[:1])  # imports Prophet
    gappy = values[: case.series // 4].copy()
    gappy[np.random.default_rng(SEED).uniform(size=gappy.shape) < 0.05] = np.nan

    def rate(rows: Floats) -> float:
        return best_rate(lambda: fit_batch(rows, case.slot_seconds, MONDAY), len(rows))

    shared, own = rate(values), rate(gappy)
    fits = fit_batch(values, case.slot_seconds, MONDAY)
    horizon = 86_400 // case.slot_seconds
    predict = best_rate(lambda: bands(fits, horizon), len(values))
    fit, points, bands = prophet_rates(case, values[:prophets])
    line = (
        f"| {case.name} | {shared:,.0f} | {own:,.0f} | {predict:,.0f} "
        f"| {fit:.1f} | {points:.1f} | {bands:.1f} | {shared / fit:,.0f} |"
    )
    return line, shared, own


def prophet_rates(case: Case, rows: Floats) -> tuple[float, float, float]:
    """Return Prophet's series per core-second: fit alone, with points, with bands of 24 h."""
    times = pd.to_datetime(MONDAY + np.arange(case.slots) * case.slot_seconds, unit="s")
    ahead = pd.DataFrame({"ds": times[-1] + (times - times[0])[1:]})
    ahead = ahead.head(86_400 // case.slot_seconds)
    spent = np.zeros(3)
    for row in rows:
        model = quiet_prophet()
        marks = [cpu_seconds()]
        model.fit(pd.DataFrame({"ds": times, "y": row}))
        marks.append(cpu_seconds())
        for samples in (0, 1000):
            model.uncertainty_samples = samples
            model.predict(ahead)
            marks.append(cpu_seconds())
        spent += np.diff(marks)
    fit, points, bands = spent / len(rows)
    return 1 / fit, 1 / (fit + points), 1 / (fit + bands)


# --- bands


def band_row(case: Case, rows: Floats) -> str:
    """Return the table's line: errors of 80 % half-widths against 20,000 of Prophet's draws."""
    fits = fit_batch(rows, case.slot_seconds, MONDAY)
    horizon = 86_400 // case.slot_seconds
    edges = bands(fits, horizon)
    times = pd.to_datetime(MONDAY + np.arange(case.slots + horizon) * case.slot_seconds, unit="s")
    ours, drawn = [], []
    for series, row in enumerate(rows):
        model = quiet_prophet()
        model.preprocess(pd.DataFrame({"ds": times[: case.slots], "y": row}))
        params = parameters(fits, series)
        model.params = {name: np.reshape(value, (1, -1)) for name, value in params.items()}
        np.random.seed(SEED)  # noqa: NPY002 - Prophet draws from the global generator
        widths = []
        for samples in (20_000, 1000):
            model.uncertainty_samples = samples
            found = model.predict(pd.DataFrame({"ds": times[case.slots :]}))
            widths.append((found["yhat_upper"] - found["yhat_lower"]).to_numpy())
        ours.append(np.abs((edges[2, series] - edges[0, series]) / widths[0] - 1))
        drawn.append(np.abs(widths[1] / widths[0] - 1))
    figures = [
        f"{100 * np.mean(errors):.1f} / {100 * np.max(errors):.1f} %" for errors in (ours, drawn)
    ]
    return f"| {case.name} | {len(rows)} | {' | '.join(figures)} |"


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """One series: f of Prophet less f of ours, yhat apart (RMS in sd(y)), Prophet from ours."""

    gap: float
    inside: float
    ahead: float
    moved: float
    gained: float


def objective(fits: ProphetFits, series: int, params: dict[str, Any]) -> tuple[float, Floats]:
    """Return f at Prophet's params, and yhat at the known points, from columns and data."""
    slots = np.flatnonzero(np.isfinite(fits.values[series]))
    design = design_of(fits, series)
    columns = design.columns(fits.first_slot[series] + slots * fits.slot_seconds)
    normal = len(design.precision)
    flat = {name: np.reshape(value, -1) for name, value in params.items()}
    theta = np.concatenate([flat["k"], flat["m"], flat["beta"][: normal - 2], flat["delta"]])
    sigma, fitted = float(flat["sigma_obs"][0]), columns @ theta
    rest = fits.values[series, slots] / fits.scale[series] - fitted
    prior = 0.5 * design.precision @ theta[:normal] ** 2
    prior += np.abs(theta[normal:]).sum() / design.tau
    f = len(rest) * np.log(sigma) + rest @ rest / (2 * sigma**2) + 2 * sigma**2 + prior
    return float(f), fitted * fits.scale[series]


def compared(real: RealSet) -> Iterator[Comparison]:
    """Compare every series of the set with Prophet."""
    fits = fit_batch(real.values, real.slot_seconds, real.first_slot)
    horizon = 86_400 // real.slot_seconds
    point = fits.predict(horizon)
    times = pd.to_datetime(
        real.first_slot + np.arange(real.values.shape[1] + horizon) * real.slot_seconds, unit="s"
    )
    for series in np.flatnonzero(fits.status == FitStatus.FITTED).tolist():
        row = real.values[series]
        known = np.isfinite(row)
        frame = pd.DataFrame({"ds": times[: len(row)][known], "y": row[known]})
        ours = parameters(fits, series)
        own = quiet_prophet(uncertainty_samples=0).fit(frame, seed=SEED)
        again = quiet_prophet(uncertainty_samples=0).fit(frame, init=ours, seed=SEED)
        best, yhat = objective(fits, series, ours)
        theirs, their_yhat = objective(fits, series, own.params)
        stayed, same_yhat = objective(fits, series, again.params)
        spread = row[known].std()
        ahead = own.predict(pd.DataFrame({"ds": times[len(row) :]}))["yhat"].to_numpy()

        def apart(other: Floats, ours: Floats, spread: float = spread) -> float:
            return float(np.sqrt(np.mean((other - ours) ** 2)) / spread)

        yield Comparison(
            gap=theirs - best,
            inside=apart(their_yhat, yhat),
            ahead=apart(ahead, point[series]),
            moved=float(np.abs(same_yhat - yhat).max() / spread),
            gained=best - stayed,
        )


def equality_row(name: str, found: list[Comparison]) -> str:
    """Return the table's line of one set."""

    def share(values: list[float]) -> str:
        return f"{100 * np.median(values):.2f} / {100 * max(values):.1f} %"

    lower = sum(comparison.gap >= -1e-6 for comparison in found)
    gaps = [comparison.gap for comparison in found]
    return (
        f"| {name} | {len(found)} | {lower} of {len(found)} "
        f"| {np.median(gaps):.2f} / {max(gaps):.1f} "
        f"| {max(comparison.moved for comparison in found):.0e} "
        f"| {max(comparison.gained for comparison in found):.0e} "
        f"| {share([comparison.inside for comparison in found])} "
        f"| {share([comparison.ahead for comparison in found])} |"
    )


def report(folder: Path, *, full: bool) -> str:
    """Run everything and give the Markdown."""
    rows = [speed_row(case, 24 if full else 6) for case in CASES]
    shared, own = rows[0][1], rows[0][2]
    sets = [(entry.name, list(compared(entry))) for entry in (read(folder, full) for read in SETS)]
    together = [entry for _, found in sets for entry in found]
    lower = all(fits.gap >= -1e-6 for fits in together)
    kept = all(fits.moved <= 1e-5 for fits in together)
    versions = ", ".join(f"{name} {version(name)}" for name in ("prophet", "numba", "numpy"))
    bands = [band_row(case, simulated(case)[: 24 if full else 6]) for case in (CASES[0], CASES[2])]
    lines = [
        "Prophet's additive model in batches, beside Prophet (Stan). Series per core-second.",
        "Own gaps: 5 % of the slots of every series unknown, each with a pattern of its own.",
        "Forecasts are of 24 h; ours with q10, q50, q90.",
        f"{datetime.now(tz=UTC):%Y-%m-%d}, {versions}, seed {SEED}.",
        "",
        SPEED_HEAD,
        "|---|---:|---:|---:|---:|---:|---:|---:|",
        *(line for line, _, _ in rows),
        "",
        f"{SHARED_GOAL:,} on a shared grid (first row): {word(shared >= SHARED_GOAL)}.",
        f"{OWN_GOAL:,} with own gaps (first row): {word(own >= OWN_GOAL)}.",
        "",
        "Half-widths of 80 % bands of 24 h against 20,000 of Prophet's draws at our parameters,",
        "mean / largest error over series and slots.",
        "",
        "| series | number | closed form | Prophet's own 1,000 draws |",
        "|---|---:|---:|---:|",
        *bands,
        "",
        "Equality on real series. f: negative log posterior, on the same columns and data.",
        "Apart: yhat against a default Prophet fit, RMS over sd(y), median / largest.",
        "Moved, gained: by how much Prophet leaves our answer, and lowers f, when it starts there.",
        "",
        EQUALITY_HEAD,
        "|---|---:|---:|---:|---:|---:|---:|---:|",
        *(equality_row(name, found) for name, found in [*sets, ("all", together)]),
        "",
        f"f not above Prophet's on every series (tolerance 1e-6): {word(lower)}.",
        f"Prophet moves by at most 1e-5 sd(y) from our answer: {word(kept)}.",
    ]
    return "\n".join(lines) + "\n"


def word(reached: bool) -> str:
    """Say it in a word."""
    return "met" if reached else "missed"


def main() -> None:
    """Print the tables and write them to benchmarks/results/prophet_batch.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="three times the windows: minutes")
    parser.add_argument("--data", default="../shared/data", help="folder of the recorded data")
    options = parser.parse_args()
    text = report(Path(options.data), full=options.full)
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
