"""Statements of launchers about a job: fields with their kinds, and words of dialects.toml."""

import math
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from typing import Any

from data.base.errors import ChangeRefusedError, ImpossibleProblemError, scrub
from planner.memory.step.framework_traits import adapter_kinds, optimizer

Value = bool | int | float | str | tuple[str, ...]

CONFIG, LAUNCHER = 1, 2
"""Ranks of files: see Statements."""

SERVING = ("vllm", "sglang", "tgi")
"""Engines that serve; the first where none is named."""

TRUE = frozenset({"true", "yes", "on", "1", "cpu", "nvme"})
FALSE = frozenset({"false", "no", "off", "0", "none", "null"})
_NUMBER_SUFFIXES = {"k": 1000, "K": 1024, "m": 10**6, "M": 1 << 20}
"""Endings of numbers as vLLM reads them."""
_CASELESS_FIELDS = frozenset(
    {"optimizer", "sharding", "attention", "stage", "mixed", "engine_mode", "served_quantization"}
)
_AUTO_WORDS = frozenset({"auto", "gpu", "", "none", "null"})
"""Words by which a number is left to the launcher."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FieldKind:
    """Of what kind a field is: whole, number, flag, word or words; its range where it has one."""

    name: str
    low: float = 1
    high: float = 1e9


def _all(kind: FieldKind, names: str) -> dict[str, FieldKind]:
    return dict.fromkeys(names.split(), kind)


_FLAG, _WORD, _WORDS = FieldKind(name="flag"), FieldKind(name="word"), FieldKind(name="words")

FIELDS: dict[str, FieldKind] = {
    **_all(
        FieldKind(name="whole"),
        "gpus micro_batch accumulation global_batch sequence_length prompt_length virtual_stages "
        "completion_length generations adapter_rank tensor pipeline context expert replicas "
        "virtual_layers fsdp_version max_sequences prefill_tokens nodes processes_per_node "
        "optimizer_rank empty_cache_steps",
    ),
    **_all(FieldKind(name="whole", low=-1), "shards"),
    **_all(FieldKind(name="whole", low=0, high=3), "zero_stage"),
    **_all(FieldKind(name="number", low=0, high=1), "engine_share adapter_dropout"),
    **_all(FieldKind(name="number", low=0, high=1e3), "penalty"),
    **_all(
        _FLAG,
        "deepspeed fsdp packing padded compiled chunked_loss four_bit eight_bit double_quantized "
        "offload_optimizer offload_parameters offload_activations offload_all bf16 fp16 adapter "
        "engine engine_sleeps spread_experts chunked_prefill reference_offloaded sequence "
        "wrapped_recompute optimizer_layerwise expandable",
    ),
    **_all(
        _WORD,
        "model model_config optimizer recompute attention weights mixed distributed sharding bits "
        "fsdp_words deepspeed_file fsdp_file accelerate_file config_file stage engine_mode cache "
        "served_quantization reward_model titan_name titan_flavor framework "
        "optimizer_arguments adapter_kind",
    ),
    **_all(_WORDS, "targets saved"),
    **_all(
        FieldKind(name="whole", high=1e12),
        "shape.num_hidden_layers shape.hidden_size shape.intermediate_size shape.head_dim "
        "shape.num_attention_heads shape.num_key_value_heads shape.vocab_size shape.num_experts "
        "shape.num_experts_per_tok shape.moe_intermediate_size shape.max_position_embeddings "
        "shape.shared_expert_intermediate_size",
    ),
    **_all(_FLAG, "shape.gated shape.untied"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchDialect:
    """The flags and keys of one launcher or framework, with the field that each fills.

    `words` translate what some of them say; keys of a `sections` part may leave its name out;
    `environment` says that variables of the flags' names in capitals say the same.
    """

    name: str
    framework: str = ""
    scripts: str = ""
    marks: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()
    switches: tuple[str, ...] = ()
    environment: bool = False
    flags: Mapping[str, str] = field(default_factory=dict)
    words: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    defaults: Mapping[str, Value] = field(default_factory=dict)

    def plain(self, key: str) -> str:
        """Return a key as the tables have it, without the section that it stands in."""
        section, dot, rest = key.partition(".")
        return rest if dot and key not in self.flags and section in self.sections else key

    def field_of(self, key: str) -> str | None:
        """Return the field that a key fills, "" for one that does not matter, None if unknown."""
        return self.flags.get(self.plain(key))


@cache
def _tables() -> dict[str, Any]:
    text = files("dashboard.submission.launchers").joinpath("dialects.toml").read_text("utf-8")
    return tomllib.loads(text)


@cache
def dialect(name: str) -> LaunchDialect:
    """Return a dialect of dialects.toml, with what it takes over from the one that it is like."""
    facts = _tables()[name]
    base = dialect(facts["like"]) if "like" in facts else LaunchDialect(name=name)
    keys, words = facts.get("keys", {}), facts.get("words", {})
    filled = {flag: entry for entry, flags in keys.items() for flag in flags.split()}
    filled |= {flag: table["to"] for flag, table in words.items()}
    filled = {flag: "" if entry == "ignored" else entry for flag, entry in filled.items()}
    return LaunchDialect(
        name=name,
        framework=facts.get("framework", ""),
        scripts=facts.get("scripts", ""),
        marks=tuple(facts.get("marks", "").split()),
        sections=(*base.sections, *facts.get("sections", "").split()),
        switches=(*base.switches, *facts.get("switches", "").split()),
        environment=facts.get("environment", False),
        flags={**base.flags, **filled},
        words={**{flag: base.words[flag] for flag in base.words if flag not in filled}, **words},
        defaults={**base.defaults, **facts.get("defaults", {})},
    )


@cache
def model_names() -> dict[str, str]:
    """Return the known models by the beginnings of their public names."""
    return dict(_tables()["models"])


@cache
def _words(field_name: str) -> dict[str, str]:
    table = _tables()["words"].get(field_name, {})
    return {word: ours for ours, words in table.items() for word in words.split()}


def translated(field_name: str, word: str) -> str:
    """Return a framework's word for an optimiser, a sharding or a projection as ours."""
    return _words(field_name).get(word, word)


