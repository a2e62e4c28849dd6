"""The job of a launch, as the memory predictor knows it."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dashboard.submission.job.model_source import model_of_argument, read_config
from dashboard.submission.launchers.command_line import (
    Launch,
    path_of,
    read_command,
    read_file,
)
from dashboard.submission.launchers.fields import (
    SERVING,
    TRUE,
    FieldLookup,
    dialect,
    model_names,
    translated,
)
from dashboard.submission.launchers.parallelism import spread_of
from data.base.errors import ChangeRefusedError, ImpossibleProblemError, scrub
from planner.memory.models.model_config import ReadModel, shape_from_config
from planner.memory.models.model_sizes import known_model, known_models
from planner.memory.step.training_job import (
    Adapter,
    Companions,
    Method,
    Recompute,
    Sharding,
    TrainingJob,
)

SAMPLING = ("grpo", "ppo", "rloo", "online_dpo")
_PAIRS = ("dpo", "ipo", "orpo", "cpo", "simpo", "kto")
_WITH_REFERENCE = ("dpo", "ipo", "kto")
DEFAULT_ENGINE_SHARE = "engine share = by the memory of each board, as {engine} does unasked"
_TRAINERS = ("transformers", "trl", "axolotl", "llamafactory", "swift")
_ZERO = (Sharding.ZERO1, Sharding.ZERO2, Sharding.ZERO3)
_VARIANT = re.compile(r"-(instruct|chat|hf|base|it|v0\.\d|\d{4}|bnb|4bit|awq|gptq|fp8|int4).*")
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchedJob:
    """A job as it is launched: its layout is fixed, so that only the GPU's type is open.

    `engine_share` is the share of a GPU that an engine takes, which serves or samples beside the
    training. `read` says what was read from where, `assumed` what was taken instead of what is not
    stated, `unread` flags that were not read though they may matter.
    """

    job: TrainingJob
    model: ReadModel
    dialect: str
    engine_share: float | None
    read: tuple[str, ...]
    assumed: tuple[str, ...]
    unread: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchOptions:
    """Options of the command beside the launcher's words; None is not said.

    `same` are options by name of which the launcher must say the same. Files are looked for in
    `folder`; None: none is read.
    """

    folder: Path | None = Path()
    config: str = ""
    framework: str = ""
    gpus: int | None = None
    batch: int | None = None
    seq: int | None = None
    same: Mapping[str, Any] = field(default_factory=dict)


def is_launch(words: Sequence[str]) -> bool:
    """Return whether words are a launch command or a framework's file, not a model."""
    return len(words) > 1 or words[0].lower().endswith((".yaml", ".yml", ".toml"))


def launched_job(words: Sequence[str], options: LaunchOptions) -> LaunchedJob:
    """Return the job of a launch command, or of the one file that is named.

    Errors: ChangeRefusedError or ImpossibleProblemError naming flag or key, value and fix.
    """
    is_file = len(words) == 1 and options.folder is not None
    launch = read_file(Path(words[0])) if is_file else read_command(words, options.folder)
    syntax = launch.syntax or dialect("transformers")
    flags = FieldLookup(syntax=syntax, facts=launch.facts, defaults=dict(syntax.defaults))
    if str(flags.value("stage") or "").lower() in SAMPLING:
        flags.defaults = {**dialect("rl").defaults, **flags.defaults}
        flags.defaults.pop("sequence_length", None)
    _refuse_pairs(flags)
    model = _model(launch, flags, options)
    serving = syntax.name in SERVING
    job = _serving(flags, model, options) if serving else _training(flags, model, options)
    counts = {"batch": options.batch, "seq": options.seq}
    counts = {name: count for name, count in counts.items() if count is not None}
    refuse_contradiction({**counts, **options.same}, flags, job)
    share = flags.value("engine_share") if serving or _engine(flags) else None
    if serving and share is None:
        flags.assumed.append(DEFAULT_ENGINE_SHARE.format(engine=syntax.name))
    return LaunchedJob(
        job=job,
        model=model,
        dialect=syntax.name,
        engine_share=share,
        read=tuple(str(entry) for entry in launch.facts.items.values() if entry.value is not None),
        assumed=(*launch.notes, *flags.assumed),
        unread=tuple(launch.facts.unread),
    )


