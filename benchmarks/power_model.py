"""Board power on held-out data: Trimtab's power model beside what is usually assumed.

`python -m benchmarks.power_model --data DIR`, which holds ml_energy, zeus, acme and
dcgm_exposition. No public data joins utilization with power for a fleet, so that each table tests
a part:

1. LLM inference of ML.ENERGY, H100 and B200, five folds by language model. Utilization is a
   roofline estimate of ours from published throughput: the share of time that weights are read
   plus twice the share that compute would need.
2. A simulated fleet, five folds by job. Its power law is ours: it shows that a law is found again.
3. Nothing fitted: single readings of real boards, and the power quantiles of Acme's A100 boards
   from their SM activity quantiles (same ranks are assumed to belong together).
4. Power caps of Zeus: each GPU model predicted from the laws fitted on the other two.
5. Programs on one H200 (`benchmarks.measure_causes`), SM activity as the NVML source reads it; five
   folds by what they run.
"""

import argparse
import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks._cap_slowdown import slowdown_under_cap
from benchmarks._power_peers import (
    CATALOGUE,
    PEERS,
    Floats,
    Method,
    between_idle_and_tdp,
    catalogue_only,
    ours,
    rows_of,
    tdp_times_utilization,
)
from collectors.simulated.fleet import SimulatedFleet
from forecasting.power.cap import REACH, SHARPNESS, power_under_cap
from forecasting.power.estimated import fit_power_models, readings_by_model
from forecasting.power.model import PowerModel
from forecasting.power.records import PowerSamples
from forecasting.power.terms import KNOTS

RESULTS = Path(__file__).parent / "results" / "power_model.md"
PROGRAMS = Path(__file__).parent / "measured" / "slow_programs_h200.json"
FOLDS = 5
MODEL_OF = {"H100": "H100-SXM5-80GB", "B200": "B200-SXM-180GB"}
PEAK_FLOPS = {"H100": 989e12, "B200": 2250e12}
"""Dense BF16, vendor data sheets."""
BANDWIDTH = {"H100": 3.35e12, "B200": 8.0e12}
BYTES_PER_WEIGHT = {"bfloat16": 2.0, "fp8": 1.0, "mxfp4": 0.55}
PLANNED_CAP_RATIO = 0.86
_CAPTURES_HEAD = (
    "| board | GPU_UTIL | measured (W) | Trimtab, nothing fitted (q10–q90) | idle to TDP "
    "| TDP × utilization |"
)
_ENERGY_HEAD = (
    "| error of energy per epoch, points of % of the free energy | both laws from the others "
    "| as shipped | power law alone, no slowdown | 0.86 | time in q10–q90, as shipped |"
)
_CAPS_HEAD = (
    "| caps below 1.2 × the free power of | rows | Trimtab's law, fitted on the others (W) "
    "| as shipped (W) | smaller of power and cap (W) | 0.86 × power (W) |"
)


def table_of(sets: dict[str, PowerSamples], methods: dict[str, Method]) -> list[str]:
    """Return one table: rows are methods, columns are errors on groups left out, per GPU model."""
    heads = [f"{name} MAE (W) | median error | in q10–q90" for name in sets]
    lines = [f"| method | {' | '.join(heads)} |", "|---|" + "---:|" * 3 * len(sets)]
    for title, method in methods.items():
        cells = [scores(name, text, method) for name, text in sets.items()]
        lines.append(f"| {title} | {' | '.join(cells)} |")
    return lines


def scores(model: str, samples: PowerSamples, method: Method) -> str:
    """Return the three cells of a method on one set of samples."""
    group = np.zeros(len(samples.power_watts)) if samples.group is None else samples.group
    fold = np.unique(group, return_inverse=True)[1] % FOLDS
    missed, inside = [], []
    for number in range(FOLDS):
        train, test = rows_of(samples, fold != number), rows_of(samples, fold == number)
        guess = method(model, train, test)
        missed.append(np.column_stack([np.abs(guess.central - test.power_watts), test.power_watts]))
        if guess.low is not None and guess.high is not None:
            inside.append((test.power_watts >= guess.low) & (test.power_watts <= guess.high))
    error, power = np.vstack(missed).T
    covered = f"{100 * np.concatenate(inside).mean():.0f} %" if inside else ""
    return f"{error.mean():.0f} | {100 * np.median(error / power):.1f} % | {covered}"


