"""A model's shape from its Hugging Face `config.json`, with everything that had to be assumed."""

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from importlib.resources import files
from typing import Any

from data.base.errors import ImpossibleProblemError, scrub
from planner.memory.models.layer_kinds import layer_kinds, unknown_value_error, whole_size
from planner.memory.models.model_shape import MAX_SIZE, ExpertLayers, LatentAttention, ModelShape

_HIDDEN = ("hidden_size", "n_embd", "d_model", "dim")
_POSITIONS = ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length")
_LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers")
_HEADS = ("num_attention_heads", "n_head", "n_heads", "num_heads")
_KEY_HEADS = (
    "num_key_value_heads",
    "num_kv_heads",
    "n_head_kv",
    "kv_n_heads",
    "multi_query_group_num",
)
_HEAD_DIM = ("head_dim", "kv_channels")
_FFN = ("intermediate_size", "ffn_hidden_size", "n_inner", "ffn_dim", "d_ff")
_VOCAB = ("vocab_size", "padded_vocab_size")
_EXPERTS = ("num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts")
_SHAPE_FLAGS = (
    "gated_mlp", "norms_per_layer", "norm_vectors", "qk_norm", "parallel_block", "qkv_bias",
    "output_bias", "mlp_bias", "fused_qkv", "fused_gate_up", "composed_gelu", "rotary",
    "attention", "wide_qk_norm", "softcapped_logits",
)  # fmt: skip
_INNER = ("thinker_config", "text_config", "llm_config", "language_config")
_PARTS = ("attn_config", "ffn_config")
"""Mappings of MPT and DBRX for what other families state beside the rest."""
_TOWERS = ("vision_config", "audio_config", "visual")
_MAX_LAYERS = 10_000
"""No model with experts in some of its layers reaches this."""
_BY_BITS = {
    "awq": {4: "awq-int4"},
    "gptq": {4: "gptq-int4", 8: "gptq-int8"},
    "int": {4: "gptq-int4", 8: "gptq-int8"},
    "float": {8: "fp8"},
}
_WHOLE = {"fp8": "fp8", "fbgemm_fp8": "fp8", "mxfp4": "mxfp4"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadModel:
    """A shape, and its sizes that the config did not state: `assumed` has the values taken.

    `quantization` is that of its weights as they are stored, '' for 16 bit.
    """

    shape: ModelShape
    assumed: tuple[str, ...]
    quantization: str = ""


@cache
def _families() -> dict[str, dict[str, Any]]:
    text = (
        files("planner.memory.models").joinpath("model_families.toml").read_text(encoding="utf-8")
    )
    return tomllib.loads(text)


@dataclass(slots=True)
class _Config:
    """A config with notes on missing keys."""

    values: Mapping[str, Any]
    name: str
    missing: list[str] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)

    def size(self, keys: Sequence[str]) -> int | None:
        """Return the first of these keys that is stated, as a whole number."""
        sizes = (whole_size(self.values.get(key), key, of=f" of {self.name}") for key in keys)
        return next((size for size in sizes if size is not None), None)

    def needed(self, keys: Sequence[str]) -> int:
        """Return a size that nothing can stand in for; 0 after noting that it is missing."""
        size = self.size(keys)
        if size is None:
            self.missing.append(keys[0])
        return size or 0

    def assume(self, key: str, value: int) -> int:
        """Note and return the value taken for a size that is not stated."""
        self.assumed.append(f"{key} = {value}")
        return value

    def complete(self, defaults: Mapping[str, int]) -> None:
        """Fill the gaps of an inner config with the defaults of its class, with notes."""
        left_out = [key for key in defaults if self.values.get(key) is None]
        self.values = {**self.values, **{key: self.assume(key, defaults[key]) for key in left_out}}

    def flag(self, key: str, otherwise: bool) -> bool:
        """Return a yes-or-no value, or what the family has when it is not stated."""
        value = self.values.get(key)
        if value is not None and value not in (0, 1):
            raise unknown_value_error(key, value, "true or false")
        return otherwise if value is None else bool(value)


