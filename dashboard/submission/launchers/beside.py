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


def refuse_otherwise(options: Mapping[str, Any], told: Told, job: TrainingJob) -> None:
    """Refuse an option that says otherwise than the job that was read from the launcher's words.

    A launcher's length of sequences and an engine's number of them are limits: less may be asked.
    Errors: ChangeRefusedError naming the option and the launcher's flag, both with their values.
    """
    actual = _as_options(told, job)
    for name, value in options.items():
        found = actual.get(name)
        limits = name == "seq" or (name == "batch" and job.method is Method.INFERENCE)
        fits = value <= found if limits and found else limits
        if found == value or fits:
            continue
        said = f"--{name.replace('_', '-')} {' '.join(value) if name == 'offload' else value}"
        flag = next((field for field in _FLAGS.get(name, (name,)) if told.stated(field)), None)
        if flag is not None:
            why = f"contradicts {told.named(flag)}"
        else:
            why = "is not what the launcher's command says"
        shown = " ".join(found or ()) if name == "offload" else found
        makes = f": its job has {shown}" if shown else ": it states none"
        raise ChangeRefusedError(
            f"{said} {why}{makes}", "Take the option out, or say it in the launcher's own words."
        )


def _as_options(told: Told, job: TrainingJob) -> dict[str, Any]:
    """Return a job as the options would state it; None is not said, or left to the options."""
    spread, length = job.parallelism, told.stated("sequence_length")
    whole = told.stated("max_sequences")
    if job.method is not Method.INFERENCE:
        whole = (job.micro_batch or 1) * spread.data * (job.gradient_accumulation or 1)
    if length is None and told.stated("completion_length"):
        length = int(told.value("prompt_length") or 0) + told.stated("completion_length")
    return {
        "serve": job.method is Method.INFERENCE or None,
        "gpu_memory_utilization": told.stated("engine_share"),
        "kv_cache_dtype": told.stated("cache"),
        "batch": whole,
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