def inference_samples(folder: Path) -> dict[str, PowerSamples]:
    """Return ML.ENERGY's LLM rows per GPU model, with utilization and memory activity estimated."""
    rows = pd.read_csv(folder / "ml_energy" / "inference_power_energy.csv")
    rows = rows[rows["energy_per_token_joules"].notna() & (rows["median_itl_ms"] > 0)]
    found = {}
    for gpu, entry in rows.groupby("gpu_model"):
        boards = entry["num_gpus"]
        copies = entry["data_parallel"].fillna(1).clip(lower=1)
        active = entry["activated_params_billions"] / entry["total_params_billions"]
        batch = (entry["avg_batch_size"] / copies).clip(lower=1)
        # Each request of a batch picks its own experts: the share of weights read per step.
        read = np.where(active < 0.99, 1 - (1 - active) ** batch, 1.0)
        weights = (
            entry["total_params_billions"] * 1e9 * entry["weight_precision"].map(BYTES_PER_WEIGHT)
        )
        memory = (
            1000 / entry["median_itl_ms"] * weights * read * copies / boards / BANDWIDTH[str(gpu)]
        )
        flops = 2e9 * entry["activated_params_billions"] * entry["output_throughput_tokens_per_sec"]
        compute = flops / boards / PEAK_FLOPS[str(gpu)]
        found[MODEL_OF[str(gpu)]] = PowerSamples(
            power_watts=(entry["avg_power_watts"] / boards).to_numpy(dtype=np.float64),
            utilization=np.clip(memory + 2 * compute, 0, 1).to_numpy(dtype=np.float64),
            group=pd.factorize(entry["model_id"])[0].astype(np.int64),
        )
    return found


def fleet_samples() -> dict[str, PowerSamples]:
    """Return six hours of a simulated fleet every 5 min, SM activity only."""
    end = datetime(2026, 1, 5, tzinfo=UTC)
    fleet = SimulatedFleet(seed=7, nodes=12)
    samples = fleet.history(end - timedelta(hours=6), end, 300)
    by_model = readings_by_model(samples)
    return {model: pair for (model, signal), pair in by_model.items() if signal == "sm_active"}


def program_samples() -> dict[str, PowerSamples]:
    """Return the programs measured on an H200; those of one model or kind belong together."""
    rows = pd.DataFrame(json.loads(PROGRAMS.read_text("utf-8"))["rows"])
    kinds = [str(name).removeprefix("small ").split()[0].strip(",") for name in rows["name"]]
    measured = PowerSamples(
        power_watts=rows["power_watts"].to_numpy(dtype=np.float64),
        utilization=rows["sm_active"].to_numpy(dtype=np.float64),
        group=np.unique(kinds, return_inverse=True)[1].astype(np.int64),
    )
    return {"H200-SXM-141GB": measured}


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """One reading of a real board."""

    name: str
    model: str
    power: float
    utilization: float


def readings(folder: Path) -> list[Reading]:
    """Return the readings of boards that the catalogue knows, from exporters' captures."""
    found = []
    for path in sorted((folder / "dcgm_exposition").glob("nvidia_gpu_exporter__*x86_64*.metrics")):
        board = path.name.split("__")[2]
        model = CATALOGUE.recognise(board.replace("-", " "))
        values = dict(re.findall(r"(?m)^nvidia_smi_(\w+)\{[^}]*\} (\S+)$", path.read_text("utf-8")))
        if CATALOGUE.find(model) is None or "utilization_gpu_ratio" not in values:
            continue
        found.append(
            Reading(
                name=f"{board} {path.stem.rpartition('__')[2]}",
                model=model,
                power=float(values["power_draw_watts"]),
                utilization=float(values["utilization_gpu_ratio"]),
            )
        )
    return found


def capture_rows(folder: Path) -> list[str]:
    """Return the table of single readings."""
    models = fit_power_models({}, CATALOGUE, signal="gpu_util")
    lines = [
        _CAPTURES_HEAD,
        "|---|---:|---:|---:|---:|---:|",
    ]
    errors = []
    for reading in readings(folder):
        watts = models[reading.model].predict(reading.utilization)
        board = CATALOGUE.get(reading.model)
        straight = board.idle_watts + (board.tdp_watts - board.idle_watts) * reading.utilization
        central, low, high = (float(part[0]) for part in (watts.central, watts.low, watts.high))
        tdp = board.tdp_watts * reading.utilization
        errors.append(
            [abs(central - reading.power), abs(straight - reading.power), abs(tdp - reading.power)]
        )
        lines.append(
            f"| {reading.name} | {reading.utilization:.2f} | {reading.power:.0f} "
            f"| {central:.0f} ({low:.0f}–{high:.0f}) | {straight:.0f} | {tdp:.0f} |"
        )
    means = np.array(errors).mean(axis=0)
    lines.append(f"| mean absolute error | | | {means[0]:.0f} | {means[1]:.0f} | {means[2]:.0f} |")
    return lines