def shape_from_config(config: Mapping[str, Any], *, name: str = "") -> ReadModel:
    """Return the shape that a `config.json` describes, read into a mapping.

    Of a model with several towers the language model alone is read, and the note says so. A
    family that is not known is read as a Llama-like decoder. Errors: ImpossibleProblemError that
    names every missing key with what is assumed for the others, or the key with a value that is
    no size.
    """
    if not isinstance(config, Mapping):
        raise ImpossibleProblemError(
            "config.json holds no object", "give the config.json of a Hugging Face model"
        )
    notes: list[str] = []
    config, inner, towers = language_model(config)
    if towers:
        notes.append("only the language model is counted: other towers of the model are not")
    family_name = str(config.get("model_type") or "")
    family = _families().get(family_name)
    if family is None:
        type_name = scrub(family_name, limit=40) or "none"
        notes.append(f"model_type {type_name} is not known: read as a Llama-like decoder")
        family = _families()["llama"]
    known_as = name or scrub(str(config.get("_name_or_path") or family_name or "model"), limit=60)
    source = _Config(values=config, name=known_as)
    if inner:
        source.complete(family.get("inner", {}))
    shape = _shape(source, family, family_name)
    shape = replace(shape, kinds=layer_kinds(family.get("rules", {}) | source.values, shape))
    pattern = source.values.get("hybrid_override_pattern")
    if isinstance(pattern, str):  # a layer is a mixer or an MLP: of equal layers each has a share
        shape = replace(shape, ffn=shape.ffn * pattern.count("-") // shape.layers)
    quantization, note = stored_quantization(config)
    assumed = (*notes, *source.assumed, *filter(None, (note,)))
    return ReadModel(shape=shape, assumed=assumed, quantization=quantization)


def _shape(source: _Config, family: Mapping[str, Any], family_name: str) -> ModelShape:
    hidden, layers = source.needed(_HIDDEN), source.needed(_LAYERS)
    heads, vocab = source.needed(_HEADS), source.needed(_VOCAB)
    experts = _experts(source, family, layers)
    ffn = source.size(("intermediate_size_mlp", *_FFN))
    if ffn is None and experts is None:
        ratio = source.size(("expansion_ratio",))
        ffn = ratio * hidden if ratio else source.assume(_FFN[0], 4 * hidden)
    _refuse_gaps(source)
    if family.get("halved_ffn"):
        ffn = (ffn or 0) // 2
    values = {flag: family[flag] for flag in _SHAPE_FLAGS if flag in family}
    if "attention_bias" in source.values and not values.get("qkv_bias"):
        values["qkv_bias"] = values["output_bias"] = source.flag("attention_bias", False)
    if family.get("embedding_norm"):
        values["other_parameters"] = values["norm_vectors"] * hidden
    if source.flag("use_qkv_bias", False):
        values["qkv_bias"] = True
    if "final_logit_softcapping" in source.values:
        values["softcapped_logits"] = bool(source.values["final_logit_softcapping"])
    if values.get("composed_gelu"):
        stated = source.values.get("activation_function") or source.values.get("hidden_act")
        values["composed_gelu"] = stated in (None, "gelu_new")
    if family_name == "falcon":
        values |= _falcon(source)
    return ModelShape(
        name=source.name,
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=_key_heads(source, heads, family_name),
        head_dim=source.size(_HEAD_DIM) or max(1, hidden // max(heads, 1)),
        ffn=ffn or 0,
        vocab=vocab,
        tied_embeddings=source.flag("tie_word_embeddings", bool(family.get("tied_default"))),
        learned_positions=_positions(source, family),
        rotary_positions=_rotary_positions(source) if values.get("rotary", True) else 0,
        experts=experts,
        latent=_latent(source),
        **values,
    )


def _falcon(source: _Config) -> dict[str, Any]:
    """Return the traits that tell the generations of Falcon apart."""
    new, bias = source.flag("new_decoder_architecture", False), source.flag("bias", False)
    parallel = new or source.flag("parallel_attn", True)
    joint = new and source.values.get("num_ln_in_parallel_attn") == 1
    traits: dict[str, Any] = {"qkv_bias": bias, "output_bias": bias, "mlp_bias": bias}
    traits["parallel_block"] = parallel
    traits["norms_per_layer"] = 2 if (new and not joint) or not parallel else 1
    if source.flag("alibi", False):
        return traits | {"attention": "biased", "rotary": False}
    broadcast = not new and source.flag("multi_query", True)
    return traits | ({"attention": "broadcast"} if broadcast else {})


def _refuse_gaps(source: _Config) -> None:
    if source.missing:
        also = f"; would assume {', '.join(source.assumed)}" if source.assumed else ""
        raise ImpossibleProblemError(
            f"config.json of {source.name} lacks {', '.join(source.missing)}{also}",
            "give the model's own config.json, or add these keys",
        )


def _key_heads(source: _Config, heads: int, family_name: str) -> int:
    single = family_name == "falcon" and not source.flag("new_decoder_architecture", False)
    if single or family_name == "gpt_bigcode":
        return 1 if source.flag("multi_query", True) else heads
    if family_name == "chatglm" and not source.flag("multi_query_attention", False):
        return heads
    return source.size(_KEY_HEADS) or heads


def _positions(source: _Config, family: Mapping[str, Any]) -> int:
    key = family.get("positions")
    if key is None:
        return 0
    stated = source.size((key, "max_position_embeddings"))
    if stated is None:
        stated = source.assume(key, 1024)
    return stated + int(family.get("extra_positions", 0))


def _rotary_positions(source: _Config) -> int:
    """Return the positions that a model was made for, 0 where its config does not state them.

    With a scaling of its rotation as many as that stretches them to, however it counts: some
    configs state the positions before it and some those after it.
    """
    stated = source.size(_POSITIONS) or 0
    scaling = source.values.get("rope_scaling") or source.values.get("rope_parameters")
    if not stated or not isinstance(scaling, Mapping):
        return min(stated, MAX_SIZE)
    factor, original = (
        value if isinstance(value, int | float) and math.isfinite(value) else 0
        for value in map(scaling.get, ("factor", "original_max_position_embeddings"))
    )
    return int(min(MAX_SIZE, max(stated, factor * (original or stated))))


def _experts(source: _Config, family: Mapping[str, Any], layers: int) -> ExpertLayers | None:
    experts = source.size(_EXPERTS)
    if not experts:
        return None
    width = source.size(("moe_intermediate_size", "expert_ffn_dim")) or source.size(_FFN)
    if width is None:
        source.missing.append("moe_intermediate_size")
    routed = source.size(
        ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "top_k")
    )
    shared = source.size(("shared_expert_intermediate_size",))
    if shared is None:
        number = source.size(("n_shared_experts",)) or family.get("shared_experts", 0)
        shared = number * (width or 0)
    return ExpertLayers(
        experts=experts,
        experts_per_token=source.assume("num_experts_per_tok", 2) if routed is None else routed,
        ffn=width or 0,
        shared_ffn=shared,
        dense_layers=layers_without_experts(source.values, layers),
    )


def _latent(source: _Config) -> LatentAttention | None:
    rank = source.size(("kv_lora_rank",))
    if not rank:
        return None
    return LatentAttention(
        query_rank=source.size(("q_lora_rank",)) or 0,
        key_value_rank=rank,
        nope_dim=source.size(("qk_nope_head_dim",)) or source.assume("qk_nope_head_dim", 128),
        rope_dim=source.size(("qk_rope_head_dim",)) or source.assume("qk_rope_head_dim", 64),
        value_dim=source.size(("v_head_dim",)) or source.assume("v_head_dim", 128),
    )


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
        raise unknown_value_error(key, value, f"a whole number of {minimum} or more")
    return min(value, _MAX_LAYERS)


def _indices(config: Mapping[str, Any], key: str) -> list[int] | None:
    value = config.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(entry, int) for entry in value):
        raise unknown_value_error(key, value, "a list of whole numbers")
    return value


