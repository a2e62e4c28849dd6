"""Caches and states of models whose layers are not alike, against what their authors publish."""

import json
from dataclasses import replace
from typing import Any

import pytest

from data.base.errors import ImpossibleProblemError
from planner.memory.estimate.predictor import predict_peak
from planner.memory.models.model_config import shape_from_config
from planner.memory.models.parameters import count_parameters
from planner.memory.step.training_job import Method, Parallelism, TrainingJob

KIB, GIB = 2**10, 2**30
SIZES: dict[str, Any] = {"vocab_size": 1000, "intermediate_size": 4096}


def llama_like(**keys: Any) -> dict[str, Any]:
    """A config with small sizes for what a test does not look at."""
    return {"model_type": "llama", **SIZES, **keys}


QWEN35_27B = {
    "model_type": "qwen3_5_text", "attn_output_gate": True, "full_attention_interval": 4,
    "head_dim": 256, "hidden_size": 5120, "intermediate_size": 17408, "num_hidden_layers": 64,
    "num_attention_heads": 24, "num_key_value_heads": 4, "vocab_size": 248320,
    "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128, "linear_num_key_heads": 16,
    "linear_num_value_heads": 48, "linear_value_head_dim": 128, "tie_word_embeddings": False,
}  # fmt: skip
GPT_OSS_20B = {
    "model_type": "gpt_oss", "hidden_size": 2880, "intermediate_size": 2880, "head_dim": 64,
    "num_hidden_layers": 24, "num_attention_heads": 64, "num_key_value_heads": 8,
    "num_local_experts": 32, "num_experts_per_tok": 4, "vocab_size": 201088,
    "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 12,
}  # fmt: skip
GEMMA3_27B = {
    "model_type": "gemma3_text", "hidden_size": 5376, "intermediate_size": 21504, "head_dim": 128,
    "num_hidden_layers": 62, "num_attention_heads": 32, "num_key_value_heads": 16,
    "vocab_size": 262208, "sliding_window": 1024,
}  # fmt: skip
GEMMA4_31B = {
    "model_type": "gemma4_text", "hidden_size": 5376, "intermediate_size": 21504, "head_dim": 256,
    "num_hidden_layers": 60, "num_attention_heads": 32, "num_key_value_heads": 16,
    "num_global_key_value_heads": 4, "global_head_dim": 512, "vocab_size": 262144,
    "sliding_window": 1024,
    "layer_types": (["sliding_attention"] * 5 + ["full_attention"]) * 10,
}  # fmt: skip
NEMOTRON_H_8B = {
    "model_type": "nemotron_h", "hidden_size": 4096, "intermediate_size": 21504, "head_dim": 128,
    "num_hidden_layers": 52, "num_attention_heads": 32, "num_key_value_heads": 8,
    "mamba_num_heads": 128, "mamba_head_dim": 64, "n_groups": 8, "ssm_state_size": 128,
    "conv_kernel": 4, "vocab_size": 131072, "tie_word_embeddings": False,
    "hybrid_override_pattern": "M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
}  # fmt: skip
JAMBA = {
    "model_type": "jamba", "hidden_size": 4096, "intermediate_size": 14336,
    "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
    "attn_layer_period": 8, "attn_layer_offset": 4, "mamba_d_conv": 4, "mamba_d_state": 16,
    "mamba_expand": 2, "vocab_size": 65536,
}  # fmt: skip
MISTRAL = llama_like(
    model_type="mistral", hidden_size=4096, num_hidden_layers=32, num_attention_heads=32,
    num_key_value_heads=8, sliding_window=4096,
)  # fmt: skip
DEEPSEEK_V3 = llama_like(
    model_type="deepseek_v3", hidden_size=7168, num_hidden_layers=61, num_attention_heads=128,
    num_key_value_heads=128, kv_lora_rank=512, q_lora_rank=1536, qk_nope_head_dim=128,
    qk_rope_head_dim=64, v_head_dim=128,
)  # fmt: skip
KIMI_LINEAR = llama_like(
    model_type="kimi_linear", hidden_size=2304, num_hidden_layers=27, num_attention_heads=32,
    num_key_value_heads=32, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64,
    v_head_dim=128,
    linear_attn_config={
        "full_attn_layers": [4, 8, 12, 16, 20, 24, 27], "head_dim": 128, "num_heads": 32,
        "short_conv_kernel_size": 4,
        "kda_layers": [index for index in range(1, 28) if index % 4 and index != 27],
    },
)  # fmt: skip