def acme_rows(folder: Path) -> list[str]:
    """Return the distance between predicted and measured power quantiles of Acme's A100 boards."""
    curves = pd.read_parquet(folder / "acme" / "acme_metric_quantiles_seren_philly.parquet")
    seren = curves[curves["cluster"] == "seren"].sort_values("quantile")

    def curve(metric: str) -> Floats:
        found = seren.loc[seren["metric"] == metric, "value"]
        return found.to_numpy(dtype=np.float64)

    activity, power = curve("sm_active") / 100, curve("gpu_power")
    samples = PowerSamples(power_watts=power, utilization=np.clip(activity, 0, 1))
    lines = ["| method, nothing fitted | mean distance of quantiles (W) | mean power (W) |"]
    lines.append("|---|---:|---:|")
    for title, method in (
        ("**Trimtab**", catalogue_only),
        ("idle to TDP, straight", between_idle_and_tdp),
        ("TDP × utilization", tdp_times_utilization),
    ):
        guess = np.sort(method("A100-SXM4-80GB", samples, samples).central)
        distance = np.abs(guess - np.sort(power)).mean()
        lines.append(f"| {title} | {distance:.0f} | {guess.mean():.0f} |")
    lines.append(f"| measured | | {power.mean():.0f} |")
    return lines


def capped_runs(folder: Path) -> pd.DataFrame:
    """Return Zeus' capped runs with power, time and energy of the same run without a cap.

    Only caps below 1.2 times the free power: others change nothing.
    """
    rows = pd.read_csv(folder / "zeus" / "power_vs_batch_and_limit.csv")
    keys = ["gpu", "dataset", "network", "batch_size", "optimizer"]
    free = rows.sort_values("power_limit").groupby(keys).tail(1).set_index(keys)
    joined = rows.join(free, on=keys, suffixes=("", "_free"))
    return joined[
        (joined["power_limit"] < joined["power_limit_free"])
        & (joined["power_limit"] < 1.2 * joined["average_power_free"])
    ]


def columns_of(rows: pd.DataFrame, *names: str) -> tuple[Floats, ...]:
    """Return columns as floats."""
    return tuple(rows[name].to_numpy(dtype=np.float64) for name in names)


def capped_rows(folder: Path) -> list[str]:
    """Return the table of power under caps, each GPU model predicted from the others."""
    runs = capped_runs(folder)
    lines = [_CAPS_HEAD, "|---|---:|---:|---:|---:|---:|"]
    for gpu, test in runs.groupby("gpu"):
        power, cap, truth = columns_of(test, "average_power_free", "power_limit", "average_power")
        guesses = (
            cap_law(power, cap, *best_law(runs[runs["gpu"] != gpu])),
            power_under_cap(power, cap),
            np.minimum(power, cap),
            PLANNED_CAP_RATIO * power,
        )
        cells = " | ".join(f"{np.abs(guess - truth).mean():.1f}" for guess in guesses)
        lines.append(f"| {gpu} | {len(test)} | {cells} |")
    lines.append(f"\nShipped: reach {REACH}, sharpness {SHARPNESS:g}, fitted on all three.")
    return lines


def cap_energy_rows(folder: Path) -> list[str]:
    """Return the table of energy under caps: laws from the other GPU models, none from the run."""
    runs = capped_runs(folder)
    lines = [_ENERGY_HEAD, "|---|---:|---:|---:|---:|---:|"]
    for gpu, test in runs.groupby("gpu"):
        others = runs[runs["gpu"] != gpu]
        power, cap = columns_of(test, "average_power_free", "power_limit")
        energy, free = columns_of(test, "energy_per_epoch_kj", "energy_per_epoch_kj_free")
        time, free_time = columns_of(test, "time_per_epoch", "time_per_epoch_free")
        ratio = cap_law(power, cap, *best_law(others)) / power
        _, shipped, _ = slowdown_under_cap(ratio)
        known = np.isfinite(shipped)
        guesses = (
            ratio * slowdown_from(others, ratio),
            np.where(known, ratio * shipped, np.nan),
            ratio,
            np.full(len(test), PLANNED_CAP_RATIO),
        )
        cells = " | ".join(
            f"{100 * np.nanmean(np.abs(guess - energy / free)[known]):.1f}" for guess in guesses
        )
        low, _, high = slowdown_under_cap(ratio)
        inside = ((time / free_time >= low) & (time / free_time <= high))[known].mean()
        lines.append(f"| {gpu} | {cells} | {100 * inside:.0f} % |")
    return lines


