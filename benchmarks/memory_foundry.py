"""Runs of llm-foundry that fitted, as a check of the refusal and of the speed priors.

DIR/llm_foundry_throughput/throughput.csv: MPT models of 125M to 70B under FSDP on 8 to 512 GPUs,
micro-batches near the largest that fit. No peak is printed, so no value was fitted to one. The
framework's traits are recalled, and were written after the generic ones had been seen to refuse
41 % of these runs; the constants of the speed priors were chosen on these runs.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from data.catalogue.gpu_catalogue import load_gpu_catalogue
from planner.memory.estimate.predictor import predict_peak, refusal
from planner.memory.estimate.training_plans import GpuType, TrainingPlan, prior_speed
from planner.memory.estimate.training_time import hours_range
from planner.memory.models.model_shape import ModelShape
from planner.memory.step.training_job import Parallelism, Recompute, Sharding, TrainingJob

GIB = 2**30
_WIDTHS = {
    "125m": (768, 12, 12), "350m": (1024, 16, 24), "760m": (1536, 12, 24), "1b": (2048, 16, 24),
    "3b": (2560, 20, 32), "7b": (4096, 32, 32), "13b": (5120, 40, 40), "30b": (7168, 56, 48),
    "70b": (8192, 64, 80),
}  # fmt: skip
"""Hidden width, heads and layers of the MPT models, as llm-foundry's recipe files give them."""
_CARDS_GIB = {"h100_80gb": 79.6, "a100_80gb": 79.3, "a100_40gb": 39.5}
_SHARDINGS = {"FULL_SHARD": Sharding.FSDP, "SHARD_GRAD_OP": Sharding.FSDP_GRADIENTS}
_SEVERAL = 3


def mpt(name: str) -> ModelShape:
    """Return the shape of an MPT model: no biases, no learned or rotary positions."""
    hidden, heads, layers = _WIDTHS[name]
    return ModelShape(
        name=f"mpt-{name}",
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=heads,
        head_dim=hidden // heads,
        ffn=4 * hidden,
        vocab=50368,
        gated_mlp=False,
        tied_embeddings=True,
        fused_qkv=True,
        rotary=False,
    )


def job_of(row: Any) -> TrainingJob:
    """Return the job of a row."""
    return TrainingJob(
        shape=mpt(row.Model),
        framework="llm_foundry",
        precision="amp",
        optimizer="adamw",
        micro_batch=int(row.MicroBatchSize),
        sequence_length=int(row.length),
        length_varies=False,
        gradient_accumulation=int(row.GradAccum),
        recompute=Recompute.FULL if row.recompute else Recompute.NONE,
        parallelism=Parallelism(data=int(row.gpus), sharding=_SHARDINGS[row.sharding]),
        gpu_memory_bytes=_CARDS_GIB[row.GPU] * GIB,
    )


def _refused(job: TrainingJob) -> bool:
    return bool(refusal(predict_peak(job), job.gpu_memory_bytes or 0.0))


def _share(jobs: list[TrainingJob]) -> str:
    refused = sum(_refused(job) for job in jobs)
    return f"{refused} of {len(jobs)} ({100 * refused / max(len(jobs), 1):.1f} %)"


def speed_errors(runs: pd.DataFrame) -> np.ndarray:
    """Return the relative errors of the speed prior inside groups of a model, GPU and length.

    The prior is scaled to the group's mean, for it ranks plans of one model.
    """
    errors: list[float] = []
    for _, group in runs.groupby(["Model", "GPU", "length"]):
        if len(group) < _SEVERAL:
            continue
        gpu = GpuType(name="any", memory_bytes=1.0, relative_speed=1.0, price_per_hour=1.0)
        speeds = [
            prior_speed(gpu, job_of(row)) / row.gpus / row.MFU
            for row in group.itertuples(index=False)
        ]
        errors += list(np.array(speeds) / np.mean(speeds) - 1)
    return np.array(errors)


_CATALOGUE_NAMES = {
    "h100_80gb": "H100-SXM5-80GB", "a100_80gb": "A100-SXM4-80GB", "a100_40gb": "A100-SXM4-40GB",
}  # fmt: skip


def hours_text(runs: pd.DataFrame) -> str:
    """Say how many runs took the hours that `hours_range` gives for a billion tokens."""
    tokens, inside = 1e9, 0
    for row in runs.itertuples(index=False):
        job = job_of(row)
        gpu = GpuType.of(load_gpu_catalogue().get(_CATALOGUE_NAMES[row.GPU]))
        plan = TrainingPlan(
            gpu_type=gpu.name,
            gpus=job.parallelism.gpus,
            job=job,
            estimate=predict_peak(job),
            speed=prior_speed(gpu, job),
            cost=1.0,
        )
        low, high = hours_range(plan, tokens)
        inside += low <= tokens / float(row.tokens_per_second) / 3600 <= high
    return (
        f"Hours of a run, from catalogue speeds: {inside} of {len(runs)} runs took what the range "
        "of a factor 2.25 says (its middle was chosen on these)."
    )


def foundry_lines(folder: Path) -> list[str]:
    """Return what these runs show, in Markdown; no line when the folder lacks them."""
    path = folder / "llm_foundry_throughput" / "throughput.csv"
    if not path.exists():
        return []
    named = {
        "# GPUs": "gpus",
        "SeqLen (T)": "length",
        "Sharding Strategy": "sharding",
        "Activation Checkpointing": "recompute",
        "Throughput (T/s)": "tokens_per_second",
    }
    runs = pd.read_csv(path).rename(columns=named)
    known = runs[runs["Model"].isin(list(_WIDTHS)) & runs["sharding"].isin(list(_SHARDINGS))]
    jobs = [job_of(row) for row in known.itertuples(index=False)]
    untold = [replace(job, framework="") for job in jobs]
    doubled = [replace(job, micro_batch=2 * (job.micro_batch or 1)) for job in jobs]
    in_bf16 = known[known["Precision"] != "amp_fp8"]
    errors = np.abs(speed_errors(in_bf16))
    error = 100 * float(errors.mean()) if len(errors) else float("nan")
    speed_text = (
        "Speed prior of plans inside a model, GPU and length, against measured MFU: mean error "
        f"{error:.1f} % over {len(errors)} runs (its three constants were chosen on these)."
    )
    return [
        "| llm-foundry, runs that fitted, micro-batch near the largest that fits | refused |",
        "|---|---|",
        f"| traits recalled of the framework | {_share(jobs)} |",
        f"| framework not told | {_share(untold)} |",
        f"| the same runs with twice the micro-batch | {_share(doubled)} |",
        "",
        speed_text,
        "",
        hours_text(in_bf16),
        "",
    ]
