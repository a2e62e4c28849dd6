"""What the sources of measured rows state beside their tables: recipe files, defaults, notes.

One function per source completes the job that a table's row prints, and says which figure the
source prints: allocated, reserved or nvml. A value that is no default of the source but was chosen
because it fits the measurements says so.
"""

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from benchmarks.memory_cells import number, text
from planner.memory.step.training_job import (
    Adapter,
    Method,
    Parallelism,
    Recompute,
    Sharding,
    TrainingJob,
)

Filler = Callable[[Any, TrainingJob], tuple[TrainingJob, str]]
"""From the row and its printed job to the whole job and the figure that the source prints."""


ALL_TARGETS = ("q", "k", "v", "o", "gate", "up", "down")
_GENERATED_TOKENS = 100
_PEFT_LONGEST = 0.76
"""Longest batch over the cap, chosen: samples are shorter, and the printed peak is a 99 % one."""
_UNPACKED_LENGTH = 1 / 8
"""Real over padded length of samples that are not packed, chosen."""
CHOSEN_LENGTHS = ("huggingface/peft", "pytorch/torchtune")
"""Sources of which the length of a batch was chosen in view of the peaks."""


def _recipe_devices(words: str, job: TrainingJob) -> int:
    """Return the devices that litgpt's recipe files use, whatever the machine's number of GPUs.

    The files of LoRA say `devices: 1` and were run so on machines of four GPUs too.
    """
    if "yaml" not in words:
        return job.parallelism.gpus
    if job.method is not Method.FULL or job.parallelism.gpus == 1:
        return 1
    return 2 if re.search(r"phi-2|stablelm", words) else job.parallelism.gpus


def _litgpt(row: Any, job: TrainingJob) -> tuple[TrainingJob, str]:
    words = f"{text(row.path)} {text(row.section)}"
    if "thunder" in words or text(row.compile):
        return replace(
            job,
            framework="thunder",
            micro_batch=job.micro_batch or 4,
            sequence_length=job.sequence_length or 2048,
            length_varies=False,
            recompute=Recompute.NONE,
            optimizer="adamw",
        ), "allocated"
    devices = _recipe_devices(words, job)
    job = replace(
        job,
        parallelism=Parallelism(
            data=devices, sharding=Sharding.FSDP if devices > 1 else Sharding.NONE
        ),
        precision="amp" if row.precision == "bf16-mixed" else None,
        framework="litgpt" if "yaml" in words else "litgpt_2023",
        length_varies=False,
        optimizer=job.optimizer or "adamw",
        gradient_accumulation=job.gradient_accumulation or 8,
        recompute=Recompute.FULL if devices > 1 else Recompute.NONE,
    )
    if job.method is Method.INFERENCE:
        # The generate script makes 50 tokens of a short prompt, whatever the model was tuned on.
        return replace(job, micro_batch=1, sequence_length=_GENERATED_TOKENS), "allocated"
    if job.adapter and job.adapter.kind == "lora" and job.adapter.trainable is not None:
        return replace(job, adapter=replace(job.adapter, rank=8, targets=("q", "v"))), "allocated"
    if job.adapter and job.adapter.trainable is None:
        rank, targets = _litgpt_adapter(words)
        job = replace(job, adapter=replace(job.adapter, rank=rank, targets=targets))
    return job, "allocated"


def _litgpt_adapter(words: str) -> tuple[int, tuple[str, ...]]:
    """Return LoRA's rank and targets in litgpt's recipe files, or the tutorials' defaults."""
    if "yaml" not in words:
        return 8, ("q", "v")
    for model, rank in (("gemma", 16), ("phi", 8), ("tiny", 32)):
        if model in words:
            return rank, ALL_TARGETS
    return 32, ("q", "v")


def _fsdp_qlora(row: Any, job: TrainingJob) -> tuple[TrainingJob, str]:
    adapter = Adapter(rank=64, targets=("k", "q", "v", "up", "down", "gate"))
    return replace(
        job, framework="fsdp_qlora", adapter=adapter, length_varies=False, optimizer="adamw"
    ), "reserved"


def _torchtune(row: Any, job: TrainingJob) -> tuple[TrainingJob, str]:
    section, note = text(row.section).lower(), text(row.seq_note)
    table = "memory and training" in section
    changes: dict[str, Any] = {
        "framework": "torchtune",
        "length_varies": False,
        "chunked_loss": table or "chunked" in section,
        "offload": frozenset({"activations"} if "offload" in section else ()),
        "optimizer": job.optimizer,
    }
    if "packed" not in note or "not packed" in note:
        changes["sequence_length"] = round((job.sequence_length or 4096) * _UNPACKED_LENGTH)
    if "fuse optimizer step into backward" in section:
        changes["optimizer"] = f"{job.optimizer or 'adamw'}_in_backward"
    if job.adapter:
        rank = 8 if table else 64
        changes["adapter"] = Adapter(rank=rank, targets=("q", "v", "o", "gate", "up", "down"))
        changes["optimizer"] = job.optimizer or "adamw"
        if table and row.gpu == "A6000":
            # Chosen: twice the memory of the 4090's row; the larger card needs no recomputation.
            changes["recompute"] = Recompute.NONE
    elif table and job.parallelism.gpus == 1:
        # The table's note: on the 4090 the optimiser steps inside the backward pass.
        manner = "_in_backward" if "4090" in text(row.gpu) else ""
        changes["optimizer"] = f"paged_adamw8bit{manner}"
    return replace(job, **changes), "allocated"


