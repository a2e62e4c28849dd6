"""Kinds of layers by what they mix tokens with, from a model's `config.json`."""

import math
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from data.base.errors import ImpossibleProblemError, scrub
from planner.memory.models.model_shape import MAX_SIZE, LayerKind, ModelShape
from planner.memory.models.parameters import attention_parameters

_LISTS = ("hybrid_override_pattern", "layer_types", "layers_block_type", "block_types",
          "attn_type_list")  # fmt: skip
_STATE_BYTES, _CONVOLUTION_BYTES = 4, 2
"""Of an element: engines keep states in fp32 (vLLM 0.19), what is convolved in 16 bits."""
_MOST_LAYERS = 10_000


@cache
def _table(name: str) -> dict[str, list[str]]:
    text = files("planner.memory.models").joinpath("layer_kinds.toml").read_text(encoding="utf-8")
    return {entry: words.split() for entry, words in tomllib.loads(text)[name].items()}


def layer_kinds(config: Mapping[str, Any], shape: ModelShape) -> tuple[LayerKind, ...]:
    """Return the kinds of layers of a model, none where all have the attention of its shape.

    `config` are the keys of the language model. The last `num_kv_shared_layers` take keys and
    values of earlier ones. Errors: ImpossibleProblemError naming the key and the word in it that is
    not known.
    """
    if shape.layers > _MOST_LAYERS:
        return ()
    with_cache = shape.layers - (_size(config, "num_kv_shared_layers") or 0)
    share = _size(config, "cla_share_factor") if config.get("use_cla") else 1
    keeps = (index < with_cache and index % (share or 1) == 0 for index in range(shape.layers))
    kinds = Counter(zip(_names(config, shape.layers), keeps, strict=True))
    if kinds.keys() == {("full", True)} and not _gate(config, shape):
        return ()
    return tuple(
        _kind(config, shape, name, layers=count, keeps=keeps_any)
        for (name, keeps_any), count in kinds.items()
    )


def _names(config: Mapping[str, Any], layers: int) -> list[str]:
    """Return the kind of every layer by a list of the config, or by a rule of it."""
    meanings = {word: kind for kind, words in _table("words").items() for word in words}
    key = next((key for key in _LISTS if config.get(key)), "")
    if not key:
        return _by_rule(config, layers)
    if not isinstance(config[key], list | str):
        raise unknown_value_error(key, config[key], "a list of words")
    words = [str(entry) for entry in config[key]]
    strange = next((word for word in words if word not in meanings), None)
    if strange is not None:
        raise ImpossibleProblemError(
            f"config.json: {key} has {scrub(repr(strange), limit=40)}, which is not known",
            f"known are: {', '.join(sorted(meanings))}",
        )
    names = [meanings[word] for word in words]
    return (names * -(-layers // len(names)))[:layers]  # `block_types` is one period


def _by_rule(config: Mapping[str, Any], layers: int) -> list[str]:
    """Return the kinds where the config states the layers of attention, or their period."""
    source, key, first = config, "attn_layer_indices", 0
    if isinstance(linear := config.get("linear_attn_config"), Mapping):
        source, key, first = linear, "full_attn_layers", 1  # Kimi Linear counts from 1
    if (full := source.get(key)) is not None:
        if not isinstance(full, list):
            raise unknown_value_error(key, full, "a list of whole numbers")
        indices = ((whole_size(index, key) or 0) - first for index in full)
        return _full_in(indices, layers, "state")
    if period := _size(config, "attn_layer_period"):
        first = _size(config, "attn_layer_offset") or 0
        return _full_in(range(first, layers, period), layers, "state")
    window = _size(config, "sliding_window") or _size(config, "attention_chunk_size")
    if window and (period := _size(config, "sliding_window_pattern")):
        return _full_in(range(period - 1, layers, period), layers, "window")
    if period := _size(config, "full_attention_interval"):
        return _full_in(range(period - 1, layers, period), layers, "state")
    everywhere = window and config.get("use_sliding_window") and "max_window_layers" not in config
    return ["window" if everywhere else "full"] * layers


def _full_in(indices: Iterable[int], layers: int, other: str) -> list[str]:
    full = set(indices)
    return ["full" if index in full else other for index in range(layers)]


def unknown_value_error(
    key: str, value: object, hint: str, *, of: str = ""
) -> ImpossibleProblemError:
    """Return the error of a value that is not known: the family's does not stand in for it."""
    text = scrub(repr(value), limit=40)
    return ImpossibleProblemError(f"config.json{of}: {key} is {text}", f"give {key} as {hint}")


def whole_size(value: object, key: str, *, of: str = "") -> int | None:
    """Return a size as a whole number, None where it is not stated.

    Errors: ImpossibleProblemError for what is none.
    """
    if value is None or value is False:
        return None
    number = value if isinstance(value, int | float) and value is not True else math.nan
    if not abs(number) <= MAX_SIZE or number != int(number):
        raise unknown_value_error(key, value, "a whole number", of=of)
    return int(number)


def _size(config: Mapping[str, Any], key: str) -> int | None:
    """Return a size above 0; 0 and less switch off what it is the size of."""
    size = whole_size(config.get(key), key)
    return size if size and size > 0 else None


def _gate(config: Mapping[str, Any], shape: ModelShape) -> int:
    """Return the parameters of a gate on what attention gives."""
    return shape.hidden * shape.attention_width if config.get("attn_output_gate") else 0


def _kind(
    config: Mapping[str, Any], shape: ModelShape, name: str, *, layers: int, keeps: bool
) -> LayerKind:
    """Return a kind of layers; those of Gemma 4 that see all tokens have heads of their own."""
    heads, dim, width, state, parameters = shape.kv_heads, shape.head_dim, 0, 0, 0
    if name != "state" and name != "none":
        if name == "full":
            heads = _size(config, "num_global_key_value_heads") or heads
            dim = _size(config, "global_head_dim") or dim
        width = 2 * heads * dim
        parameters = 2 * shape.hidden * dim * (shape.heads + heads) + _gate(config, shape)
        if shape.latent:
            parameters, heads = attention_parameters(shape), 0
            width = shape.latent.key_value_rank + shape.latent.rope_dim
    if name in ("state", "both"):
        state, more = _state(config, shape.hidden)
        parameters += more
    window = _size(config, "sliding_window") or _size(config, "attention_chunk_size") or 0
    return LayerKind(
        layers=layers,
        width=width if keeps else 0,
        heads=heads if width else 0,
        window=window if name == "window" else 0,
        state=state,
        parameters=parameters,
    )


def _state(config: Mapping[str, Any], hidden: int) -> tuple[int, int]:
    """Return the bytes of a state per sequence, and the parameters of its layer's matrices."""
    inner_config = config.get("linear_attn_config")
    source = inner_config if isinstance(inner_config, Mapping) else config
    sizes = {
        name: next((size for key in keys if (size := _size(source, key))), 0)
        for name, keys in _table("state").items()
    }
    inner = sizes["heads"] * sizes["width"]
    if not inner:
        inner = sizes["inner"] or (_size(config, "mamba_expand") or 1) * hidden
    channels = inner + 2 * sizes["groups"] * sizes["size"]
    state = _STATE_BYTES * inner * max(sizes["size"], 1)
    state += _CONVOLUTION_BYTES * channels * max(sizes["kernel"] - 1, 0)
    return state, hidden * (channels + 2 * inner)
