"""Configs that state a model otherwise than Llama does: nested keys, some layers with experts."""

from typing import Any

import pytest

from data.base.errors import ImpossibleProblemError
from planner.memory.models.model_config import shape_from_config
from planner.memory.models.parameters import count_parameters

DBRX: dict[str, Any] = {
    "model_type": "dbrx", "d_model": 6144, "n_heads": 48, "n_layers": 40, "vocab_size": 100352,
    "tie_word_embeddings": False, "attn_config": {"kv_n_heads": 8, "clip_qkv": 8},
    "ffn_config": {"ffn_hidden_size": 10752, "moe_num_experts": 16, "moe_top_k": 4},
}  # fmt: skip
LLAMA4: dict[str, Any] = {
    "model_type": "llama4_text", "hidden_size": 5120, "num_hidden_layers": 48,
    "num_attention_heads": 40, "num_key_value_heads": 8, "head_dim": 128,
    "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_experts_per_tok": 1,
    "vocab_size": 202048, "tie_word_embeddings": False,
}  # fmt: skip
SCOUT = {"num_local_experts": 16, "interleave_moe_layer_step": 1}
MAVERICK = {"num_local_experts": 128, "interleave_moe_layer_step": 2}
STARCODER: dict[str, Any] = {
    "model_type": "gpt_bigcode", "n_embd": 6144, "n_head": 48, "n_layer": 40, "n_inner": 24576,
    "n_positions": 8192, "vocab_size": 49152, "multi_query": True,
}  # fmt: skip
COMMAND_R: dict[str, Any] = {
    "model_type": "cohere", "hidden_size": 8192, "num_hidden_layers": 40, "vocab_size": 256000,
    "num_attention_heads": 64, "num_key_value_heads": 64, "intermediate_size": 22528,
}  # fmt: skip
NEMOTRON: dict[str, Any] = {
    "model_type": "nemotron", "hidden_size": 18432, "num_hidden_layers": 96,
    "num_attention_heads": 96, "num_key_value_heads": 8, "intermediate_size": 73728,
    "vocab_size": 256000, "tie_word_embeddings": False,
}  # fmt: skip
QWEN_MOE: dict[str, Any] = {
    "model_type": "qwen2_moe", "hidden_size": 2048, "num_hidden_layers": 24,
    "num_attention_heads": 16, "num_key_value_heads": 16, "intermediate_size": 5632,
    "moe_intermediate_size": 1408, "num_experts": 60, "num_experts_per_tok": 4,
    "shared_expert_intermediate_size": 5632, "vocab_size": 151936,
}  # fmt: skip
GEMMA3_4B: dict[str, Any] = {
    "model_type": "gemma3", "vision_config": {"hidden_size": 1152, "num_hidden_layers": 27},
    "text_config": {
        "model_type": "gemma3_text", "hidden_size": 2560, "num_hidden_layers": 34,
        "intermediate_size": 10240, "sliding_window": 1024,
    },
}  # fmt: skip
LLAVA: dict[str, Any] = {
    "model_type": "llava", "vision_config": {"hidden_size": 1024},
    "text_config": {"model_type": "llama", "vocab_size": 32064, "_name_or_path": "vicuna"},
}  # fmt: skip
INTERNVL: dict[str, Any] = {
    "model_type": "internvl_chat", "vision_config": {"hidden_size": 1024},
    "llm_config": {
        "model_type": "internlm2", "hidden_size": 4096, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 8, "intermediate_size": 14336,
        "vocab_size": 92553,
    },
}  # fmt: skip


def total(config: dict[str, Any]) -> int:
    """Return the parameters of the shape that is read."""
    return count_parameters(shape_from_config(config).shape).total


@pytest.mark.parametrize(
    ("config", "billions"),
    [
        (DBRX, 131.5965),
        (LLAMA4 | SCOUT, 107.77),
        (LLAMA4 | MAVERICK, 400.7),
        (STARCODER, 15.5175),
        (COMMAND_R, 34.9808),
        (NEMOTRON, 341.0),
        (GEMMA3_4B, 3.88),
        (LLAVA, 6.7389),
        (INTERNVL, 7.7378),
    ],
    ids=[
        "dbrx", "scout", "maverick", "starcoder", "command-r", "nemotron", "gemma3", "llava",
        "internvl",
    ],
)  # fmt: skip
def test_a_config_is_read_as_its_authors_wrote_it(config: dict[str, Any], billions: float) -> None:
    """The language model has the parameters that were published of it."""
    assert total(config) == pytest.approx(billions * 1e9, rel=2e-3)


@pytest.mark.parametrize(
    ("stated", "dense"),
    [
        ({"decoder_sparse_step": 2}, 12),
        ({"mlp_only_layers": [0, 5]}, 2),
        ({"first_k_dense_replace": 3, "moe_layer_freq": 2}, 14),
        ({"moe_layer_freq": [0] + [1] * 23}, 1),
        ({"expert_layer_period": 2, "expert_layer_offset": 1}, 12),
        ({"interleave_moe_layer_step": 3}, 16),
        ({"moe_layers": [1, 3]}, 22),
    ],
)
def test_layers_without_experts_are_those_that_the_config_says(
    stated: dict[str, Any], dense: int
) -> None:
    """Each such layer has the width of a dense one: what experts would hold is not counted."""
    expert = 3 * 2048 * (60 * 1408 + 5632) + 60 * 2048
    assert total(QWEN_MOE) - total(QWEN_MOE | stated) == dense * (expert - 3 * 2048 * 5632)


@pytest.mark.parametrize(
    "stated",
    [
        {"decoder_sparse_step": 0},
        {"mlp_only_layers": 3},
        {"moe_layer_freq": ["a"]},
        {"expert_layer_period": -1},
    ],
)
def test_a_rule_for_expert_layers_that_cannot_be_is_refused_by_name(
    stated: dict[str, Any],
) -> None:
    """The message names the key and shows the value."""
    with pytest.raises(ImpossibleProblemError, match=next(iter(stated))):
        shape_from_config(QWEN_MOE | stated)


def test_what_an_inner_config_leaves_out_is_its_class_default_and_named() -> None:
    """Hugging Face writes of an inner config what differs from its class alone."""
    read = shape_from_config(GEMMA3_4B)
    assert (read.shape.heads, read.shape.kv_heads, read.shape.head_dim) == (8, 4, 256)
    assert {"num_attention_heads = 8", "vocab_size = 262208"} <= set(read.assumed)


@pytest.mark.parametrize("tower", ["vision_config", "audio_config"])
def test_a_tower_beside_a_flat_config_is_named_as_not_counted(tower: str) -> None:
    """Qwen2.5-VL states its language model at the top, beside the tower."""
    read = shape_from_config({**QWEN_MOE, tower: {"depth": 32}})
    assert any("towers" in note for note in read.assumed)


@pytest.mark.parametrize(
    "stated", [{"is_encoder_decoder": True}, {"num_decoder_layers": 24}, {"decoder_layers": 32}]
)
def test_an_encoder_with_a_decoder_is_refused(stated: dict[str, Any]) -> None:
    """One of its two stacks would be counted alone."""
    with pytest.raises(ImpossibleProblemError, match="encoder and a decoder"):
        shape_from_config({**QWEN_MOE, **stated})