def stored_quantization(config: Mapping[str, Any]) -> tuple[str, str]:
    """Return the name of a quantization, '' for 16 bit, and a note, '' where none is stated.

    A method that is not known is 16 bit, and the note says so.
    """
    stated = config.get("quantization_config")
    if stated is None:
        return "", ""
    stated = stated if isinstance(stated, Mapping) else {}
    method = str(stated.get("quant_method") or "").lower()
    name = _WHOLE.get(method) or _with_bits(method, stated)
    text = f"quantization_config {scrub(method, limit=40) or 'without quant_method'}"
    if not name:
        return "", f"{text} is not known and ignored: weights are taken as 16 bit"
    return name, f"{text} is read as {name} where the model is served; training takes 16 bit"


def _with_bits(method: str, stated: Mapping[str, Any]) -> str:
    """Return the quantization of a method that has several widths, '' for one not known."""
    if method == "bitsandbytes":
        if stated.get("load_in_4bit"):
            return "nf4-dq" if stated.get("bnb_4bit_use_double_quant") else "nf4"
        return "int8" if stated.get("load_in_8bit") else ""
    if method != "compressed-tensors":
        return _type_of_width(method, stated.get("bits"))
    groups = stated.get("config_groups")
    weights = [
        group["weights"]
        for group in (groups.values() if isinstance(groups, Mapping) else ())
        if isinstance(group, Mapping) and isinstance(group.get("weights"), Mapping)
    ]
    names = {
        _type_of_width(str(each.get("type") or "int"), each.get("num_bits")) for each in weights
    }
    return names.pop() if len(names) == 1 else ""


def _type_of_width(kind: str, bits: object) -> str:
    return _BY_BITS.get(kind, {}).get(bits, "") if isinstance(bits, int) else ""
