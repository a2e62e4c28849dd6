"""Remedies of slow work, by the flag or setting of each training framework, else in words."""

from collections.abc import Mapping

from data.records.memory import MemoryRemedy
from data.records.slow_work import SlowCause
from planner.memory.step.training_job import TrainingJob
from planner.memory.watch.framework_flags import framework_flags

WORDS: Mapping[SlowCause, str] = {
    SlowCause.STARVED: (
        "more processes that load data (num_workers of PyTorch's DataLoader, with pin_memory), "
        "data on a faster disk or prepared beforehand; where loading keeps up, a larger batch "
        "or CUDA graphs"
    ),
    SlowCause.SMALL_BATCH: "a larger batch per GPU, or kernels fused by torch.compile",
    SlowCause.WAITING: (
        "equal work for every rank (samples of like length together), and evaluation and "
        "checkpoints by all ranks at once"
    ),
    SlowCause.COMMUNICATION: (
        "more steps between exchanges (gradient accumulation), exchange beside computing, and "
        "boards that NVLink joins"
    ),
    SlowCause.NO_TENSOR: (
        "mixed precision (bf16: torch.autocast), or at least TF32 "
        "(torch.set_float32_matmul_precision('high'))"
    ),
    SlowCause.THROTTLED: (
        "cooling and power supply of its boards: `nvidia-smi -q -d PERFORMANCE,TEMPERATURE` "
        "names what slows the clocks"
    ),
}
SHORT: Mapping[SlowCause, str] = {
    SlowCause.STARVED: "more processes that load data",
    SlowCause.SMALL_BATCH: "a larger batch per GPU",
    SlowCause.WAITING: "equal work for every rank",
    SlowCause.COMMUNICATION: "more steps between exchanges",
    SlowCause.NO_TENSOR: "mixed precision",
    SlowCause.THROTTLED: "look at cooling and power supply",
}


def remedy_of(cause: SlowCause, recipe: TrainingJob | None) -> str:
    """Return the remedy of a cause, in the terms of the job's framework where known.

    The batch and the steps between two exchanges are named twice as large as now.
    """
    words = WORDS.get(cause, "")
    flag = "" if recipe is None else _flag(cause, recipe)
    return words if recipe is None or not flag else f"`{flag}` of {recipe.framework}; {words}"


def _flag(cause: SlowCause, recipe: TrainingJob) -> str:
    """Return the flag of the recipe's framework, '' where it or its number is not known."""
    flags = framework_flags().get(recipe.framework, {})
    if cause is SlowCause.SMALL_BATCH:
        flag = flags.get(MemoryRemedy.SMALLER_MICRO_BATCH, "")
        mark, now = "{micro_batch}", recipe.micro_batch
    else:
        flag, mark, now = flags.get(cause, ""), "{accumulation}", recipe.gradient_accumulation
    if mark not in flag:
        return flag
    return "" if now is None else flag.replace(mark, str(2 * now))
