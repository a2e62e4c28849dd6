"""A config.json says in how many bits its weights are stored, and that is read or named."""

from typing import Any

import pytest

from planner.memory.models.model_config import shape_from_config
from planner.memory.step.framework_traits import quantization

LLAMA: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "intermediate_size": 128, "vocab_size": 1000,
    "tie_word_embeddings": False,
}  # fmt: skip


def packed(bits: Any, kind: str = "int") -> dict[str, Any]:
    """Return what compressed-tensors writes of weights of one width."""
    weights = {"num_bits": bits, "type": kind}
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": weights}},
    }


@pytest.mark.parametrize(
    ("stated", "name"),
    [
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8"),
        ({"quant_method": "awq", "bits": 4}, "awq-int4"),
        ({"quant_method": "gptq", "bits": 4}, "gptq-int4"),
        ({"quant_method": "gptq", "bits": 8}, "gptq-int8"),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True}, "int8"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True}, "nf4"),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True,
          "bnb_4bit_use_double_quant": True}, "nf4-dq"),
        (packed(8, "float"), "fp8"),
        (packed(4), "gptq-int4"),
        ({"quant_method": "mxfp4"}, "mxfp4"),
    ],
)  # fmt: skip
def test_what_the_weights_are_stored_in_is_read(stated: dict[str, Any], name: str) -> None:
    """By the names of `--quantization`, and the notes say so."""
    model = shape_from_config({**LLAMA, "quantization_config": stated})
    assert model.quantization == name
    assert quantization(name).bytes < 2
    assert any(f"is read as {name}" in note for note in model.assumed)


@pytest.mark.parametrize(
    "stated",
    [
        {}, None, "fp8", 7, [], {"quant_method": "hqq"}, {"quant_method": "gptq", "bits": 3},
        {"quant_method": "awq", "bits": "4"}, {"quant_method": ["fp8"]}, packed(4, "float"),
        {"quant_method": "bitsandbytes"}, {"quant_method": "compressed-tensors"},
        {"quant_method": "compressed-tensors", "config_groups": {"a": {"weights": 1}, "b": 2}},
    ],
)  # fmt: skip
def test_a_method_that_is_not_known_is_named(stated: Any) -> None:
    """Weights are then 16 bit; nothing is said of a config that states none."""
    model = shape_from_config({**LLAMA, "quantization_config": stated})
    assert model.quantization == ""
    said = [note for note in model.assumed if "ignored: weights are taken as 16 bit" in note]
    assert len(said) == (stated is not None)