def _refuse_pairs(flags: FieldLookup) -> None:
    """Refuse two flags that exclude one another."""
    for entry, other in (("bf16", "fp16"), ("four_bit", "eight_bit"), ("deepspeed", "fsdp")):
        if flags.stated(entry) and flags.stated(other):
            raise ChangeRefusedError(
                f"{flags.named(entry)} contradicts {flags.named(other)}", "Take one of the two out."
            )


def _model(launch: Launch, flags: FieldLookup, options: LaunchOptions) -> ReadModel:
    """Return the model: of --config, of flags that describe it, of its public name or folder."""
    if options.config:
        return read_config(Path(options.config))
    described = {
        name.partition(".")[2]: entry.value
        for name, entry in flags.facts.items.items()
        if name.startswith("shape.")
    }
    if "hidden_size" in described:
        return _described(described)
    name = str(flags.value("model") or _titan(flags))
    if flags.stated("model_config"):
        return read_config(path_of(launch, str(flags.stated("model_config"))))
    if not name:
        raise ChangeRefusedError(
            "nothing that was read names the model",
            "Add --config CONFIG.json, the model's own config.json.",
        )
    for folder in () if launch.folder is None else (launch.folder, Path()):
        if (folder / name / "config.json").is_file():
            return model_of_argument(str(folder / name))
    model = model_of_name(name)
    if model is None:
        raise ImpossibleProblemError(
            f"the model {scrub(repr(name), limit=120)} is neither here nor among the known ones",
            "Add --config CONFIG.json, the model's own config.json, from its repository.",
        )
    flags.assumed.append(f"the model {scrub(name, limit=80)} is {model.shape.name}")
    return model


def _described(described: dict[str, Any]) -> ReadModel:
    """Return the model that Megatron's flags describe."""
    gated, untied = described.pop("gated", False), described.pop("untied", False)
    family = "llama" if gated else "gpt2"
    if "vocab_size" not in described:
        raise ChangeRefusedError(
            "the command describes the model without its vocabulary",
            "Add --vocab-size N behind it, or --config CONFIG.json before the --.",
        )
    values = {"model_type": family, "tie_word_embeddings": not untied, **described}
    return shape_from_config(values, name="the model of the flags")


def _titan(flags: FieldLookup) -> str:
    name, flavor = flags.stated("titan_name"), flags.stated("titan_flavor")
    return f"{name}-{flavor}" if name and flavor else ""


def model_of_name(name: str) -> ReadModel | None:
    """Return the known model of a public name such as org/Model-8B-Instruct, else None."""
    plain = re.sub(r"[\s_]+", "-", name.rstrip("/").rpartition("/")[2].lower())
    plain = _VARIANT.sub("", plain.removeprefix("meta-"))
    key = model_names().get(plain, plain)
    return ReadModel(shape=known_model(key), assumed=()) if key in known_models() else None


def _training(flags: FieldLookup, model: ReadModel, options: LaunchOptions) -> TrainingJob:
    shape, stage = model.shape, str(flags.value("stage") or "").lower()
    method = Method.ADAPTER if _adapts(flags) else Method.FULL
    layout = spread_of(flags, shape, gpus=options.gpus)
    quantization = _quantization(flags, method)
    word = flags.stated("attention")
    recompute = "full" if flags.stated("wrapped_recompute") else flags.value("recompute")
    return TrainingJob(
        shape=shape,
        framework=_framework(flags, options, layout.parallelism.sharding),
        method=method,
        adapter=_adapter(flags) if method is Method.ADAPTER else None,
        parallelism=layout.parallelism,
        micro_batch=(layout.micro_batch or 1) * (2 if stage in _PAIRS else 1),
        gradient_accumulation=layout.accumulation,
        sequence_length=_length(flags, options),
        length_varies=_varies(flags),
        precision=_precision(flags, method, layout.parallelism.sharding),
        optimizer=_optimizer(flags),
        optimizer_rank=_optimizer_rank(flags),
        quantization=quantization,
        recompute=None if recompute is None else Recompute(recompute),
        flash_attention=None if word is None else not str(word).startswith("eager"),
        compiled=flags.value("compiled"),
        chunked_loss=bool(flags.value("chunked_loss")),
        offload=_offload(flags),
        cache_emptied=flags.stated("empty_cache_steps") is not None,
        expandable_segments=flags.stated("expandable"),
        unknown=flags.facts.unknown,
        companions=_companions(flags, stage, method),
    )


