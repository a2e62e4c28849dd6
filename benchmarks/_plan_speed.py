"""How well plans' throughput is estimated: measured runs against priors and against own history.

llm_foundry_throughput holds tokens per second of MPT models under FSDP. A group is a model, GPU
type and sequence length. Every scale below is fitted on other groups, or on other sizes of the same
group, than the run it is judged on; runs in fp8 are left out.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd

from benchmarks._scaling_history import scaled_speed
from benchmarks._throughput_prior import flop_per_token, tokens_per_second
from benchmarks.memory_foundry import job_of
from planner.memory.estimate.training_plans import GpuType, prior_speed

Floats = npt.NDArray[np.float64]
_ANY = GpuType(name="any", memory_bytes=1.0, relative_speed=1.0, price_per_hour=1.0)
_NAMES = {
    "# GPUs": "gpus",
    "SeqLen (T)": "length",
    "Sharding Strategy": "sharding",
    "Activation Checkpointing": "recompute",
    "Throughput (T/s)": "tokens",
}
_GROUP = ["Model", "GPU", "length"]


def _by_plan(row: Any) -> float:
    """Return the prior that ranks plans of one model, over the work of a token."""
    job = job_of(row)
    return prior_speed(_ANY, job) / flop_per_token(row.NumParams, job)


def _by_fit(row: Any) -> float:
    return tokens_per_second(job_of(row), row.NumParams, 1.0)


def _flat(row: Any) -> float:
    return float(row.gpus) / flop_per_token(row.NumParams, job_of(row))


def _refitted(runs: pd.DataFrame) -> Floats:
    """Return relative errors with all coefficients of the fit from the other groups."""
    key = runs[_GROUP].astype(str).agg(" ".join, axis=1).to_numpy()
    types = sorted(runs["GPU"].unique())
    features, target = [], []
    for row in runs.itertuples(index=False):
        job = job_of(row)
        tokens = row.MicroBatchSize * row.length
        features.append(
            [name == row.GPU for name in types]
            + [float(row.recompute), 1 / tokens, np.log(job.shape.hidden)]
        )
        target.append(np.log(row.tokens * flop_per_token(row.NumParams, job) / row.gpus))
    x, y = np.array(features, dtype=np.float64), np.array(target)
    errors = []
    for group in sorted(set(key)):
        inside = key == group
        fitted = np.linalg.lstsq(x[~inside], y[~inside], rcond=None)[0]
        errors += list(np.exp(x[inside] @ fitted - y[inside]) - 1)
    return np.array(errors)


def _from_other_groups(runs: pd.DataFrame, prior: Callable[[Any], float]) -> Floats:
    """Return relative errors with the GPU's rate as the median over the type's other groups."""
    rates = np.array([row.tokens / prior(row) for row in runs.itertuples(index=False)])
    key = runs[_GROUP].astype(str).agg(" ".join, axis=1).to_numpy()
    gpu = runs["GPU"].to_numpy()
    errors = []
    for index in range(len(runs)):
        others = (gpu == gpu[index]) & (key != key[index])
        if others.any():
            errors.append(float(np.median(rates[others]) / rates[index] - 1))
    return np.array(errors)


def _from_own_history(runs: pd.DataFrame) -> Floats:
    """Return relative errors with the other sizes of the same group as the model's own history."""
    errors = []
    for _, group in runs.groupby(_GROUP):
        by_size = {int(row.gpus): row for row in group.itertuples(index=False)}
        for size, row in by_size.items():
            history = {
                ("any", other): float(entry.tokens)
                for other, entry in by_size.items()
                if other != size
            }
            if history:
                found = scaled_speed(
                    "any", size, history, lambda _, gpus, rows=by_size: _by_fit(rows[gpus])
                )
                errors.append(found.speed / float(row.tokens) - 1)
    return np.array(errors)


def plan_speed_table(data: Path) -> list[str]:
    """Return the table in Markdown; a line that says so when the folder lacks the runs."""
    path = data / "llm_foundry_throughput" / "throughput.csv"
    if not path.exists():
        return ["No llm_foundry_throughput in the data: not measured."]
    runs = pd.read_csv(path).rename(columns=_NAMES)
    runs = runs[(runs["Precision"] != "amp_fp8") & (runs["tokens"] > 0)]
    lines = [
        "Tokens per second of MPT 125M to 70B under FSDP on 8 to 512 H100 and A100 (llm-foundry,",
        "Apache-2.0). A group is a model, GPU type and length. The rate of a type is that of its",
        "other groups; own history are other numbers of GPUs of the same group.",
        "",
        "| estimate | runs | mean error | median | within 10 % |",
        "|---|---:|---:|---:|---:|",
    ]
    for name, errors in (
        ("one efficiency per GPU type", _from_other_groups(runs, _flat)),
        ("prior that ranks plans of one model", _from_other_groups(runs, _by_plan)),
        ("fitted prior, as shipped (saw these runs)", _from_other_groups(runs, _by_fit)),
        ("fitted prior, fitted without the group", _refitted(runs)),
        ("fitted prior corrected by own history", _from_own_history(runs)),
    ):
        size = np.abs(errors)
        lines.append(
            f"| {name} | {len(size)} | {100 * size.mean():.1f} % | {100 * np.median(size):.1f} % "
            f"| {100 * (size <= 0.1).mean():.0f} % |"
        )
    return lines
