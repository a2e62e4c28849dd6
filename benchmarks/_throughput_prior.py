"""Tokens per second of a training job before anything was measured, across models and recipes.

A least-squares fit of the logarithm of FLOP per second and GPU to runs of MPT 125M to 70B under
FSDP on 8 to 512 H100 and A100: mosaicml/llm-foundry, scripts/train/benchmarking (Apache-2.0). What
it says of other GPUs scales with their rate; held-out errors are in benchmarks/scheduling.py.
"""

import math

from planner.memory.step.training_job import Recompute, TrainingJob

_RECOMPUTED = 0.75
"""Useful share of the FLOP with full recomputation: one forward pass in four is thrown away."""

_TOKENS = 1036.0
"""Tokens of a micro-batch at which 1/e of the rate is lost to what does not grow with them."""

_WIDTH = 0.235
_WIDE = 4096

RATES = {"H100-80": 4.9e14, "A100-80": 2.23e14, "A100-40": 2.15e14}
"""FLOP per second of one GPU at the width of 7B models, large micro-batches, no recomputation."""


def relative_efficiency(job: TrainingJob) -> float:
    """Return what is left of a GPU's rate by recomputation, micro-batch and width of the model."""
    tokens = (job.micro_batch or 1) * (job.sequence_length or 1)
    kept = _RECOMPUTED if job.recompute is Recompute.FULL else 1.0
    width = (job.shape.hidden / _WIDE) ** _WIDTH
    return kept * math.exp(-_TOKENS / tokens) * float(width)


def flop_per_token(parameters: float, job: TrainingJob) -> float:
    """Return 6 N + 12 l h s, forward and backward (Chowdhery et al., PaLM, appendix B)."""
    attention = 12 * job.shape.layers * job.shape.hidden * (job.sequence_length or 0)
    return 6 * parameters + attention


def tokens_per_second(job: TrainingJob, parameters: float, rate: float) -> float:
    """Return tokens per second of all GPUs of the job; `rate` is the FLOP per second of one."""
    per_gpu = rate * relative_efficiency(job) / flop_per_token(parameters, job)
    return job.parallelism.gpus * per_gpu