def held(config: dict[str, Any], tokens: int, *, tensor: int = 1, each: float = 2.0) -> float:
    """Bytes that one sequence keeps on a GPU."""
    job = TrainingJob(
        shape=shape_from_config(config).shape, framework="vllm", method=Method.INFERENCE,
        micro_batch=1, sequence_length=tokens, prefill_tokens=1, cache_bytes=each,
        parallelism=Parallelism(tensor=tensor),
    )  # fmt: skip
    return dict(predict_peak(job).breakdown)["key-value cache"]


@pytest.mark.parametrize(
    ("config", "tokens", "published"),
    [
        # Jamba, arXiv 2403.19887, table 1: 4 GB at 256K, against 32 GB of Mistral without window.
        (JAMBA, 256 * KIB, 4 * GIB),
        ({**MISTRAL, "sliding_window": None}, 256 * KIB, 32 * GIB),
        # Mistral 7B, arXiv 2310.06825, section 2: at 32k tokens the window saves a factor of 8.
        (MISTRAL, 32 * KIB, 4 * GIB / 8),
        # DeepSeek-V3, arXiv 2412.19437 with V2's 576 elements a layer: 70.272 KB a token.
        (DEEPSEEK_V3, 1000, 70_272_000),
        # gpt-oss, OpenAI's model card: every second layer keeps 128 tokens.
        (GPT_OSS_20B, 128 * KIB, 12 * 2048 * 128 * KIB),
    ],
)
def test_a_sequence_keeps_what_the_authors_publish(
    config: dict[str, Any], tokens: int, published: float
) -> None:
    """Within two per cent: windows and states are beside the tokens of the full layers."""
    assert held(config, tokens) == pytest.approx(published, rel=0.02)