def _serving(flags: FieldLookup, model: ReadModel, options: LaunchOptions) -> TrainingJob:
    length = options.seq or flags.value("sequence_length")
    positions = model.shape.rotary_positions or model.shape.learned_positions
    if length is None and positions:
        length = positions
        flags.assumed.append(f"sequence length = {positions:,}, the positions of config.json")
    if length is None:
        raise ChangeRefusedError(
            "the command does not say how long sequences are",
            "Add --max-model-len N (SGLang: --context-length N), or --seq N before the --.",
        )
    chunk = None if flags.stated("chunked_prefill") is False else flags.value("prefill_tokens")
    cache = str(flags.stated("cache") or "auto")
    layout = spread_of(flags, model.shape, gpus=options.gpus)
    word = flags.stated("served_quantization")
    return TrainingJob(
        shape=model.shape,
        framework=options.framework or flags.syntax.framework,
        method=Method.INFERENCE,
        parallelism=layout.parallelism,
        micro_batch=options.batch or 1,
        sequence_length=length,
        quantization=model.quantization if word in (None, "stored") else str(word),
        prefill_tokens=chunk if chunk is None else max(int(chunk), 1),
        sampled_sequences=flags.stated("max_sequences"),
        cache_bytes=1.0 if cache.startswith("fp8") else 2.0,
        unknown=flags.facts.unknown,
    )


def _adapts(flags: FieldLookup) -> bool:
    if (
        flags.stated("adapter") is None
        and flags.stated("adapter_rank")
        and flags.syntax.name == "verl"
    ):
        return True
    return bool(flags.value("adapter"))


def _framework(flags: FieldLookup, options: LaunchOptions, sharding: Sharding) -> str:
    """Return the framework whose traits hold: under DeepSpeed a Hugging Face trainer has others."""
    name = options.framework or flags.stated("framework") or flags.syntax.framework
    if sharding in _ZERO and flags.syntax.name in _TRAINERS and name != "swift":
        return "transformers_deepspeed" if name == "transformers" else "trl_deepspeed"
    return str(name)


def _adapter(flags: FieldLookup) -> Adapter:
    words = flags.value("targets") or ()
    words = (words,) if isinstance(words, str) else words
    names: list[str] = []
    for word in words:
        plain = str(word).lower().replace("-", "_").rpartition(".")[2]
        names += translated("target", plain).split(",")
    parts = ("q", "k", "v", "o", "gate", "up", "down")
    others = [word for word in names if word not in parts]
    if others:
        flags.facts.unread.append(f"targets of the adapter: {scrub(', '.join(others), limit=80)}")
    saved = flags.value("saved") or ()
    method = flags.facts.items.get("adapter")
    word = method.raw.lower() if method else ""
    return Adapter(
        kind=flags.stated("adapter_kind") or ("lora" if word in {"", *TRUE} else word),
        rank=flags.value("adapter_rank"),
        targets=tuple(target for target in parts if target in names),
        dropout=bool(flags.stated("adapter_dropout")),
        copies_embeddings=any("embed" in word or "head" in word for word in saved),
    )