def slowdown_from(rows: pd.DataFrame, ratio: Floats) -> Floats:
    """Return the median slowdown of the rows at a power ratio, by bins of 0.05."""
    power, free, time, free_time = columns_of(
        rows, "average_power", "average_power_free", "time_per_epoch", "time_per_epoch_free"
    )
    seen = pd.DataFrame({"ratio": power / free, "slower": time / free_time})
    middle = seen.groupby((seen["ratio"] * 20).astype(int)).median()
    known = np.append(middle["ratio"].to_numpy()[middle["ratio"] < 1], 1.0)
    slower = np.append(middle["slower"].to_numpy()[middle["ratio"] < 1], 1.0)
    return np.asarray(np.interp(ratio, known, slower))


def cap_law(power: Floats, cap: Floats, reach: float, sharpness: float) -> Floats:
    """Return power under a cap by the law with these constants."""
    return np.asarray((power**-sharpness + (reach * cap) ** -sharpness) ** (-1 / sharpness))


def best_law(rows: pd.DataFrame) -> tuple[float, float]:
    """Return reach and sharpness with the smallest mean absolute error on the rows."""
    power, cap, truth = columns_of(rows, "average_power_free", "power_limit", "average_power")
    options = [(reach / 100, q) for reach in range(88, 103) for q in (4.0, 6.0, 8.0, 12.0, 20.0)]
    return min(
        options, key=lambda option: float(np.abs(cap_law(power, cap, *option) - truth).mean())
    )


def coefficients(models: dict[str, PowerModel], name: str) -> str:
    """Return the coefficients of the simplest fit of a model, in words."""
    shares = zip(pairwise(KNOTS), models[name].fits[0].coefficients, strict=True)
    return ", ".join(
        f"utilization {100 * low:.0f}-{100 * high:.0f} % {share:.2f}"
        for (low, high), share in shares
    )


def report(folder: Path) -> str:
    """Return all tables in Markdown."""
    inference, fleet = inference_samples(folder), fleet_samples()
    alone, held = ours(with_held=False), ours(with_held=True)
    counts = ", ".join(
        f"{name} {len(entry.power_watts)} rows of {len(np.unique(np.asarray(entry.group)))} models"
        for name, entry in inference.items()
    )
    jobs = ", ".join(
        f"{name} {len(entry.power_watts)} rows of {len(np.unique(np.asarray(entry.group)))} holders"
        for name, entry in fleet.items()
    )
    shapes = fit_power_models(inference, CATALOGUE, signal="roofline")
    head = (
        "Errors on groups left out of the fit; in q10–q90: share of readings inside the interval "
        "(80 % nominal)."
    )
    lines = [
        head,
        "",
        f"LLM inference, ML.ENERGY: {counts}. Utilization estimated from throughput.",
        "",
        *table_of(inference, {"**Trimtab, utilization**": alone, **PEERS}),
        "",
        "Shares of TDP − idle: "
        + "; ".join(f"{name} {coefficients(shapes, name)}" for name in inference)
        + ".",
        "",
        f"Simulated fleet: {jobs}.",
        "",
        *table_of(
            fleet, {"**Trimtab, SM activity**": alone, "**Trimtab, and held**": held, **PEERS}
        ),
        "",
        "37 programs on one H200, SM activity by NVML:",
        "",
        *table_of(program_samples(), {"**Trimtab, SM activity**": alone, **PEERS}),
        "",
        *capture_rows(folder),
        "",
        *acme_rows(folder),
        "",
        *capped_rows(folder),
        "",
        *cap_energy_rows(folder),
    ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the tables and write them to benchmarks/results/power_model.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="not used: all takes seconds")
    parser.add_argument("--data", default="../shared/data", help="folder of the recorded data")
    options = parser.parse_args()
    text = report(Path(options.data))
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
