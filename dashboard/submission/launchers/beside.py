"""Options of the command beside a launcher's own words: they say the same, or are refused."""

from collections.abc import Mapping
from typing import Any

from dashboard.submission.launchers.told import Told
from data.base.errors import ChangeRefusedError
from planner.memory.step.training_job import Method, TrainingJob

_FLAGS = {
    "batch": ("global_batch", "micro_batch", "accumulation", "max_sequences"),
    "seq": ("sequence_length", "completion_length"),
    "precision": ("weights", "mixed", "bf16", "fp16"),
    "quantization": ("four_bit", "eight_bit", "bits", "served_quantization"),
    "method": ("adapter",),
    "lengths": ("packing", "padded"),
    "sharding": ("fsdp_words", "sharding", "zero_stage", "fsdp", "distributed", "shards"),
    "gpu_memory_utilization": ("engine_share",),
    "kv_cache_dtype": ("cache",),
    "offload": ("offload_all", "offload_optimizer", "offload_parameters", "offload_activations"),
}
"""The fields of a launcher that decide what an option states, where they are not called alike."""


def refuse_otherwise(options: Mapping[str, Any], flags: Told, job: TrainingJob) -> None:
    """Refuse an option that says otherwise than the job that was read from the launcher's words.

    A launcher's length of sequences and an engine's number of them are limits: less may be asked.
    Errors: ChangeRefusedError naming the option and the launcher's flag, both with their values.
    """
    actual = _as_options(flags, job)
    for name, value in options.items():
        job_value = actual.get(name)
        limits = name == "seq" or (name == "batch" and job.method is Method.INFERENCE)
        fits = value <= job_value if limits and job_value else limits
        if job_value == value or fits:
            continue
        option = f"--{name.replace('_', '-')} {' '.join(value) if name == 'offload' else value}"
        flag = next((field for field in _FLAGS.get(name, (name,)) if flags.stated(field)), None)
        if flag is not None:
            why = f"contradicts {flags.named(flag)}"
        else:
            why = "is not what the launcher's command says"
        text = " ".join(job_value or ()) if name == "offload" else job_value
        makes = f": its job has {text}" if text else ": it states none"
        raise ChangeRefusedError(
            f"{option} {why}{makes}", "Take the option out, or say it in the launcher's own words."
        )


def _as_options(flags: Told, job: TrainingJob) -> dict[str, Any]:
    """Return a job as the options would state it; None is not said, or left to the options."""
    spread, length = job.parallelism, flags.stated("sequence_length")
    batch = flags.stated("max_sequences")
    if job.method is not Method.INFERENCE:
        batch = (job.micro_batch or 1) * spread.data * (job.gradient_accumulation or 1)
    if length is None and flags.stated("completion_length"):
        length = int(flags.value("prompt_length") or 0) + flags.stated("completion_length")
    return {
        "serve": job.method is Method.INFERENCE or None,
        "gpu_memory_utilization": flags.stated("engine_share"),
        "kv_cache_dtype": flags.stated("cache"),
        "batch": batch,
        "seq": length,
        "optimizer": job.optimizer,
        "precision": job.precision,
        "quantization": job.quantization,
        "method": job.method.value,
        "adapter_rank": job.adapter.rank if job.adapter else None,
        "lengths": "vary" if job.length_varies else "fixed",
        "recompute": job.recompute.value if job.recompute else None,
        "micro_batch": job.micro_batch,
        "data": spread.data,
        "tensor": spread.tensor,
        "pipeline": spread.pipeline,
        "context": spread.context,
        "expert": spread.expert,
        "sharding": spread.sharding.value,
        "offload": sorted(job.offload),
    }