def _length(flags: FieldLookup, options: LaunchOptions) -> int | None:
    """Return the longest sequence; of a trainer that samples its prompt and what it answers."""
    answer = flags.value("completion_length")
    if options.seq is not None:
        return options.seq
    if answer is None or flags.stated("sequence_length"):
        stated: int | None = flags.value("sequence_length")
        return stated
    return int(flags.value("prompt_length") or 0) + int(answer)


def _varies(flags: FieldLookup) -> bool:
    if flags.value("packing") or flags.value("padded"):
        return False
    flags.assumed.append("sequences are padded to the longest of their batch: nothing packs them")
    return True


def _precision(flags: FieldLookup, method: Method, sharding: Sharding) -> str | None:
    """Return the policy where flags decide it, None where the framework's habit does."""
    if flags.syntax.name not in _TRAINERS or method is not Method.FULL or sharding in _ZERO:
        return None
    half = str(flags.stated("weights") or "").lower() in {"bfloat16", "bf16", "float16", "fp16"}
    if half and sharding is Sharding.NONE:
        return "bf16-true"
    mixed = str(flags.value("mixed") or "no") not in {"no", "none"}
    if flags.value("bf16") or flags.value("fp16") or mixed or flags.syntax.name != "transformers":
        return None
    flags.assumed.append("precision = fp32: neither --bf16 nor --fp16 is stated")
    return "fp32"


def _quantization(flags: FieldLookup, method: Method) -> str:
    bits = "nf4" if flags.value("four_bit") else str(flags.value("bits") or "")
    bits = "int8" if flags.value("eight_bit") else bits
    if bits and method is Method.FULL:
        name = next(text for text in ("four_bit", "eight_bit", "bits") if flags.stated(text))
        raise ChangeRefusedError(
            f"{flags.named(name)} quantises weights that are all to be trained",
            "Train an adapter (--use_peft, adapter: qlora, finetuning_type: lora), or take it out.",
        )
    return "nf4-dq" if bits == "nf4" and flags.value("double_quantized") else bits


def _optimizer(flags: FieldLookup) -> str | None:
    """Return the optimiser; one that steps layer by layer does so inside the backward pass."""
    name: str | None = flags.value("optimizer")
    return f"{name}_in_backward" if name and flags.stated("optimizer_layerwise") else name


def _optimizer_rank(flags: FieldLookup) -> int | None:
    """Return the rank that gradients are projected to, of an optimiser that does so."""
    if not str(flags.value("optimizer")).startswith(("galore", "apollo")):
        return None
    written = re.search(r"\brank\s*=\s*(\d+)", str(flags.stated("optimizer_arguments")))
    return int(written[1]) if written else flags.value("optimizer_rank")


def _offload(flags: FieldLookup) -> frozenset[str]:
    everything = bool(flags.value("offload_all"))
    everything |= "offload" in str(flags.stated("fsdp_words") or "")
    return frozenset(
        name
        for name in ("optimizer", "parameters", "activations")
        if flags.value(f"offload_{name}") or (everything and name != "activations")
    )


def _engine(flags: FieldLookup) -> bool:
    """Return whether an engine that samples shares the GPUs with the training."""
    return bool(flags.value("engine")) and flags.value("engine_mode") != "server"


def _companions(flags: FieldLookup, stage: str, method: Method) -> Companions:
    """Return the models beside the actor: an adapter's reference is its own base."""
    frozen = int(stage in _WITH_REFERENCE or stage == "ppo" or bool(flags.value("penalty")))
    if stage not in (*SAMPLING, *_WITH_REFERENCE):
        frozen = 0
    if method is Method.ADAPTER or flags.value("reference_offloaded"):
        frozen = 0
    frozen += int(bool(flags.stated("reward_model")))
    return Companions(
        frozen=frozen,
        trained=int(stage == "ppo"),
        engine_sleeps=bool(flags.value("engine_sleeps")),
    )


def refuse_contradiction(options: Mapping[str, Any], flags: FieldLookup, job: TrainingJob) -> None:
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


def _as_options(flags: FieldLookup, job: TrainingJob) -> dict[str, Any]:
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
