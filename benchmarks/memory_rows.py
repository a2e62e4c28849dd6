"""Measured rows of training memory, read into the jobs that were measured.

A row states what its table printed. What the source's own recipe files or code state beside the
table (LoRA rank, checkpointing default, what the figure counts) is filled in here, per source, so
that the predictor itself knows nothing of the rows.
"""

import re
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from benchmarks.memory_cells import count, number, text
from benchmarks.memory_recipes import CHOSEN_LENGTHS, RECIPES
from data.base.errors import ImpossibleProblemError
from planner.memory.models.model_shape import ModelShape
from planner.memory.models.model_sizes import known_models
from planner.memory.step.assumptions import complete
from planner.memory.step.framework_traits import GENERIC
from planner.memory.step.step_events import step_events
from planner.memory.step.training_job import (
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
    (r"glm-4v", "glm4-9b"),
    (r"glm-4", "glm4-9b"),
    (r"^bert$|bert-base", "bert-base"),
    (r"opt-350m", "opt-350m"),
    (r"gpt-neo", "gpt-neo-2.7b"),
    (r"llama-like 7b", "llama2-7b"),
    (r"llama-like 70b", "llama2-70b"),
    (r"flux\.2-klein.*4b", "flux2-klein-4b"),
]
_FLUX = ModelShape(
    name="flux2-klein-4b", layers=25, hidden=3072, heads=24, kv_heads=24, head_dim=128, ffn=9216,
    vocab=1, other_parameters=3_875_544_576 - 3_067_000_000,
)  # fmt: skip
_HYBRID_27B = ModelShape(
    name="qwen3.5-27b", layers=64, hidden=5120, heads=24, kv_heads=4, head_dim=256, ffn=17408,
    vocab=248320, qk_norm=True,
)  # fmt: skip
_HYBRID_9B = ModelShape(
    name="qwen3.5-9b", layers=32, hidden=4096, heads=16, kv_heads=4, head_dim=256, ffn=12288,
    vocab=248320,
)  # fmt: skip
_UNSURE = {model_shape.name: model_shape for model_shape in (_FLUX, _HYBRID_27B, _HYBRID_9B)}
"""Shapes recalled in part (image blocks, hybrid attention): good for these rows only."""
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
    printed_length: int | None = None
    reason: str = ""

    @property
    def contradiction(self) -> str:
        """What speaks against the measured value, '' when nothing does."""
        if "suspicious" in self.section:
            return "marked by the data set: a value copied between files"
        if self.job and self.peak_bytes and self.peak_bytes < least_state_bytes(self.job):
            return "less than weights, gradients and Adam take"
        return CONTRADICTORY.get(self.row_id, "")

    @property
    def printed_job(self) -> TrainingJob | None:
        """The job without what was chosen in view of the measured peaks of its source."""
        job = self.job
        if job is None or self.source not in CHOSEN_LENGTHS:
            return job
        adapter = job.adapter
        if adapter is not None:
            adapter = replace(adapter, kind="lora")
        length = self.printed_length or job.sequence_length
        return replace(job, adapter=adapter, sequence_length=length)

    @property
    def family(self) -> str:
        """Source and method; the adapters of one benchmark count as one method."""
        if "peft" in self.source:
            return f"{self.source} {'images' if 'FLUX' in self.model else 'text'}"
        return f"{self.source} {self.method}"


def _model(name: str) -> ModelShape | None:
    plain = name.lower().rsplit("/", 1)[-1]
    for pattern, key in _MODELS:
        if re.search(pattern, plain):
            return _UNSURE.get(key) or known_models().get(key)
    return None


def _card(name: str) -> float | None:
    sizes = [gib for pattern, gib in _CARDS_GIB if re.search(pattern, name.lower())]
    return sizes[0] * GIB if sizes else None


def _degree(words: str, *names: str) -> int | None:
    for name in names:
        match = re.search(rf"\b{name}\s*=?\s*(\d+)", words)
        if match:
            return int(match.group(1))
    return None


