"""GPU memory of training frameworks as measured: dtypes, loss path, buffers, as data."""

import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import Any

from data.base.errors import ImpossibleProblemError

GENERIC = "generic"
"""The textbook's dialect, from which the others differ; a job may name it as its framework."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StatePolicy:
    """Bytes per trained parameter, by what holds them; `compute` is the width of activations.

    `reduced` is a further copy of the gradient that is shared out as the optimiser is, `copied`
    one that every rank keeps, `step` what lives only while the optimiser steps, `cast` the 16-bit
    copy of a weight that autocast keeps for the backward pass.
    """

    weight: float
    gradient: float
    moment: float
    master: float
    reduced: float = 0.0
    copied: float = 0.0
    step: float = 0.0
    cast: float = 0.0
    compute: float = 2.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Optimizer:
    """Moments per parameter (`vector_moments` for all but matrices) and how they are kept."""

    moments: float
    vector_moments: float | None = None
    bytes: float | None = None
    host: bool = False
    by_layer: bool = False
    low_rank: bool = False
    fused: bool = False
    largest: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """Bytes per frozen parameter; `keeps_input` when its backward keeps the layer's input.

    `dense_bytes` are those of matrices outside of experts, None where these are quantised as well.
    """

    bytes: float
    keeps_input: bool = False
    dense_bytes: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterKind:
    """The bytes that an adapter of a kind keeps for its gradient.

    `input` the share of its targets' inputs, `output` bytes per element of their outputs, `weight`
    bytes per element of a matrix that it builds, `attention` bytes per element of what attention
    gives. `all` when every projection is a target, `norms` when norms are trained as well.
    """

    input: float = 0.0
    output: float = 0.0
    weight: float = 0.0
    attention: float = 0.0
    all: bool = False
    norms: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameworkTraits:
    """Traits of one framework; framework_traits.toml says what each means and where it is from."""

    name: str
    evidence: str
    prior_weight: float
    used_for: tuple[str, ...]
    full_policy: str
    sharded_policy: str
    adapter_policy: str
    casts_adapters: bool
    default_optimizer: str
    default_recompute: str
    optimizer_copies: float
    keeps_gradients: bool
    norm_frozen: float
    norm_trained: float
    repeats_kv: str
    fuses_qkv: bool
    dropout: bool
    hub_modules: bool
    softmax_bytes: float
    loss_bytes: float
    compiled_loss_bytes: float
    chunked_loss_bytes: float
    adapter_loss_bytes: float
    adapter_input: str
    gather_units: float
    bucket_bytes: float
    copies_gradients: bool
    loads_whole_model: bool
    upcasts_unquantized: bool
    quantizes_head: bool
    unties_head: bool
    reserved_static: float
    reserved_fixed: float
    reserved_logits: float
    reserved_longest: float
    reserved_typical: float
    context_bytes: float
    network_bytes: float
    adapter_qkv_copy: bool
    quantized_attention_copy: bool
    resident_bytes: float
    quantized_resident_bytes: float
    layer_buffer_bytes: float
    sampled_bytes: float
    borrowed: bool


@cache
def _tables() -> dict[str, dict[str, dict[str, Any]]]:
    text = (
        files("planner.memory.step").joinpath("framework_traits.toml").read_text(encoding="utf-8")
    )
    return tomllib.loads(text)


_PRECISIONS = {
    "float32": "fp32", "32": "fp32", "32-true": "fp32", "no": "fp32",
    "mixed": "amp", "bf16-mixed": "amp", "16-mixed": "amp", "fp16-mixed": "amp",
    "pure-bf16": "bf16-true", "bfloat16-true": "bf16-true", "16-true": "bf16-true",
    "fp16-true": "bf16-true",
}  # fmt: skip
"""Names of frameworks for a policy: two bytes are two bytes, whichever format fills them."""
_HALF = ("bf16", "bfloat16", "fp16", "float16", "half", "16")
_MASTER_WEIGHTS = ("transformers", "accelerate", "lightning")
"""Frameworks whose option of that name is autocast over weights in fp32."""


def _row(table: str, name: str) -> dict[str, Any]:
    rows = _tables()[table]
    if name not in rows:
        similar = get_close_matches(name, rows, n=1)
        raise ImpossibleProblemError(
            f"{name[:40]!r} is none of the known {table}",
            "".join(f"Did you mean {like}? " for like in similar)
            + f"known are: {', '.join(sorted(rows))}",
        )
    return rows[name]


@cache
def framework_traits(name: str, *, measured: bool = True) -> FrameworkTraits:
    """Return the traits of a framework; those of the generic one for a framework not known.

    Without what was `measured` they hold what was known before anybody measured the framework.
    """
    frameworks = _tables()["frameworks"]
    framework = name if name in frameworks else GENERIC
    values, nearest = dict(frameworks[GENERIC]), [framework]
    while like := frameworks[nearest[-1]].get("like"):
        nearest.append(like)
    for entry in reversed(nearest):
        values |= frameworks[entry] | (frameworks[entry].get("chosen", {}) if measured else {})
    values.pop("like", None)
    values.pop("chosen", None)
    return FrameworkTraits(name=framework, used_for=tuple(values.pop("used_for")), **values)


@cache
def similar_frameworks(name: str) -> frozenset[str]:
    """Return a framework and all that are like it, or like the same one."""
    frameworks = _tables()["frameworks"]

    def root(entry: str) -> str:
        like = frameworks.get(entry, {}).get("like")
        return root(like) if like else entry

    return frozenset({name, *(entry for entry in frameworks if root(entry) == root(name))})


@cache
def known_frameworks() -> tuple[str, ...]:
    """Return the names of all frameworks with traits of their own."""
    return tuple(sorted(set(_tables()["frameworks"]) - {GENERIC}))


def require_framework(name: str) -> None:
    """Refuse a framework without traits. Errors: ImpossibleProblemError with the known ones."""
    _row("frameworks", name)


@cache
def state_policy(name: str) -> StatePolicy:
    """Return a policy by name; an unknown name is refused with the known ones."""
    return StatePolicy(**_row("policies", name))


def policy_name(name: str, framework: str = "") -> str:
    """Return the policy that a precision names, in the words of the field or ours.

    Errors: ImpossibleProblemError for an unknown name, and for `bf16` alone, which is two things.
    """
    plain = name.strip().lower().replace("_", "-")
    if plain in _HALF and framework in _MASTER_WEIGHTS:
        plain = "amp"
    if plain in _HALF:
        raise ImpossibleProblemError(
            f"the precision {name[:40]!r} is two things: weights in two bytes, or autocast over "
            "weights in fp32",
            "Say bf16-true where weights and optimiser states have two bytes, bf16-mixed where "
            "they are kept in fp32, or zero for DeepSpeed's and FSDP's fp32 master copy.",
        )
    policy = _PRECISIONS.get(plain, plain)
    state_policy(policy)
    return policy


@cache
def optimizer(name: str) -> Optimizer:
    """Return an optimiser by name, with what parts of the name say of how its state is kept.

    An unknown name is refused with the known ones.
    """
    plain, manners = name, dict[str, Any]()
    for part, manner in _tables()["optimizer_manners"].items():
        if part in plain:
            plain, manners = plain.replace(part, "", 1), manners | manner
    return Optimizer(**_row("optimizers", plain) | manners)


@cache
def quantization(name: str) -> Quantization:
    """Return a quantisation by name; an unknown name is refused with the known ones."""
    return Quantization(**_row("quantizations", name))


@cache
def adapter_kinds() -> dict[str, AdapterKind]:
    """Return the kinds of adapters whose memory is known, by name."""
    return {name: AdapterKind(**row) for name, row in _tables()["adapters"].items()}