@cache
def _is_known(field_name: str, word: str) -> bool:
    """Return whether a word of a field, once translated, has a meaning."""
    if field_name == "adapter_kind":
        return word in adapter_kinds()
    if field_name == "optimizer":
        try:
            return bool(optimizer(word))
        except ImpossibleProblemError:
            return False
    choices = _tables()["known"].get(field_name)
    return choices is None or word.lower() in choices.split()


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedValue:
    """One value that a flag states, as the field that it fills; `origin` is where it stands.

    A value of None is a word that nobody here knows: no default may stand in for it.
    """

    field: str
    value: Value | None
    flag: str
    raw: str
    origin: str
    rank: int

    def __str__(self) -> str:
        """Return it as the output names it."""
        text = " ".join(self.value) if isinstance(self.value, tuple) else str(self.value)
        return f"{self.origin}: {self.flag} {self.raw}: {self.field} = {text}"


@dataclass(slots=True)
class Statements:
    """All that was stated, and the keys that were not read though they may matter.

    What is of a lower `rank` holds: a command line (0) over the framework's file (CONFIG) over the
    launcher's (LAUNCHER). What differs at the same rank is refused, and so is what a `strict` file
    states otherwise than the framework, such as DeepSpeed's micro-batch.
    """

    items: dict[str, StatedValue] = field(default_factory=dict)
    unread: list[str] = field(default_factory=list)
    left_open: dict[str, str] = field(default_factory=dict)

    def add(
        self,
        syntax: LaunchDialect,
        key: str,
        raw: Any,
        *,
        origin: str,
        rank: int = 0,
        strict: bool = False,
    ) -> None:
        """Take a flag or key with its value. Errors: ChangeRefusedError, as of `put`."""
        target = syntax.field_of(key)
        if target is None:
            head, _dot, rest = key.partition(".")
            inner = syntax.field_of(head) if rest else None
            if inner in _FILES:  # what --fsdp_config and --deepspeed name may stand in their place
                if inner == "deepspeed_file":
                    self.put("deepspeed", True, flag=head, origin=origin, rank=rank)
                self.add(dialect(inner), rest, raw, origin=origin, rank=rank, strict=True)
            else:
                self._leave(key, origin)
            return
        words = syntax.words.get(syntax.plain(key), {})
        word = _looked_up(words, raw)
        value = words.get(word, words.get("*", raw))
        if not target or value in ("", None):
            return
        if words and not {word, "*"} & words.keys() and FIELDS[target].name == "flag":
            raise ChangeRefusedError(
                f"{key} of {origin} is {scrub(repr(raw), limit=60)}, which is not known",
                f"Known are {', '.join(word for word in words if word != 'to')}.",
            )
        text = word if word in words else _word(raw)
        self.put(target, value, flag=key, origin=origin, rank=rank, strict=strict, text=text)

    def put(
        self,
        target: str,
        raw: Any,
        *,
        flag: str,
        origin: str,
        rank: int = 0,
        strict: bool = False,
        text: str | None = None,
    ) -> None:
        """Take a value of a field. Errors: ChangeRefusedError for a value that is none, or differs.

        It names the flag with its value and, of two that differ, both.
        """
        value = converted(target, raw, flag=flag, origin=origin)
        if value is None:
            return
        raw = scrub(_word(raw) if text is None else text, limit=60)
        if isinstance(value, str) and not _is_known(target, value):
            self.unread.append(f"{origin}: {scrub(flag, limit=60)} {raw}, a word that is not known")
            value = None
        new = StatedValue(field=target, value=value, flag=flag, raw=raw, origin=origin, rank=rank)
        old = self.items.get(target)
        if (
            old is not None
            and (old.value != value or (value is None and old.raw != raw))
            and (rank == old.rank or (strict and old.rank < LAUNCHER))
        ):
            raise ChangeRefusedError(
                f"{old.flag} {old.raw} of {old.origin} contradicts {flag} {raw} of {origin}",
                f"Give one value for {target.replace('_', ' ')}: take one of the two out.",
            )
        if old is None or rank < old.rank:
            self.items[target] = new

    def leave_open(self, target: str, raw: str, *, flag: str, origin: str) -> None:
        """Note a value that nobody here understands: unless another is, its field is unknown."""
        flag, raw = scrub(flag, limit=60), scrub(raw, limit=60)
        self.unread.append(f"{origin}: {flag} {raw}, which is not understood")
        self.left_open[target] = min(raw, self.left_open.get(target, raw))

    @property
    def unknown(self) -> tuple[str, ...]:
        """Fields of which a word is stated that is not known, with the word."""
        words = {name: entry.raw for name, entry in self.items.items() if entry.value is None}
        words |= {name: raw for name, raw in self.left_open.items() if name not in self.items}
        return tuple(f"{name} ({raw})" for name, raw in sorted(words.items()))

    def _leave(self, key: str, origin: str) -> None:
        if _RELEVANT_OPTION.search(key.lower()) and not _HARMLESS.search(key.lower()):
            self.unread.append(f"{origin}: {scrub(key, limit=60)}")