def test_the_state_is_what_an_engine_made_its_blocks_of() -> None:
    """VLLM 0.19 rounds a state of Qwen3.5-27B to a block of 784 tokens of 4 KiB a layer.

    vllm-project/vllm#40691 prints 290,864 tokens in four groups of 371 such blocks, and 33.04
    sequences of 32,768 tokens: 42 blocks of attention and one of each of three groups of states.
    """
    (state,) = [kind for kind in shape_from_config(QWEN35_27B).shape.kinds if kind.state]
    assert -(-state.state // (16 * 4 * KIB)) * 16 == 784
    block = 16 * 784 * 4 * KIB
    assert held(QWEN35_27B, 32_768) == pytest.approx(45 * block, rel=0.01)
    assert 290_864 / 784 == 371
    assert pytest.approx(33.04, abs=0.01) == (4 * 371 + 3) / 45


@pytest.mark.parametrize(
    ("config", "billions"),
    [(QWEN35_27B, 26.9), (GPT_OSS_20B, 20.9), (GEMMA3_27B, 27.0), (NEMOTRON_H_8B, 8.1), (JAMBA | {
        "num_experts": 16, "num_experts_per_tok": 2, "expert_layer_period": 2,
        "expert_layer_offset": 1}, 51.6)],
)  # fmt: skip
def test_layers_of_every_kind_have_their_own_matrices(
    config: dict[str, Any], billions: float
) -> None:
    """Published parameters within two per cent."""
    counted = count_parameters(shape_from_config(config).shape).total
    assert counted == pytest.approx(1e9 * billions, rel=0.02)


def test_windows_of_gemma_are_worth_what_an_engine_found() -> None:
    """Gemma 4 31B holds 9.5 times the tokens with its windows (vllm-project/vllm#43308).

    Without them every layer was padded to the sixteen heads of the layers with windows.
    """
    padded = 60 * 2 * 16 * 256 * 2
    assert padded / (held(GEMMA4_31B, 262_144) / 262_144) == pytest.approx(9.5, rel=0.25)
    full = 62 * 2 * 16 * 128 * 2 * 128 * KIB
    assert held(GEMMA3_27B, 128 * KIB) / full == pytest.approx(10 / 62, rel=0.1)


def test_linear_layers_keep_a_quarter() -> None:
    """Kimi Linear keeps up to 75 % less than full attention (arXiv 2510.26692, abstract)."""
    plain = {key: value for key, value in KIMI_LINEAR.items() if key != "linear_attn_config"}
    assert held(KIMI_LINEAR, KIB * KIB) / held(plain, KIB * KIB) == pytest.approx(0.25, abs=0.02)


def test_ranks_share_out_heads_and_states() -> None:
    """Four ranks hold a quarter each; a latent cache is whole on each."""
    assert held(QWEN35_27B, 4096, tensor=4) == held(QWEN35_27B, 4096) / 4
    assert held(DEEPSEEK_V3, 4096, tensor=4) == held(DEEPSEEK_V3, 4096)


def test_layers_that_share_keys_keep_none() -> None:
    """The last layers of Gemma 3n take them from earlier ones, every second of Hunyuan too."""
    plain = llama_like(
        hidden_size=512, num_hidden_layers=30, num_attention_heads=8, layer_types=None
    )
    assert held(plain | {"num_kv_shared_layers": 10}, 100) == held(plain, 100) * 20 / 30
    assert held(plain | {"use_cla": True, "cla_share_factor": 2}, 100) == held(plain, 100) / 2
    assert held(plain, 100, each=1.0) == held(plain, 100) / 2


def test_a_window_is_held_with_the_chunk_that_passes_it() -> None:
    """During its prefill a sequence has the window and one chunk, never more than its length."""
    shape = shape_from_config(MISTRAL).shape
    job = TrainingJob(
        shape=shape, framework="vllm", method=Method.INFERENCE, micro_batch=1,
        sequence_length=32768, prefill_tokens=8192,
    )  # fmt: skip
    for length, tokens in ((32768, 4096 + 8192), (4096, 4096)):
        parts = dict(predict_peak(replace(job, sequence_length=length)).breakdown)
        assert parts["key-value cache"] == tokens * 32 * 4 * KIB


def test_a_word_for_layers_that_is_not_known_is_refused() -> None:
    """It is neither attention nor a state."""
    config = llama_like(hidden_size=512, num_hidden_layers=2, num_attention_heads=8)
    with pytest.raises(ImpossibleProblemError, match=r"layer_types has 'fnord'"):
        shape_from_config(config | {"layer_types": ["full_attention", "fnord"]})


def test_layers_that_are_alike_have_no_kinds() -> None:
    """A list of full attention says nothing."""
    config = llama_like(hidden_size=512, num_hidden_layers=2, num_attention_heads=8)
    for more in ({}, {"layer_types": ["full_attention"] * 2}):
        assert shape_from_config(json.loads(json.dumps(config | more))).shape.kinds == ()


@pytest.mark.parametrize("value", ["4", True, 1.5, [4], {"a": 1}])
@pytest.mark.parametrize(
    ("config", "key"),
    [
        (QWEN35_27B, "full_attention_interval"),
        (QWEN35_27B, "linear_num_value_heads"),
        (GPT_OSS_20B, "sliding_window"),
        (GPT_OSS_20B, "num_kv_shared_layers"),
        (GEMMA4_31B, "global_head_dim"),
        (JAMBA, "attn_layer_period"),
        (JAMBA, "attn_layer_offset"),
        (JAMBA, "mamba_expand"),
    ],
    ids=lambda value: value if isinstance(value, str) else value["model_type"],
)
def test_a_rule_that_is_no_number_is_refused(
    config: dict[str, Any], key: str, value: object
) -> None:
    """It is not taken for a rule that is not stated: the error names the key and its value."""
    with pytest.raises(ImpossibleProblemError, match=key):
        shape_from_config({**config, key: value})


@pytest.mark.parametrize(
    "more",
    [
        {"linear_attn_config": {"full_attn_layers": 5}},
        {"linear_attn_config": {"full_attn_layers": ["5"]}},
        {"attn_layer_indices": "5"},
        {"attn_layer_indices": [0.5]},
        {"layer_types": 5},
        {"layers_block_type": {"0": "attention"}},
    ],
)
def test_layers_of_attention_that_are_not_told_by_number_are_refused(more: dict[str, Any]) -> None:
    """They are not taken for layer 0, nor for a model whose layers are alike."""
    with pytest.raises(ImpossibleProblemError, match="layer"):
        shape_from_config({**JAMBA, "attn_layer_period": None, **more})


@pytest.mark.parametrize("value", [None, False, 0, -1])
def test_a_window_may_be_switched_off(value: object) -> None:
    """Null, false, 0 and -1 all say that no layer has one."""
    off = {**GEMMA3_27B, "sliding_window": value}
    without = {key: entry for key, entry in GEMMA3_27B.items() if key != "sliding_window"}
    assert shape_from_config(off).shape.kinds == shape_from_config(without).shape.kinds
