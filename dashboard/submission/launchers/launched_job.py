"""From what a launch states to the job that the memory predictor knows."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dashboard.submission.job.model_source import model_of_argument, read_config
from dashboard.submission.launchers.beside import refuse_otherwise
from dashboard.submission.launchers.command_line import Launch, read_command, read_file
from dashboard.submission.launchers.fields import dialect, model_names, translated
from dashboard.submission.launchers.parallelism import spread_of
from dashboard.submission.launchers.told import Told
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
SERVING = ("vllm", "sglang")
"""Engines that serve; the first where none is named."""
UNASKED_SHARE = "engine share = by the memory of each board, as {engine} does unasked"
_TRAINERS = ("transformers", "trl", "axolotl", "llamafactory", "swift")
_ZERO = (Sharding.ZERO1, Sharding.ZERO2, Sharding.ZERO3)
_VARIANT = re.compile(r"-(instruct|chat|hf|base|it|v0\.\d|\d{4}|bnb|4bit|awq|gptq|fp8|int4).*")


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
    """What the options of the command say beside the launcher's words; None is not said.

    `same` are options by name of which the launcher must say the same.
    """

    config: str = ""
    framework: str = ""
    gpus: int | None = None
    batch: int | None = None
    seq: int | None = None
    same: Mapping[str, Any] = field(default_factory=dict)


def is_launch(words: Sequence[str]) -> bool:
    """Return whether words are a launch command or a framework's file, not a model."""
    return len(words) > 1 or words[0].lower().endswith((".yaml", ".yml", ".toml"))


def launched_job(words: Sequence[str], given: LaunchOptions) -> LaunchedJob:
    """Return the job of a launch command, or of the one file that is named.

    Errors: ChangeRefusedError or ImpossibleProblemError naming flag or key, value and fix.
    """
    launch = read_file(Path(words[0])) if len(words) == 1 else read_command(words, Path())
    spoken = launch.spoken or dialect("transformers")
    told = Told(spoken=spoken, said=launch.said, defaults=dict(spoken.defaults))
    if str(told.value("stage") or "").lower() in SAMPLING:
        told.defaults = {**dialect("rl").defaults, **told.defaults}
        told.defaults.pop("sequence_length", None)
    _refuse_pairs(told)
    model = _model(launch, told, given)
    serving = spoken.name in SERVING
    job = _serving(told, model, given) if serving else _training(told, model, given)
    counts = {"batch": given.batch, "seq": given.seq}
    counts = {name: count for name, count in counts.items() if count is not None}
    refuse_otherwise({**counts, **given.same}, told, job)
    share = told.value("engine_share") if serving or _engine(told) else None
    if serving and share is None:
        told.assumed.append(UNASKED_SHARE.format(engine=spoken.name))
    return LaunchedJob(
        job=job,
        model=model,
        dialect=spoken.name,
        engine_share=share,
        read=tuple(str(entry) for entry in launch.said.found.values()),
        assumed=(*launch.notes, *told.assumed),
        unread=tuple(launch.said.unread),
    )


def _refuse_pairs(told: Told) -> None:
    """Refuse two flags that exclude one another."""
    for entry, other in (("bf16", "fp16"), ("four_bit", "eight_bit"), ("deepspeed", "fsdp")):
        if told.stated(entry) and told.stated(other):
            raise ChangeRefusedError(
                f"{told.named(entry)} contradicts {told.named(other)}", "Take one of the two out."
            )


def _model(launch: Launch, told: Told, given: LaunchOptions) -> ReadModel:
    """Return the model: of --config, of flags that describe it, of its public name or folder."""
    if given.config:
        return read_config(Path(given.config))
    described = {
        name.partition(".")[2]: entry.value
        for name, entry in told.said.found.items()
        if name.startswith("shape.")
    }
    if "hidden_size" in described:
        return _described(described)
    name = str(told.value("model") or _titan(told))
    if told.stated("model_config"):
        return read_config(launch.folder / str(told.stated("model_config")))
    if not name:
        raise ChangeRefusedError(
            "nothing that was read names the model",
            "Add --config CONFIG.json, the model's own config.json.",
        )
    for path in (launch.folder / name, Path(name)):
        if (path / "config.json").is_file():
            return model_of_argument(str(path))
    found = model_of_name(name)
    if found is None:
        raise ImpossibleProblemError(
            f"the model {scrub(repr(name), limit=120)} is neither here nor among the known ones",
            "Add --config CONFIG.json, the model's own config.json, from its repository.",
        )
    told.assumed.append(f"the model {scrub(name, limit=80)} is {found.shape.name}")
    return found


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