@dataclass(slots=True)
class FieldLookup:
    """Looks up what was stated, else what the framework does unasked, with a note of it."""

    syntax: LaunchDialect
    facts: Statements
    defaults: dict[str, Value]
    assumed: list[str] = field(default_factory=list)

    def value(self, name: str) -> Any:
        """Return the stated value of a field, the framework's default, or None.

        Of a word that is not known there is None, never the default.
        """
        stated = self.facts.items.get(name)
        if stated is not None:
            return stated.value
        usual = self.defaults.get(name)
        if usual is not None:
            note = f"{name.replace('_', ' ')} = {usual}, what {self.syntax.name} does unasked"
            if note not in self.assumed:
                self.assumed.append(note)
        return usual

    def stated(self, name: str) -> Any:
        """Return the stated value of a field, None without one."""
        entry = self.facts.items.get(name)
        return None if entry is None else entry.value

    def named(self, name: str) -> str:
        """Name the flag that states a field, with its value, for an error."""
        entry = self.facts.items[name]
        return f"{entry.flag} {entry.raw} of {entry.origin}"


_FILES = ("fsdp_file", "deepspeed_file")
_RELEVANT_OPTION = re.compile(
    r"\$|mem|specul|draft|batch|seq|length|offload|parallel|shard|precision|dtype|quant|checkpoint|recomput|optim"
    r"|expert|lora|dora|galore|apollo|badam|lomo|lisa|freeze|frozen|bucket|adapter|cache|attn|attention|layers|hidden|vocab|fp8|bf16|fp16|compile|liger"
)
_HARMLESS = re.compile(
    r"save|eval|dataset|logging|log_|_dir|dataloader|preprocess|alpha|dropout|rope|hub|wandb|path"
    r"|pin_memory|galore_(target|scale|update)|apollo_(target|scale|update|proj)|lr_|num_workers|load_checkpoint|checkpoint_(dir|folder|interval)|tokenizer|val_|test"
)


