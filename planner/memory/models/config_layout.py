"""The place of the language model in a `config.json`, and its layers with experts."""

from collections.abc import Mapping
from typing import Any

from data.base.errors import ImpossibleProblemError, scrub

_INNER = ("thinker_config", "text_config", "llm_config", "language_config")
_PARTS = ("attn_config", "ffn_config")
"""Mappings of MPT and DBRX for what other families state beside the rest."""

_TOWERS = ("vision_config", "audio_config", "visual")
_MAX_LAYERS = 10_000
"""No model with experts in some of its layers reaches this."""


def language_model(config: Mapping[str, Any]) -> tuple[dict[str, Any], bool, bool]:
    """Return the keys of the language model, if an inner config states it, and if there are towers.

    Errors: ImpossibleProblemError for an encoder with a decoder.
    """
    merged, inner = dict(config), False
    for key in _INNER:
        if isinstance(stated := merged.get(key), Mapping):
            merged, inner = {**merged, **stated}, True
    for key in _PARTS:
        if isinstance(stated := merged.get(key), Mapping):
            merged = {**stated, **merged}
    stacks = [key for key in ("num_decoder_layers", "decoder_layers") if merged.get(key)]
    if stacks or merged.get("is_encoder_decoder") is True:
        model_type = scrub(str(merged.get("model_type") or "model"), limit=40)
        raise ImpossibleProblemError(
            f"{model_type} has an encoder and a decoder ({(*stacks, 'is_encoder_decoder')[0]}), "
            "whose memory is not known",
            "give the config.json of a model of one stack",
        )
    return merged, inner, inner or any(isinstance(merged.get(key), Mapping) for key in _TOWERS)


def layers_without_experts(config: Mapping[str, Any], layers: int) -> int:
    """Return the number of layers without experts in a mixture of them, by its stated rule.

    Errors: ImpossibleProblemError that names the rule and shows its value.
    """
    if layers > _MAX_LAYERS:
        return min(layers, _integer(config, "first_k_dense_replace", minimum=0) or 0)
    dense = set(range(_integer(config, "first_k_dense_replace", minimum=0) or 0))
    dense |= set(_indices(config, "mlp_only_layers") or ())
    for key in ("decoder_sparse_step", "interleave_moe_layer_step"):
        step = _integer(config, key) or 1
        dense |= {index for index in range(layers) if (index + 1) % step}
    period = _integer(config, "expert_layer_period") or 1
    offset = _integer(config, "expert_layer_offset", minimum=0) or 0
    dense |= {index for index in range(layers) if index % period != offset % period}
    if isinstance(config.get("moe_layer_freq"), list):
        flags = _indices(config, "moe_layer_freq") or ()
        dense |= {index for index, flag in enumerate(flags) if not flag}
    else:
        step = _integer(config, "moe_layer_freq") or 1
        dense |= {index for index in range(layers) if index % step}
    if (sparse := _indices(config, "moe_layers")) is not None:
        dense = set(range(layers)) - set(sparse)
    return len(dense & set(range(layers)))


def _integer(config: Mapping[str, Any], key: str, *, minimum: int = 1) -> int | None:
    value = config.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < minimum:
        raise _no_rule(key, value, f"a whole number of {minimum} or more")
    return min(value, _MAX_LAYERS)


def _indices(config: Mapping[str, Any], key: str) -> list[int] | None:
    value = config.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(entry, int) for entry in value):
        raise _no_rule(key, value, "a list of whole numbers")
    return value


def _no_rule(key: str, value: object, hint: str) -> ImpossibleProblemError:
    return ImpossibleProblemError(
        f"config.json: {key} is {scrub(repr(value), limit=40)}", f"give {key} as {hint}"
    )
