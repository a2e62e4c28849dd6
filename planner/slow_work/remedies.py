"""Remedies of slow work, by the flag or setting of each training framework.

As their own documents name them, beside the flags of `planner.memory.watch.framework_flags`, which
name the batch. A framework or cause that is not listed here has no flag known: then it is said in
words.
"""

from collections.abc import Mapping

from data.records.memory import MemoryRemedy
from data.records.slow_work import SlowCause
from planner.memory.step.training_job import TrainingJob
from planner.memory.watch.framework_flags import FLAGS

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
_TRAINING_ARGUMENTS = {
    SlowCause.STARVED: "--dataloader_num_workers 8 --dataloader_pin_memory true",
    SlowCause.NO_TENSOR: "--bf16 true",
    SlowCause.COMMUNICATION: "--gradient_accumulation_steps {accumulation}",
}
_YAML = {
    SlowCause.STARVED: "dataloader_num_workers: 8",
    SlowCause.NO_TENSOR: "bf16: true",
    SlowCause.COMMUNICATION: "gradient_accumulation_steps: {accumulation}",
}
_FLAGS: Mapping[str, Mapping[SlowCause, str]] = {
    "transformers": _TRAINING_ARGUMENTS,
    "transformers_deepspeed": _TRAINING_ARGUMENTS,
    "trl": _TRAINING_ARGUMENTS,
    "trl_deepspeed": _TRAINING_ARGUMENTS,
    "peft": _TRAINING_ARGUMENTS,
    "swift": {**_TRAINING_ARGUMENTS, SlowCause.NO_TENSOR: "--torch_dtype bfloat16"},
    "axolotl": _YAML,
    "llamafactory": _YAML,
    "megatron": {
        SlowCause.STARVED: "--num-workers 8",
        SlowCause.NO_TENSOR: "--bf16",
        SlowCause.COMMUNICATION: "--overlap-grad-reduce --overlap-param-gather",
    },
    "torchtitan": {SlowCause.NO_TENSOR: "--training.mixed_precision_param bfloat16"},
    "torchtune": {
        SlowCause.NO_TENSOR: "dtype=bf16",
        SlowCause.COMMUNICATION: "gradient_accumulation_steps={accumulation}",
    },
    "litgpt": {SlowCause.NO_TENSOR: "--precision bf16-true"},
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
    if cause is SlowCause.SMALL_BATCH:
        flag = FLAGS.get(recipe.framework, {}).get(MemoryRemedy.SMALLER_MICRO_BATCH, "")
        mark, now = "{micro_batch}", recipe.micro_batch
    else:
        flag = _FLAGS.get(recipe.framework, {}).get(cause, "")
        mark, now = "{accumulation}", recipe.gradient_accumulation
    if mark not in flag:
        return flag
    return "" if now is None else flag.replace(mark, str(2 * now))
