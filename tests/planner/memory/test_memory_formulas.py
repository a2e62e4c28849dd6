"""Published formulas give their published values."""

import math

import pytest

from benchmarks._marp_paper import marp_parameters, marp_peak_bytes, marp_plans
from benchmarks.memory_peers import deepspeed_zero2_bytes, deepspeed_zero3_bytes
from planner.memory.models.model_shape import ModelShape
from planner.memory.models.model_sizes import known_model

GIB = 2**30
GPT3 = ModelShape(
    name="gpt3", layers=96, hidden=12288, heads=96, kv_heads=96, head_dim=128, ffn=49152,
    vocab=51200, gated_mlp=False, norm_vectors=2, tied_embeddings=True, qkv_bias=True,
    output_bias=True, mlp_bias=True,
)  # fmt: skip


def test_deepspeed_zero2_gives_the_documented_memory() -> None:
    """2,851 million parameters on 8 GPUs: 15.93 GiB, with the optimiser offloaded 5.31 GiB."""
    assert deepspeed_zero2_bytes(2_851e6, gpus=8) / GIB == pytest.approx(15.93, abs=0.005)
    assert deepspeed_zero2_bytes(2_851e6, gpus=8, offload=True) / GIB == pytest.approx(
        5.31, abs=0.005
    )


def test_deepspeed_zero3_gives_the_documented_memory() -> None:
    """2,851 million parameters with a largest layer of 32 million on 8 GPUs: 6.09 GiB."""
    found = deepspeed_zero3_bytes(2_851e6, 32e6, gpus=8)
    assert found / GIB == pytest.approx(6.09, abs=0.01)
    small = deepspeed_zero3_bytes(737.67e6, 32.9e6, gpus=4)
    assert small / 2**20 == pytest.approx(3291, abs=1)


def test_marp_counts_parameters_as_the_paper_does() -> None:
    """W = V h + l (12 h² + 13 h): 174.6 billion for GPT-3 with a vocabulary of 51,200."""
    assert marp_parameters(GPT3) == 51200 * 12288 + 96 * (12 * 12288**2 + 13 * 12288)
    assert marp_parameters(GPT3) == pytest.approx(174.6e9, rel=1e-3)


@pytest.mark.parametrize("tensor", [1, 2, 8])
def test_marp_peak_is_the_published_sum(tensor: int) -> None:
    """20 W / t + s b h l (10 + 24/t + 5 a s / (h t)), term by term."""
    s, b, h, a, layers = 2048, 4, 12288, 96, 96
    expected = 20 * marp_parameters(GPT3) / tensor
    expected += s * b * h * layers * (10 + 24 / tensor + 5 * a * s / (h * tensor))
    found = marp_peak_bytes(GPT3, sequence_length=s, micro_batch=b, tensor=tensor)
    assert found == pytest.approx(expected)


def test_marp_lists_only_plans_that_fit_and_divide_the_batch() -> None:
    """Every plan fits each of its GPU types, divides the batch, and keeps to the node."""
    model = known_model("gpt-neo-2.7b")
    sizes = {"A100-SXM4-80GB": 80e9, "A100-SXM4-40GB": 40e9}
    plans = marp_plans(
        model,
        sequence_length=1024,
        global_batch=16,
        gpu_memory_bytes=sizes,
        gpus_per_node=8,
        max_gpus=64,
    )
    assert plans
    for plan in plans:
        assert all(sizes[name] >= plan.needed_bytes for name in plan.gpu_types)
        assert 16 % (plan.micro_batch * plan.data) == 0
        assert plan.tensor <= 8
        assert math.log2(plan.tensor).is_integer()
        assert plan.gpus == plan.tensor * plan.data


def test_marp_ranks_large_batches_and_little_tensor_parallelism_first() -> None:
    """The first plan has the largest micro-batch of all, at the least tensor parallelism."""
    plans = marp_plans(
        known_model("gpt-neo-2.7b"),
        sequence_length=1024,
        global_batch=16,
        gpu_memory_bytes={"A100-SXM4-80GB": 80e9},
        gpus_per_node=8,
        max_gpus=64,
    )
    assert plans[0].micro_batch == max(plan.micro_batch for plan in plans)


def test_a_model_too_large_for_every_gpu_has_no_published_plan() -> None:
    """Where no GPU type holds the model, the list is empty."""
    plans = marp_plans(
        GPT3,
        sequence_length=2048,
        global_batch=8,
        gpu_memory_bytes={"A10-24GB": 24e9},
        gpus_per_node=8,
        max_gpus=8,
    )
    assert plans == ()
