"""What measured boards say of the limits by which readings are held against each other.

Programs on an H200 (benchmarks/measured), hours of six servers (facility), a cluster's DCGM
samples (acme), inference of H100 and B200 (ml_energy), nodes in training (mlperf_training_power).
"""

import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd

from collectors.readings.contradictions import REST_FACTOR
from data.catalogue.gpu_catalogue import load_gpu_catalogue

_H200 = "H200-SXM-141GB"
_GPUS_A_NODE = 8
_WARM_UP_SECONDS = 60


def limits(data: Path) -> Iterator[tuple[str, str, str]]:
    """Yield (what, value, source) rows; those of data sets only where the folder has them."""
    yield from _programs()
    if (path := data / "facility" / "biohpc_gpu_hourly.parquet").exists():
        hours = pd.read_parquet(path)
        rest = hours[hours["gpu_util_max_pct"] <= 0].groupby("server")["gpu_power_avg_w"]
        ratio = (rest.quantile(0.99) / rest.median()).sort_values()
        yield (
            "99 % of hours without work over their median, power, by server",
            ", ".join(f"{value:.1f}" for value in ratio),
            f"facility, {int(rest.size().sum()):,} hours of {len(ratio)} servers",
        )
    if (path := data / "acme" / "acme_metric_quantiles_seren_philly.parquet").exists():
        curves = pd.read_parquet(path)
        curve = curves[(curves["cluster"] == "seren") & (curves["metric"] == "gpu_power")]
        quantiles = (0.01, 0.25, 0.3)
        watts = np.interp(quantiles, curve["quantile"], curve["value"])
        yield (
            "power of an A100 in the quantiles 1, 25 and 30 %, GPU_UTIL being 0 in them",
            ", ".join(f"{value:.0f} W" for value in watts),
            "acme, cluster Seren",
        )
    if (path := data / "ml_energy" / "inference_power_energy.csv").exists():
        rows = pd.read_csv(path)
        watts_a_board = (rows["avg_power_watts"] / rows["num_gpus"]).groupby(rows["gpu_model"])
        for model, low in watts_a_board.quantile(0.01).items():
            count = int(watts_a_board.size()[model])
            yield f"{model} at inference, 1 % draw less than", f"{low:.0f} W", f"ml_energy, {count}"
    if (path := data / "mlperf_training_power" / "node_power.parquet").exists():
        power = pd.read_parquet(path)
        runs = pd.read_csv(path.parent / "runs.csv").set_index("run_id")
        seconds = (runs["run_stop_ms"] - runs["run_start_ms"]) / 1000
        end = power["run_id"].map(seconds).astype(float) - _WARM_UP_SECONDS
        at_work = power["node"].astype(str).str.startswith("node") & (power["power_w"] > 0)
        at_work &= (power["t_s"] > _WARM_UP_SECONDS) & (power["t_s"] < end)
        watts = power.loc[at_work, "power_w"] / _GPUS_A_NODE
        yield (
            "H100 node in training over eight, CPUs included, 1 % draw less than",
            f"{watts.quantile(0.01):.0f} W",
            f"mlperf_training_power, {len(watts):,} readings",
        )


def _programs() -> Iterator[tuple[str, str, str]]:
    folder = Path(__file__).parent / "measured"
    rows = json.loads((folder / "slow_programs_h200.json").read_text(encoding="utf-8"))["rows"]
    source = f"benchmarks/measured, {len(rows)} programs on an H200"
    model = load_gpu_catalogue().find(_H200)
    if model is None:
        raise ValueError(f"the catalogue has no {_H200}")
    loaded = REST_FACTOR * model.idle_watts / model.tdp_watts
    work = [max(0.0, row["power_ratio"] - loaded) / (1 - loaded) for row in rows]
    for name in ("engine_active", "sm_active"):
        short = max(needed - row[name] for needed, row in zip(work, rows, strict=True))
        yield f"work that power asks for, less {name}, at most", f"{short:.2f}", source
    busy = [row for row in rows if row["engine_active"] > 0.2]
    least = min(row["sm_active"] / row["engine_active"] for row in busy)
    yield "SM over engine activity, above 0.2, at least", f"{least:.2f}", source
    for inner in ("sm_active", "tensor_active", "dram_active"):
        most = max(row[inner] - row["engine_active"] for row in rows)
        yield f"{inner} less engine activity, at most", f"{most:.3f}", source
    rest = next(row["power_watts"] for row in rows if row["engine_active"] < 0.001)
    low = min(row["power_watts"] for row in busy if row["engine_active"] > 0.5)
    yield "power with a program loaded that does nothing", f"{rest:.0f} W of 700", source
    yield "least power with the engine at work half of the time", f"{low:.0f} W", source