def _titan(told: Told) -> str:
    name, flavor = told.stated("titan_name"), told.stated("titan_flavor")
    return f"{name}-{flavor}" if name and flavor else ""


def model_of_name(name: str) -> ReadModel | None:
    """Return the known model of a public name such as org/Model-8B-Instruct, else None."""
    plain = re.sub(r"[\s_]+", "-", name.rstrip("/").rpartition("/")[2].lower())
    plain = _VARIANT.sub("", plain.removeprefix("meta-"))
    key = model_names().get(plain, plain)
    return ReadModel(shape=known_model(key), assumed=()) if key in known_models() else None


def _training(told: Told, model: ReadModel, given: LaunchOptions) -> TrainingJob:
    shape, stage = model.shape, str(told.value("stage") or "").lower()
    method = Method.ADAPTER if _adapts(told) else Method.FULL
    layout = spread_of(told, shape, gpus=given.gpus)
    quantization = _quantization(told, method)
    return TrainingJob(
        shape=shape,
        framework=_framework(told, given, layout.parallelism.sharding),
        method=method,
        adapter=_adapter(told) if method is Method.ADAPTER else None,
        parallelism=layout.parallelism,
        micro_batch=(layout.micro_batch or 1) * (2 if stage in _PAIRS else 1),
        gradient_accumulation=layout.accumulation,
        sequence_length=_length(told, given),
        length_varies=_varies(told),
        precision=_precision(told, method, layout.parallelism.sharding),
        optimizer=_optimizer(told),
        optimizer_rank=_optimizer_rank(told),
        quantization=quantization,
        recompute=_recompute(told),
        flash_attention=_flash(told),
        compiled=told.value("compiled"),
        chunked_loss=bool(told.value("chunked_loss")),
        offload=_offload(told),
        cache_emptied=told.stated("empty_cache_steps") is not None,
        companions=_companions(told, stage, method),
    )


def _serving(told: Told, model: ReadModel, given: LaunchOptions) -> TrainingJob:
    length = given.seq or told.value("sequence_length")
    if length is None:
        raise ChangeRefusedError(
            "the command does not say how long sequences are",
            "Add --max-model-len N (SGLang: --context-length N), or --seq N before the --.",
        )
    chunk = None if told.stated("chunked_prefill") is False else told.value("prefill_tokens")
    cache = str(told.stated("cache") or "auto")
    layout = spread_of(told, model.shape, gpus=given.gpus)
    return TrainingJob(
        shape=model.shape,
        framework=given.framework or told.spoken.framework,
        method=Method.INFERENCE,
        parallelism=layout.parallelism,
        micro_batch=given.batch or 1,
        sequence_length=length,
        quantization=_served_quantization(told, model),
        prefill_tokens=chunk if chunk is None else max(int(chunk), 1),
        sampled_sequences=told.stated("max_sequences"),
        cache_bytes=1.0 if cache.startswith("fp8") else 2.0,
    )


def _adapts(told: Told) -> bool:
    if (
        told.stated("adapter") is None
        and told.stated("adapter_rank")
        and told.spoken.name == "verl"
    ):
        return True
    return bool(told.value("adapter"))


def _framework(told: Told, given: LaunchOptions, sharding: Sharding) -> str:
    """Return whose traits hold: under DeepSpeed a trainer of Hugging Face has others."""
    name = given.framework or told.stated("framework") or told.spoken.framework
    if sharding in _ZERO and told.spoken.name in _TRAINERS and name != "swift":
        return "transformers_deepspeed" if name == "transformers" else "trl_deepspeed"
    return str(name)


def _adapter(told: Told) -> Adapter:
    words = told.value("targets") or ()
    words = (words,) if isinstance(words, str) else words
    found: list[str] = []
    for word in words:
        plain = str(word).lower().replace("-", "_").rpartition(".")[2]
        found += translated("target", plain).split(",")
    known = ("q", "k", "v", "o", "gate", "up", "down")
    others = [word for word in found if word not in known]
    if others:
        told.said.unread.append(f"targets of the adapter: {scrub(', '.join(others), limit=80)}")
    saved = told.value("saved") or ()
    return Adapter(
        rank=told.value("adapter_rank"),
        targets=tuple(target for target in known if target in found),
        dropout=bool(told.stated("adapter_dropout")),
        copies_embeddings=any("embed" in word or "head" in word for word in saved),
    )


