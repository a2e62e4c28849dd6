"""The flag or setting by which each training framework makes a change that saves memory.

As their own documents name them; `{micro_batch}` is the new size. A framework or change that is
not listed here has no flag known.
"""

from collections.abc import Mapping

from data.records.memory import MemoryRemedy
from planner.memory.step.training_job import TrainingJob

_RECOMPUTE, _SHARD, _BATCH = (
    MemoryRemedy.RECOMPUTE,
    MemoryRemedy.SHARD,
    MemoryRemedy.SMALLER_MICRO_BATCH,
)
_TRAINING_ARGUMENTS = {
    _RECOMPUTE: "--gradient_checkpointing true",
    _SHARD: '--fsdp "full_shard auto_wrap"',
    _BATCH: "--per_device_train_batch_size {micro_batch}",
}
_ZERO3 = {**_TRAINING_ARGUMENTS, _SHARD: '"zero_optimization": {"stage": 3} of its DeepSpeed file'}
FLAGS: Mapping[str, Mapping[MemoryRemedy, str]] = {
    "transformers": _TRAINING_ARGUMENTS,
    "transformers_deepspeed": _ZERO3,
    "trl": _TRAINING_ARGUMENTS,
    "trl_deepspeed": _ZERO3,
    "peft": _TRAINING_ARGUMENTS,
    "swift": {**_TRAINING_ARGUMENTS, _SHARD: "--deepspeed zero3"},
    "axolotl": {
        _RECOMPUTE: "gradient_checkpointing: true",
        _SHARD: "deepspeed: deepspeed_configs/zero3.json",
        _BATCH: "micro_batch_size: {micro_batch}",
    },
    "llamafactory": {
        _RECOMPUTE: "disable_gradient_checkpointing: false",
        _SHARD: "deepspeed: examples/deepspeed/ds_z3_config.json",
        _BATCH: "per_device_train_batch_size: {micro_batch}",
    },
    "megatron": {
        _RECOMPUTE: "--recompute-granularity full --recompute-method uniform "
        "--recompute-num-layers 1",
        _BATCH: "--micro-batch-size {micro_batch}",
    },
    "torchtitan": {
        _RECOMPUTE: "--activation_checkpoint.mode full",
        _SHARD: "--parallelism.data_parallel_shard_degree -1",
        _BATCH: "--training.local_batch_size {micro_batch}",
    },
    "torchtune": {
        _RECOMPUTE: "enable_activation_checkpointing=True",
        _BATCH: "batch_size={micro_batch}",
    },
    "litgpt": {_BATCH: "--train.micro_batch_size {micro_batch}"},
    "verl": {
        _RECOMPUTE: "actor_rollout_ref.model.enable_gradient_checkpointing=True",
        _BATCH: "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu={micro_batch}",
    },
}


def flag_of(remedy: MemoryRemedy, changed: TrainingJob) -> str:
    """Return the flag that changes a job in its framework, '' where it is not known."""
    flag = FLAGS.get(changed.framework or "", {}).get(remedy, "")
    return flag.replace("{micro_batch}", str(changed.micro_batch))
