"""Measured rows of training memory, read into the jobs that were measured.

A row states what its table printed. What the source's own recipe files or code state beside the
table (LoRA rank, checkpointing default, what the figure counts) is filled in here, per source, so
that the predictor itself knows nothing of the rows.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from planner.memory.known_models import known_models
from planner.memory.model_shape import ModelShape
from planner.memory.training_job import (
    Adapter,
    Method,
    Parallelism,
    Recompute,
    Sharding,
    TrainingJob,
)

GIB = 2**30

_MODELS = [
    (r"llama[- ]?3(\.1)?[- ].*405b", "llama3-405b"),
    (r"llama[- ]?3(\.[13])?[- ].*70b", "llama3-70b"),
    (r"llama[- ]?3(\.1)?[- ].*8b", "llama3-8b"),
    (r"llama[- ]?3\.2.*3b", "llama3.2-3b"),
    (r"llama[- ]?3\.2.*1b", "llama3.2-1b"),
    (r"tiny-?llama", "tinyllama-1.1b"),
    (r"codellama.*34b", "codellama-34b"),
    (r"llama[- ]?2.*70b", "llama2-70b"),
    (r"llama[- ]?2.*13b", "llama2-13b"),
    (r"llama[- ]?2.*7b", "llama2-7b"),
    (r"falcon.*40b", "falcon-40b"),
    (r"falcon.*7b", "falcon-7b"),
    (r"gemma-?2-?9b", "gemma2-9b"),
    (r"gemma-?2-2b|gemma2-?2b", "gemma2-2b"),
    (r"gemma.*7b", "gemma-7b"),
    (r"gemma.*2b", "gemma-2b"),
    (r"mistral|zephyr", "mistral-7b"),
    (r"phi-?2", "phi-2"),
    (r"phi-?3", "phi-3-mini"),
    (r"phi-?1[._]5", "phi-1.5"),
    (r"stablelm.*3b", "stablelm-alpha-3b"),
    (r"qwen3\.5.*27b", "qwen3.5-27b"),
    (r"qwen3\.5.*9b", "qwen3.5-9b"),
    (r"qwen3.*8b", "qwen3-8b"),
    (r"qwen3.*1\.7b", "qwen3-1.7b"),
    (r"qwen1(\.5|half).*7b", "qwen1.5-7b"),
    (r"qwen-1[._]8b", "qwen-1.8b"),
    (r"qwen-7b", "qwen-7b"),
    (r"qwen-14b", "qwen-14b"),
    (r"qwen-72b", "qwen-72b"),
    (r"yi[- ]6b", "yi-6b"),
    (r"yi[- ]34b", "yi-34b"),
    (r"chatglm3", "chatglm3-6b"),
    (r"chatglm2", "chatglm2-6b"),
    (r"baichuan2.*7b", "baichuan2-7b"),
    (r"baichuan2.*13b", "baichuan2-13b"),
    (r"internlm.*7b", "internlm-7b"),
    (r"internlm.*20b", "internlm-20b"),
    (r"glm-4.*32b", "glm4-32b"),
    (r"glm-4v", "glm4v-9b"),
    (r"glm-4", "glm4-9b"),
    (r"^bert$|bert-base", "bert-base"),
    (r"opt-350m", "opt-350m"),
    (r"gpt-neo", "gpt-neo-2.7b"),
    (r"llama-like 7b", "llama2-7b"),
    (r"llama-like 70b", "llama2-70b"),
    (r"flux\.2-klein.*4b", "flux2-klein-4b"),
]
_FLUX = ModelShape(
    name="flux2-klein-4b",
    layers=25,
    hidden=3072,
    heads=24,
    kv_heads=24,
    head_dim=128,
    ffn=9216,
    vocab=1,
    other_parameters=3_875_544_576 - 3_067_000_000,
)
_CARDS_GIB = [
    (r"a100.*40", 39.5),
    (r"a[18]00", 79.3),
    (r"a10g", 22.1),
    (r"a6000", 47.5),
    (r"l40s", 44.5),
    (r"2080", 10.8),
    (r"3090", 23.7),
    (r"4090", 23.6),
    (r"gh.?200|gh-96|h100-96", 95.0),
    (r"h200", 139.8),
    (r"h100", 79.6),
    (r"gb200|b200", 178.0),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRow:
    """One row: the job, what was measured and in which figure.

    `reason` says why the row does not determine its peak; a job with assumed values may exist all
    the same. `contradiction` says what speaks against the measured value.
    """

    row_id: int
    source: str
    section: str
    model: str
    method: str
    job: TrainingJob | None
    figure: str
    peak_bytes: float | None
    out_of_memory: bool
    printed_scale: float
    reason: str = ""

    @property
    def contradiction(self) -> str:
        """What speaks against the measured value, '' when nothing does."""
        if "suspicious" in self.section:
            return "marked by the data set: a value copied between files"
        return CONTRADICTORY.get(self.row_id, "")

    @property
    def family(self) -> str:
        """Source and method; the adapters of one benchmark count as one method."""
        if "peft" in self.source:
            return f"{self.source} {'images' if 'FLUX' in self.model else 'text'}"
        return f"{self.source} {self.method}"


def _number(value: Any) -> float | None:
    return None if pd.isna(value) else float(value)


def _count(value: Any) -> int | None:
    return None if pd.isna(value) else int(value)


def _text(value: Any) -> str:
    return "" if pd.isna(value) else str(value)


def _model(name: str) -> ModelShape | None:
    plain = name.lower().rsplit("/", 1)[-1].replace("_", "_")
    for pattern, key in _MODELS:
        if re.search(pattern, plain):
            return _FLUX if key == "flux2-klein-4b" else known_models().get(key)
    return None


def _card(name: str) -> float | None:
    sizes = [gib for pattern, gib in _CARDS_GIB if re.search(pattern, name.lower())]
    return sizes[0] * GIB if sizes else None


def _degree(text: str, *names: str) -> int | None:
    for name in names:
        match = re.search(rf"\b{name}\s*=?\s*(\d+)", text)
        if match:
            return int(match.group(1))
    return None


def _spread(text: str, gpus: int) -> Parallelism:
    """Read a printed parallelism such as `FSDP8+TP8+PP8`, `pp=4,tp=4,dp=4` or `zero3`."""
    lower = text.lower().replace("+", " ").replace(",", " ").replace("(", " ").replace(")", " ")
    tensor = _degree(lower, "tp") or 1
    pipeline = _degree(lower, "pp") or 1
    context = _degree(lower, "cp") or 1
    if "naive mp" in lower:
        return Parallelism(pipeline=gpus, sequential=True)
    data = max(1, gpus // (tensor * pipeline * context))
    sharding = Sharding.NONE
    for pattern, one in (
        (r"fsdp=true", Sharding.FSDP),
        (r"zero1=-1", Sharding.ZERO1),
        (r"zero-?2", Sharding.ZERO2),
        (r"zero-?3", Sharding.ZERO3),
        (r"zero-?1|low_level_zero", Sharding.ZERO1),
        (r"fsdp(?!=)", Sharding.FSDP),
    ):
        if re.search(pattern, lower):
            sharding = one
            break
    if "fsdp" in lower and sharding is Sharding.ZERO3:
        sharding = Sharding.FSDP
    return Parallelism(
        data=data,
        tensor=tensor,
        pipeline=pipeline,
        context=context,
        sharding=sharding,
        sequence="fsdp" in lower and tensor > 1,
    )


_RECOMPUTE = [
    (r"^full", Recompute.FULL),
    (r"every 2nd", Recompute.ALTERNATE),
    (r"^(per-op )?selective", Recompute.OPERATORS),
    (r"^none", Recompute.NONE),
]
_QUANTIZATION = [
    (r"nf4-dq", "nf4-dq"),
    (r"nf4|int4 \(bnb\)", "nf4"),
    (r"gptq-int4|int4 \(gptq\)", "gptq-int4"),
    (r"gptq-int8|int8 \(gptq\)", "gptq-int8"),
    (r"int8", "int8"),
    (r"aqlm", "aqlm-2bit"),
]


def _first(rules: list[tuple[str, Any]], text: str) -> Any:
    return next((value for pattern, value in rules if re.search(pattern, text)), None)


def _targets(text: str, shape: ModelShape) -> tuple[str, ...]:
    found = []
    for name, one in (
        ("q_proj", "q"),
        ("k_proj", "k"),
        ("v_proj", "v"),
        ("o_proj", "o"),
        ("gate_proj", "gate"),
        ("up_proj", "up"),
        ("down_proj", "down"),
    ):
        if name in text:
            found.append(one)
    if "ALL" in text:
        found = ["q", "k", "v", "o", "gate", "up", "down"]
    elif "DEFAULT" in text or "qkv" in text:
        found = ["q", "k", "v"]
    return tuple(one for one in found if shape.gated_mlp or one != "gate")


def _method(row: Any) -> Method:
    if row.method == "full":
        return Method.FULL
    return Method.INFERENCE if row.method == "inference" else Method.ADAPTER


def _printed_job(row: Any, shape: ModelShape) -> TrainingJob:
    """Give the job with what the table itself states."""
    method = _method(row)
    adapter = None
    if method is Method.ADAPTER:
        adapter = Adapter(
            kind=str(row.method).split("+")[-1],
            rank=_count(row.lora_rank) or None,
            targets=_targets(_text(row.lora_targets), shape),
            trainable=_count(row.trainable_params),
            copies_embeddings="emb" in str(row.method),
        )
    flash = _text(row.flash_attn)
    compiled = {"True": True, "False": False, "Eager": False, "Thunder": True}
    return TrainingJob(
        shape=shape,
        method=method,
        adapter=adapter,
        parallelism=_spread(_text(row.parallelism), _count(row.n_gpus) or 1),
        micro_batch=_count(row.micro_batch),
        sequence_length=_count(row.seq_len),
        length_varies=None if pd.isna(row.seq_len) else "cap" in _text(row.seq_note),
        gradient_accumulation=_count(row.grad_accum),
        optimizer=_text(row.optimizer).lower() or None,
        quantization=_first(_QUANTIZATION, _text(row.quant)) or "",
        recompute=_first(_RECOMPUTE, _text(row.act_ckpt)),
        flash_attention=None if not flash else flash != "none",
        compiled=compiled.get(_text(row.compile)),
        offload=frozenset({"parameters", "optimizer"})
        if _text(row.cpu_offload) == "True"
        else frozenset(),
        gpu_memory_bytes=_card(_text(row.gpu)),
    )


Filler = Callable[[Any, TrainingJob], tuple[TrainingJob, str]]


_GENERATED_TOKENS = 100


def _recipe_devices(text: str, job: TrainingJob) -> int:
    """Give the devices that litgpt's recipe files use, whatever the machine's number of GPUs.

    The files of LoRA say `devices: 1` and were run so on machines of four GPUs too.
    """
    if "yaml" not in text:
        return job.parallelism.gpus
    if job.method is not Method.FULL or job.parallelism.gpus == 1:
        return 1
    return 2 if re.search(r"phi-2|stablelm", text) else job.parallelism.gpus


def _litgpt(row: Any, job: TrainingJob) -> tuple[TrainingJob, str]:
    text = f"{_text(row.path)} {_text(row.section)}"
    if "thunder" in text or _text(row.compile):
        return replace(
            job,
            framework="thunder",
            micro_batch=job.micro_batch or 4,
            sequence_length=job.sequence_length or 2048,
            length_varies=False,
            recompute=Recompute.NONE,
            optimizer="adamw",
        ), "allocated"
    devices = _recipe_devices(text, job)
    job = replace(
        job,
        parallelism=Parallelism(
            data=devices, sharding=Sharding.FSDP if devices > 1 else Sharding.NONE
        ),
        precision="amp" if row.precision == "bf16-mixed" else None,
        framework="litgpt" if "yaml" in text else "litgpt_2023",
        length_varies=False,
        optimizer=job.optimizer or "adamw",
        gradient_accumulation=job.gradient_accumulation or 8,
        recompute=Recompute.FULL if devices > 1 else Recompute.NONE,
    )
    if job.method is Method.INFERENCE:
        # The generate script makes 50 tokens of a short prompt, whatever the model was tuned on.
        return replace(job, micro_batch=1, sequence_length=_GENERATED_TOKENS), "allocated"
    if job.adapter and job.adapter.trainable is None:
        rank, targets = 32, ("q", "v")
        if re.search(r"gemma", text):
            rank, targets = 16, ("q", "k", "v", "o", "gate", "up", "down")
        elif re.search(r"phi", text):
            rank, targets = 8, ("q", "k", "v", "o", "gate", "up", "down")
        elif re.search(r"tiny", text):
            rank, targets = 32, ("q", "k", "v", "o", "gate", "up", "down")
        if "config_hub" not in text and "yaml" not in text:
            rank, targets = 8, ("q", "v")
        job = replace(job, adapter=replace(job.adapter, rank=rank, targets=targets))
    elif job.adapter and job.adapter.kind == "lora":
        job = replace(job, adapter=replace(job.adapter, rank=8, targets=("q", "v")))
    return job, "allocated"


def _fsdp_qlora(row: Any, job: TrainingJob) -> tuple[TrainingJob, str]:
    adapter = Adapter(rank=64, targets=("k", "q", "v", "up", "down", "gate"))
    return replace(
        job, framework="fsdp_qlora", adapter=adapter, length_varies=False, optimizer="adamw"
    ), "reserved"


def _torchtune(row: Any, job: TrainingJob) -> tuple[TrainingJob, str]:
    section = _text(row.section).lower()
    lora = ("q", "v", "o") if "Memory and training" in _text(row.section) else None
    changes: dict[str, Any] = {"framework": "torchtune", "length_varies": False}
    if "packed" not in _text(row.seq_note) or "not packed" in _text(row.seq_note):
        changes["sequence_length"] = (job.sequence_length or 4096) // 8
    if "chunked" in section or "Memory and training" in _text(row.section):
        changes["chunked_loss"] = True
    offload = set()
    if "offload" in section:
        offload.add("activations")
    changes["offload"] = frozenset(offload)
    optimizer = job.optimizer
    if "fuse optimizer step into backward" in section:
        optimizer = f"{optimizer or 'adamw'}_in_backward"
    if job.adapter:
        rank = 64 if lora is None else 8
        changes["adapter"] = Adapter(rank=rank, targets=("q", "v", "o", "gate", "up", "down"))
        optimizer = optimizer or "adamw"
        if lora is not None and row.gpu == "A6000":
            changes["recompute"] = Recompute.NONE
    elif optimizer is None and "3090" not in _text(row.gpu):
        # The table's note: on the 4090 the optimiser steps inside the backward pass.
        manner = "_in_backward" if "4090" in _text(row.gpu) else ""
        optimizer = f"paged_adamw8bit{manner}" if job.parallelism.gpus == 1 else None
    changes["optimizer"] = optimizer
    return replace(job, **changes), "allocated"


def _torchtitan(row: Any, job: TrainingJob) -> tuple[TrainingJob, str]:
    early = _text(row.section).startswith("Table ") or "/ao" in _text(row.source)
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
        if "Interleaved" in _text(row.section):
            changes["parallelism"] = replace(job.parallelism, virtual_stages=2)
    return replace(job, **changes), "reserved"


NO_BATCH = "micro-batch or length is neither printed nor in the recipe"


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
        targets = ("q", "k", "v", "o", "gate", "up", "down")
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
        "typical_length": _typical_length(_text(row.seq_note)),
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
        "compiled": False,
    }
    if "FLUX" in _text(row.model):
        changes["sequence_length"] = 1024 + 512
        changes["recompute"] = Recompute.FULL
        changes["framework"] = "peft_images"
    elif job.sequence_length:
        changes["sequence_length"] = round(0.76 * job.sequence_length)
    return replace(job, **changes), "reserved"


def _sailor(row: Any, job: TrainingJob) -> tuple[TrainingJob, str]:
    spread = job.parallelism
    total = _number(row.global_batch)
    micro = job.micro_batch or 1
    count = max(1, int(total / (spread.data * micro))) if total else None
    layers = [int(one) for one in re.findall(r"\d+", _text(row.time_note))]
    if len(layers) == spread.pipeline > 1:
        # The printed list counts the embedding and the head as a layer each.
        layers[0], layers[-1] = layers[0] - 1, layers[-1] - 1
        spread = replace(spread, stage_layers=tuple(layers))
    framework = "sailor_gh200" if "GH" in _text(row.gpu) else "sailor"
    return replace(
        job,
        framework=framework,
        parallelism=spread,
        precision="zero-fp32",
        optimizer="adamw",
        gradient_accumulation=count,
        recompute=Recompute.NONE,
        flash_attention=False,
        length_varies=False,
    ), "nvml"


_SOURCES: dict[str, Filler] = {
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


def _read(row: Any) -> MeasuredRow:
    shape = _model(_text(row.model))
    peak = _number(row.train_peak_gib)
    common: dict[str, Any] = {
        "row_id": int(row.id),
        "source": _text(row.source),
        "section": _text(row.section),
        "model": _text(row.model),
        "method": _text(row.method),
        "peak_bytes": None if peak is None else peak * GIB,
        "out_of_memory": bool(row.oom),
        "printed_scale": 1e9 / GIB if bool(row.unit_ambiguous) else 1.0,
    }
    if shape is None:
        reason = f"the shape of {_text(row.model)!r} is not known"
        return MeasuredRow(job=None, figure="", reason=reason, **common)
    filler = _SOURCES.get(_text(row.source))
    job = _printed_job(row, shape)
    job, figure = filler(row, job) if filler else (job, "reserved")
    return MeasuredRow(job=job, figure=figure, reason=_reason(row, job), **common)


_NOT_PINNED = ("Qwen3.5", "GLM-4V", "Bert")

CONTRADICTORY = {
    109: "full fine-tuning in 4.0 B per parameter, less than weights, gradients and Adam",
    203: "activations stored in 4 bits, how is not printed",
    206: "activations stored in 4 bits, how is not printed",
    560: "the value of another model's plan (its list of layers says so)",
    563: "26.6 GiB where the same stages take 34.8 on other numbers of nodes",
    580: "below what the states and the context alone take",
    581: "below what the states and the context alone take",
}
"""Rows that other rows or arithmetic contradict; scored with and without them."""


def _reason(row: Any, job: TrainingJob) -> str:
    """Give why the printed row and its recipe do not determine the peak; '' when they do."""
    if any(name in _text(row.model) for name in _NOT_PINNED):
        return "the model's architecture or its other tower is not pinned"
    trains = job.method is not Method.INFERENCE
    if trains and (job.micro_batch is None or job.sequence_length is None):
        return NO_BATCH
    return ""


def read_rows(table: pd.DataFrame) -> list[MeasuredRow]:
    """Give every row of memory.csv with its job, or with the reason why it has none."""
    return [_read(row) for row in table.itertuples(index=False)]