def _torchtitan(row: Any, job: TrainingJob) -> tuple[TrainingJob, str]:
    early = text(row.section).startswith("Table ") or "/ao" in text(row.source)
    changes: dict[str, Any] = {
        "framework": "torchtitan_2024" if early else "torchtitan",
        "length_varies": False,
        "optimizer": "adamw",
        "precision": "amp",
        "recompute": job.recompute or Recompute.OPERATORS,
        "gradient_accumulation": 1,
    }
    stages = job.parallelism.pipeline
    if stages > 1 and job.micro_batch:
        changes["micro_batch"] = max(1, job.micro_batch // stages)
        changes["gradient_accumulation"] = stages
        if "Interleaved" in text(row.section):
            changes["parallelism"] = replace(job.parallelism, virtual_stages=2)
    return replace(job, **changes), "reserved"


def _colossal(row: Any, job: TrainingJob) -> tuple[TrainingJob, str]:
    return replace(job, framework="colossalai", length_varies=False), "allocated"


def _internevo(row: Any, job: TrainingJob) -> tuple[TrainingJob, str]:
    return replace(job, framework="internevo", optimizer="adamw", length_varies=False), "nvml"


def _glm(row: Any, job: TrainingJob) -> tuple[TrainingJob, str]:
    return replace(job, framework="swift"), "nvml"


def _axolotl(row: Any, job: TrainingJob) -> tuple[TrainingJob, str]:
    return replace(job, framework="axolotl"), "reserved"


def _qwen(row: Any, job: TrainingJob) -> tuple[TrainingJob, str]:
    sharded = job.parallelism.sharding is not Sharding.NONE
    by_deepspeed = sharded or bool(job.quantization) or job.method is Method.FULL
    changes: dict[str, Any] = {
        "framework": "qwen_deepspeed" if by_deepspeed else "qwen",
        "length_varies": False,
        "optimizer": "adamw",
        "micro_batch": job.micro_batch or 1,
        "sequence_length": job.sequence_length or 256,
        "recompute": job.recompute or Recompute.FULL,
    }
    if job.adapter:
        targets = ALL_TARGETS
        changes["adapter"] = replace(job.adapter, rank=64, targets=targets)
    return replace(job, **changes), "nvml"


def _typical_length(note: str) -> int | None:
    """Read the mean length that a note prints as `3234±2547 tokens`."""
    match = re.search(r"(\d+)\s*±", note)
    return int(match.group(1)) if match else None


def _swift(row: Any, job: TrainingJob) -> tuple[TrainingJob, str]:
    changes: dict[str, Any] = {
        "framework": "swift",
        "optimizer": job.optimizer or "adamw",
        "length_varies": True,
        "typical_length": _typical_length(text(row.seq_note)),
    }
    if job.adapter and not job.adapter.targets:
        changes["adapter"] = replace(job.adapter, rank=8, targets=("q", "k", "v"))
    return replace(job, **changes), "reserved"


def _peft(row: Any, job: TrainingJob) -> tuple[TrainingJob, str]:
    changes: dict[str, Any] = {
        "framework": "peft",
        "optimizer": "adamw",
        "recompute": Recompute.NONE,
        "length_varies": True,
        "cache_emptied": True,
        "compiled": False,
    }
    if "FLUX" in text(row.model):
        changes["sequence_length"] = 1024 + 512
        changes["recompute"] = Recompute.FULL
        changes["framework"] = "peft_images"
    elif job.sequence_length:
        changes["sequence_length"] = round(_PEFT_LONGEST * job.sequence_length)
    return replace(job, **changes), "reserved"


def _sailor(row: Any, job: TrainingJob) -> tuple[TrainingJob, str]:
    spread = job.parallelism
    total = number(row.global_batch)
    micro = job.micro_batch or 1
    steps = max(1, int(total / (spread.data * micro))) if total else None
    layers = [int(entry) for entry in re.findall(r"\d+", text(row.time_note))]
    if len(layers) == spread.pipeline > 1:
        # The printed list counts the embedding and the head as a layer each.
        layers[0], layers[-1] = layers[0] - 1, layers[-1] - 1
        spread = replace(spread, stage_layers=tuple(layers))
    framework = "sailor_gh200" if "GH" in text(row.gpu) else "sailor"
    return replace(
        job,
        framework=framework,
        parallelism=spread,
        precision="zero-fp32",
        optimizer="adamw",
        gradient_accumulation=steps,
        recompute=Recompute.NONE,
        flash_attention=False,
        length_varies=False,
    ), "nvml"


RECIPES: dict[str, Filler] = {
    "Lightning-AI/litgpt": _litgpt,
    "AnswerDotAI/fsdp_qlora": _fsdp_qlora,
    "pytorch/torchtune": _torchtune,
    "pytorch/torchtitan": _torchtitan,
    "pytorch/ao": _torchtitan,
    "hpcaitech/ColossalAI": _colossal,
    "InternLM/InternEvo": _internevo,
    "THUDM/GLM-4": _glm,
    "axolotl-ai-cloud/axolotl": _axolotl,
    "QwenLM/Qwen": _qwen,
    "modelscope/ms-swift": _swift,
    "huggingface/peft": _peft,
    "eth-easl/sailor": _sailor,
}