def _spread(words: str, gpus: int) -> Parallelism:
    """Read a printed parallelism such as `FSDP8+TP8+PP8`, `pp=4,tp=4,dp=4` or `zero3`."""
    lower = words.lower().replace("+", " ").replace(",", " ").replace("(", " ").replace(")", " ")
    tensor = _degree(lower, "tp") or 1
    pipeline = _degree(lower, "pp") or 1
    context = _degree(lower, "cp") or 1
    if "naive mp" in lower:
        return Parallelism(pipeline=gpus, sequential=True)
    data = max(1, gpus // (tensor * pipeline * context))
    sharding = Sharding.NONE
    for pattern, entry in (
        (r"fsdp=true", Sharding.FSDP),
        (r"zero1=-1", Sharding.ZERO1),
        (r"zero-?2", Sharding.ZERO2),
        (r"zero-?3", Sharding.ZERO3),
        (r"zero-?1|low_level_zero", Sharding.ZERO1),
        (r"fsdp(?!=)", Sharding.FSDP),
    ):
        if re.search(pattern, lower):
            sharding = entry
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

_OPTIMIZERS = {"adamw", "adamw8bit", "adam", "sgd", "lion", "muon", "adafactor"}


def _first(rules: list[tuple[str, Any]], words: str) -> Any:
    return next((value for pattern, value in rules if re.search(pattern, words)), None)


def _targets(words: str, shape: ModelShape) -> tuple[str, ...]:
    found = []
    for name, entry in (
        ("q_proj", "q"),
        ("k_proj", "k"),
        ("v_proj", "v"),
        ("o_proj", "o"),
        ("gate_proj", "gate"),
        ("up_proj", "up"),
        ("down_proj", "down"),
    ):
        if name in words:
            found.append(entry)
    if "ALL" in words:
        found = ["q", "k", "v", "o", "gate", "up", "down"]
    elif "DEFAULT" in words or "qkv" in words:
        found = ["q", "k", "v"]
    return tuple(word for word in found if shape.gated_mlp or word != "gate")


def _method(row: Any) -> Method:
    if row.method == "full":
        return Method.FULL
    return Method.INFERENCE if row.method == "inference" else Method.ADAPTER


def _printed_job(row: Any, shape: ModelShape) -> TrainingJob:
    """Return the job with what the table itself states."""
    method = _method(row)
    adapter = None
    if method is Method.ADAPTER:
        adapter = Adapter(
            kind=str(row.method).removesuffix("+emb").split("+")[-1],
            rank=count(row.lora_rank) or None,
            targets=_targets(text(row.lora_targets), shape),
            trainable=count(row.trainable_params),
            copies_embeddings="emb" in str(row.method),
        )
    flash = text(row.flash_attn)
    compiled = {"True": True, "False": False, "Eager": False, "Thunder": True}
    return TrainingJob(
        shape=shape,
        method=method,
        adapter=adapter,
        parallelism=_spread(text(row.parallelism), count(row.n_gpus) or 1),
        micro_batch=count(row.micro_batch),
        sequence_length=count(row.seq_len),
        length_varies=None if pd.isna(row.seq_len) else "cap" in text(row.seq_note),
        gradient_accumulation=count(row.grad_accum),
        optimizer=printed if (printed := text(row.optimizer).lower()) in _OPTIMIZERS else None,
        quantization=_first(_QUANTIZATION, text(row.quant)) or "",
        recompute=_first(_RECOMPUTE, text(row.act_ckpt)),
        flash_attention=None if not flash else flash != "none",
        compiled=compiled.get(text(row.compile)),
        offload=frozenset({"parameters", "optimizer"})
        if text(row.cpu_offload) == "True"
        else frozenset(),
        gpu_memory_bytes=_card(text(row.gpu)),
    )


def _read(row: Any) -> MeasuredRow:
    shape = _model(text(row.model))
    peak = number(row.train_peak_gib)
    common: dict[str, Any] = {
        "row_id": int(row.id),
        "source": text(row.source),
        "section": text(row.section),
        "model": text(row.model),
        "method": text(row.method),
        "peak_bytes": None if peak is None else peak * GIB,
        "out_of_memory": bool(row.oom),
        "printed_length": count(row.seq_len),
        "printed_scale": 1e9 / GIB if bool(row.unit_ambiguous) else 1.0,
    }
    if shape is None:
        reason = f"the shape of {text(row.model)!r} is not known"
        return MeasuredRow(job=None, figure="", reason=reason, **common)
    try:
        job, figure = _printed_job(row, shape), "reserved"
        complete = RECIPES.get(text(row.source))
        if complete is not None:
            job, figure = complete(row, job)
    except ImpossibleProblemError as refused:
        return MeasuredRow(job=None, figure="", reason=str(refused), **common)
    return MeasuredRow(job=job, figure=figure, reason=_reason(row, job), **common)


NO_BATCH = "micro-batch or length is neither printed nor in the recipe"
_NOT_PINNED = ("Qwen3.5", "GLM-4V", "Bert")

CONTRADICTORY = {
    203: "activations stored in 4 bits, how is not printed",
    206: "activations stored in 4 bits, how is not printed",
    560: "the value of another model's plan (its list of layers says so)",
    563: "26.6 GiB where the same stages take 34.8 on other numbers of nodes",
    580: "below what the states and the context alone take",
    581: "below what the states and the context alone take",
}
"""Rows that other rows contradict; scored with and without them."""


def least_state_bytes(job: TrainingJob) -> float:
    """Return what the states of full training take at least, 0 where they may be elsewhere.

    They are in the precision that is stated, else in bf16 throughout.
    """
    if job.method is not Method.FULL or job.offload or job.optimizer is None:
        return 0.0
    narrow = replace(job, precision=job.precision or "bf16-true", framework=GENERIC)
    steps = [event for event in step_events(complete(narrow)) if event.name == "optimizer"]
    states = ("weights", "gradients", "optimizer states", "copies")
    return max(sum(size for name, size in step.static if name in states) for step in steps)


def _reason(row: Any, job: TrainingJob) -> str:
    """Return why the printed row and its recipe do not determine the peak; '' when they do."""
    if any(name in text(row.model) for name in _NOT_PINNED):
        return "the model's architecture or its other tower is not pinned"
    trains = job.method is not Method.INFERENCE
    if trains and (job.micro_batch is None or job.sequence_length is None):
        return NO_BATCH
    return ""


def read_rows(table: pd.DataFrame) -> list[MeasuredRow]:
    """Return every row of memory.csv with its job, or with the reason why it has none."""
    return [_read(row) for row in table.itertuples(index=False)]