def _length(told: Told, given: LaunchOptions) -> int | None:
    """Return the longest sequence; of a trainer that samples its prompt and what it answers."""
    answer = told.value("completion_length")
    if given.seq is not None:
        return given.seq
    if answer is None or told.stated("sequence_length"):
        stated: int | None = told.value("sequence_length")
        return stated
    return int(told.value("prompt_length") or 0) + int(answer)


def _varies(told: Told) -> bool:
    if told.value("packing") or told.value("padded"):
        return False
    told.assumed.append("sequences are padded to the longest of their batch: nothing packs them")
    return True


def _precision(told: Told, method: Method, sharding: Sharding) -> str | None:
    """Return the policy where flags decide it, None where the framework's habit does."""
    if told.spoken.name not in _TRAINERS or method is not Method.FULL or sharding in _ZERO:
        return None
    half = str(told.stated("weights") or "").lower() in {"bfloat16", "bf16", "float16", "fp16"}
    if half and sharding is Sharding.NONE:
        return "bf16-true"
    mixed = str(told.value("mixed") or "no") not in {"no", "none"}
    if told.value("bf16") or told.value("fp16") or mixed or told.spoken.name != "transformers":
        return None
    told.assumed.append("precision = fp32: neither --bf16 nor --fp16 is stated")
    return "fp32"


def _quantization(told: Told, method: Method) -> str:
    bits = "nf4" if told.value("four_bit") else str(told.value("bits") or "")
    bits = "int8" if told.value("eight_bit") else bits
    if bits and method is Method.FULL:
        name = next(text for text in ("four_bit", "eight_bit", "bits") if told.stated(text))
        raise ChangeRefusedError(
            f"{told.named(name)} quantises weights that are all to be trained",
            "Train an adapter (--use_peft, adapter: qlora, finetuning_type: lora), or take it out.",
        )
    return "nf4-dq" if bits == "nf4" and told.value("double_quantized") else bits


def _served_quantization(told: Told, model: ReadModel) -> str:
    word = str(told.stated("served_quantization") or "").lower()
    for start, name in (("awq", "awq-int4"), ("gptq", "gptq-int4"), ("bitsandbytes", "nf4"),
                        ("fp8", "fp8"), ("w8a8_fp8", "fp8"), ("mxfp4", "mxfp4")):  # fmt: skip
        if word.startswith(start):
            return name
    if word and not model.quantization:
        told.said.unread.append(f"quantization {scrub(word, limit=40)}: read as 16 bit")
    return model.quantization


def _optimizer(told: Told) -> str | None:
    """Return the optimiser; one that steps layer by layer does so inside the backward pass."""
    name: str | None = told.value("optimizer")
    return f"{name}_in_backward" if name and told.stated("optimizer_layerwise") else name


def _optimizer_rank(told: Told) -> int | None:
    """Return the rank that gradients are projected to, of an optimiser that does so."""
    if not str(told.value("optimizer")).startswith(("galore", "apollo")):
        return None
    written = re.search(r"\brank\s*=\s*(\d+)", str(told.stated("optimizer_arguments")))
    return int(written[1]) if written else told.value("optimizer_rank")


def _recompute(told: Told) -> Recompute | None:
    if told.stated("wrapped_recompute"):
        return Recompute.FULL
    word = told.value("recompute")
    return None if word is None else Recompute(word)


def _flash(told: Told) -> bool | None:
    word = told.stated("attention")
    return None if word is None else not str(word).startswith("eager")


def _offload(told: Told) -> frozenset[str]:
    everything = bool(told.value("offload_all"))
    everything |= "offload" in str(told.stated("fsdp_words") or "")
    return frozenset(
        name
        for name in ("optimizer", "parameters", "activations")
        if told.value(f"offload_{name}") or (everything and name != "activations")
    )


def _engine(told: Told) -> bool:
    """Return whether an engine that samples shares the GPUs with the training."""
    return bool(told.value("engine")) and told.value("engine_mode") != "server"


def _companions(told: Told, stage: str, method: Method) -> Companions:
    """Return the models beside the actor: an adapter's reference is its own base."""
    frozen = int(stage in _WITH_REFERENCE or stage == "ppo" or bool(told.value("penalty")))
    if stage not in (*SAMPLING, *_WITH_REFERENCE):
        frozen = 0
    if method is Method.ADAPTER or told.value("reference_offloaded"):
        frozen = 0
    frozen += int(bool(told.stated("reward_model")))
    return Companions(
        frozen=frozen,
        trained=int(stage == "ppo"),
        engine_sleeps=bool(told.value("engine_sleeps")),
    )