def _looked_up(words: Mapping[str, str], raw: Any) -> str:
    """Return a word as a flag's table has it; one of true and false stands for all such words."""
    word = _word(raw).strip().lower()
    alike = () if word in words else next((same for same in (TRUE, FALSE) if word in same), ())
    return next((entry for entry in words if entry in alike), word)


def _word(raw: Any) -> str:
    if isinstance(raw, bool):
        return str(raw).lower()
    if raw is None:
        return "null"
    if isinstance(raw, list | tuple):
        return " ".join(map(str, raw))
    return str(raw)


def converted(target: str, raw: Any, *, flag: str, origin: str) -> Value | None:
    """Return a raw value as its field wants it, None where it is left open ("auto").

    Errors: ChangeRefusedError naming the flag, its value and what it must be.
    """
    kind = FIELDS[target]
    if kind.name == "words":
        words = raw if isinstance(raw, list | tuple) else _word(raw).replace(",", " ").split()
        return tuple(scrub(str(word), limit=60) for word in words)
    word = _word(raw).strip()
    if kind.name == "word":
        return translated(target, word.lower()) if target in _CASELESS_FIELDS else word
    if word.lower() in _AUTO_WORDS and not (kind.name == "flag" and word.lower() in FALSE):
        return None
    if kind.name == "flag":
        return _flag(word, flag=flag, origin=origin)
    return _number(kind, word, flag=flag, origin=origin)


def _flag(word: str, *, flag: str, origin: str) -> bool:
    lowered = word.lower()
    if lowered in TRUE | FALSE:
        return lowered in TRUE
    raise ChangeRefusedError(
        f"{flag} of {origin} is {scrub(repr(word), limit=60)}", "It must be true or false."
    )


def _number(kind: FieldKind, word: str, *, flag: str, origin: str) -> int | float:
    scale = _NUMBER_SUFFIXES.get(word[-1:], 1)
    try:
        number = scale * float(word.replace("_", "")[: -1 if scale > 1 else None])
    except ValueError:
        number = math.nan
    exact = kind.name == "whole"
    if not kind.low <= number <= kind.high or (exact and number != int(number)):
        raise ChangeRefusedError(
            f"{flag} of {origin} is {scrub(repr(word), limit=60)}",
            f"It must be a {'whole ' if exact else ''}number from {kind.low:g} to {kind.high:g}.",
        )
    return int(number) if exact else number
