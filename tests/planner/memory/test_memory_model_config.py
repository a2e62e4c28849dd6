"""Reading a model's shape from its config.json, good and bad."""

import math
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from data.base.errors import ImpossibleProblemError
from planner.memory.models.model_config import shape_from_config
from planner.memory.models.parameters import count_parameters

LLAMA3: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32,
    "vocab_size": 128256, "tie_word_embeddings": False, "attention_bias": False,
}  # fmt: skip
GPT2_XL: dict[str, Any] = {
    "model_type": "gpt2", "n_embd": 1600, "n_head": 25, "n_layer": 48, "n_positions": 1024,
    "vocab_size": 50257,
}  # fmt: skip
MIXTRAL: dict[str, Any] = {
    "model_type": "mixtral", "hidden_size": 4096, "intermediate_size": 14336,
    "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32,
    "num_experts_per_tok": 2, "num_local_experts": 8, "vocab_size": 32000,
    "tie_word_embeddings": False,
}  # fmt: skip
QWEN3_MOE: dict[str, Any] = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "head_dim": 128,
    "moe_intermediate_size": 768, "num_attention_heads": 32, "num_key_value_heads": 4,
    "num_hidden_layers": 48, "num_experts": 128, "num_experts_per_tok": 8, "vocab_size": 151936,
    "tie_word_embeddings": False,
}  # fmt: skip
DEEPSEEK_V3: dict[str, Any] = {
    "model_type": "deepseek_v3", "hidden_size": 7168, "intermediate_size": 18432,
    "moe_intermediate_size": 2048, "num_hidden_layers": 61, "num_attention_heads": 128,
    "num_key_value_heads": 128, "n_shared_experts": 1, "n_routed_experts": 256,
    "num_experts_per_tok": 8, "first_k_dense_replace": 3, "kv_lora_rank": 512,
    "q_lora_rank": 1536, "qk_rope_head_dim": 64, "v_head_dim": 128, "qk_nope_head_dim": 128,
    "vocab_size": 129280, "tie_word_embeddings": False,
}  # fmt: skip
QWEN2: dict[str, Any] = {
    "model_type": "qwen2", "hidden_size": 896, "intermediate_size": 4864,
    "num_attention_heads": 14, "num_key_value_heads": 2, "num_hidden_layers": 24,
    "vocab_size": 151936, "tie_word_embeddings": True,
}  # fmt: skip


MPT_7B: dict[str, Any] = {
    "model_type": "mpt", "d_model": 4096, "n_heads": 32, "n_layers": 32, "expansion_ratio": 4,
    "vocab_size": 50432,
}  # fmt: skip


@pytest.mark.parametrize(
    ("config", "parameters"),
    [
        (LLAMA3, 8_030_261_248),
        (GPT2_XL, 1_557_611_200),
        (MIXTRAL, 46_702_792_704),
        (QWEN3_MOE, 30_532_122_624),
        (DEEPSEEK_V3, 671_026_404_352),
        (QWEN2, 494_032_768),
        (MPT_7B, 6_649_286_656),
    ],
    ids=["llama", "gpt2", "mixtral", "qwen3-moe", "deepseek-v3", "qwen2", "mpt"],
)
def test_every_family_counts_its_published_parameters(
    config: dict[str, Any], parameters: int
) -> None:
    """The shape read from a public config has the parameters of the public checkpoint."""
    assert count_parameters(shape_from_config(config).shape).total == parameters


def test_an_unknown_family_is_read_with_a_note() -> None:
    """A model_type that is not known is read as a Llama-like decoder, and the reading says so."""
    read = shape_from_config({**LLAMA3, "model_type": "mystery"})
    assert read.shape.gated_mlp
    assert any("mystery" in note for note in read.assumed)


def test_every_missing_key_is_named() -> None:
    """One error names all keys that nothing can stand in for, and what would be assumed."""
    with pytest.raises(ImpossibleProblemError) as caught:
        shape_from_config({"model_type": "llama", "hidden_size": 64})
    for key in ("num_hidden_layers", "num_attention_heads", "vocab_size"):
        assert key in str(caught.value)
    assert "intermediate_size = 256" in str(caught.value)


def test_a_width_that_is_not_stated_is_assumed_and_named() -> None:
    """A missing MLP width is taken as four times the hidden one, with a note."""
    config = {key: value for key, value in LLAMA3.items() if key != "intermediate_size"}
    assert "intermediate_size = 16384" in shape_from_config(config).assumed


@pytest.mark.parametrize("value", ["4096", True, math.nan, math.inf, 12.5, [4096], 1e300])
def test_a_size_that_is_no_whole_number_is_refused(value: object) -> None:
    """The message names the key and shows the value."""
    with pytest.raises(ImpossibleProblemError, match="hidden_size"):
        shape_from_config({**LLAMA3, "hidden_size": value})


@pytest.mark.parametrize("value", ["false", "yes", 2, 0.5, [True], {}])
@pytest.mark.parametrize("key", ["tie_word_embeddings", "attention_bias"])
def test_a_yes_or_no_that_is_neither_is_refused(key: str, value: object) -> None:
    """The default of the family stands in for what is not stated, not for what is not known."""
    with pytest.raises(ImpossibleProblemError, match=key):
        shape_from_config({**LLAMA3, key: value})


@pytest.mark.parametrize(("value", "tied"), [(None, False), (0, False), (1, True), (True, True)])
def test_a_yes_or_no_may_be_a_number(value: object, tied: bool) -> None:
    """As Python reads it; null is what the family has."""
    shape = shape_from_config({**LLAMA3, "tie_word_embeddings": value}).shape
    assert shape.tied_embeddings is tied


def test_a_negative_size_is_refused() -> None:
    """A model of minus one layers is refused by name."""
    with pytest.raises(ImpossibleProblemError, match="layers = -1"):
        shape_from_config({**LLAMA3, "num_hidden_layers": -1})


def test_a_config_that_is_no_object_is_refused() -> None:
    """A JSON list is no model."""
    with pytest.raises(ImpossibleProblemError, match="no object"):
        shape_from_config([LLAMA3])  # type: ignore[arg-type]


def test_a_model_with_an_image_tower_counts_its_language_model() -> None:
    """The inner text_config is read, and the note says what is left out."""
    read = shape_from_config({"model_type": "llava", "text_config": LLAMA3, "vision_config": {}})
    assert count_parameters(read.shape).total == 8_030_261_248
    assert any("towers" in note for note in read.assumed)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.dictionaries(
        st.sampled_from([*LLAMA3, *DEEPSEEK_V3, *GPT2_XL, "text_config", "quantization"]),
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    )
)
def test_any_config_is_read_or_refused_by_name(config: dict[str, Any]) -> None:
    """Whatever stands in a config, the answer is a shape with parameters or an error for people."""
    try:
        total = count_parameters(shape_from_config(config).shape).total
    except ImpossibleProblemError:
        return
    assert total > 0
