"""Engines that serve, models beside an actor, states in the host: each by its own arithmetic."""

from dataclasses import replace

import pytest

from planner.memory.estimate.predictor import MemoryEstimate, predict_peak
from planner.memory.models.model_sizes import known_model
from planner.memory.models.parameters import count_parameters
from planner.memory.step.training_job import (
    Companions,
    Method,
    Parallelism,
    Recompute,
    Sharding,
    TrainingJob,
)

GIB = 2**30
LLAMA = known_model("llama3-8b")
SERVED = TrainingJob(
    shape=LLAMA, framework="vllm", method=Method.INFERENCE, micro_batch=64, sequence_length=8192,
    prefill_tokens=8192,
)  # fmt: skip
ACTOR = TrainingJob(
    shape=LLAMA, framework="torchtitan", micro_batch=1, sequence_length=2048, optimizer="adamw",
    recompute=Recompute.FULL, length_varies=False, gradient_accumulation=2,
    parallelism=Parallelism(data=8, sharding=Sharding.FSDP),
)  # fmt: skip


def parts(estimate: MemoryEstimate) -> dict[str, float]:
    """The components at the binding event."""
    return dict(estimate.breakdown)


def test_a_chunk_is_computed_at_a_time_and_all_tokens_are_cached() -> None:
    """64 x 8k of Llama-3-8B: 15 GiB of weights, 64 of cache, and one chunk's activations."""
    found = parts(predict_peak(SERVED))
    assert found["key-value cache"] == 64 * 8192 * 2 * 2 * 1024 * 32
    assert found["activations"] == 8192 * 2 * (4 * 4096 + 3 * 14336)
    whole = parts(predict_peak(replace(SERVED, prefill_tokens=None)))
    assert whole["activations"] == 64 * found["activations"]
    short = parts(predict_peak(replace(SERVED, micro_batch=1, sequence_length=100)))
    assert short["activations"] == 100 * 2 * (4 * 4096 + 3 * 14336)


@pytest.mark.parametrize(("tensor", "share"), [(1, 1), (2, 2), (8, 8), (16, 8), (32, 8)])
def test_ranks_share_out_key_value_heads(tensor: int, share: int) -> None:
    """Eight key-value heads go to at most eight ranks; more ranks hold copies."""
    one = parts(predict_peak(SERVED))["key-value cache"]
    job = replace(SERVED, parallelism=Parallelism(tensor=tensor))
    assert parts(predict_peak(job))["key-value cache"] == one / share


def test_an_eight_bit_cache_is_half() -> None:
    """`cache_bytes` of 1 instead of 2."""
    one = parts(predict_peak(SERVED))["key-value cache"]
    assert parts(predict_peak(replace(SERVED, cache_bytes=1.0)))["key-value cache"] == one / 2


@pytest.mark.parametrize("stage", [Sharding.ZERO2, Sharding.ZERO3])
def test_gradients_follow_an_offloaded_optimizer(stage: Sharding) -> None:
    """ZeRO-Offload keeps 2 bytes per parameter on the GPU in stage 2, and its share in stage 3."""
    job = replace(
        ACTOR, framework="transformers_deepspeed", offload=frozenset({"optimizer"}),
        parallelism=Parallelism(data=8, sharding=stage),
    )  # fmt: skip
    found = parts(predict_peak(job))
    ranks = 8 if stage is Sharding.ZERO3 else 1
    assert found["weights"] == 2 * count_parameters(LLAMA).total / ranks
    assert "gradients" not in found
    assert "optimizer states" not in found


def test_stage_one_keeps_its_gradients() -> None:
    """ZeRO-1 reduces gradients whole, so that they stay."""
    job = replace(
        ACTOR, framework="transformers_deepspeed", offload=frozenset({"optimizer"}),
        parallelism=Parallelism(data=8, sharding=Sharding.ZERO1),
    )  # fmt: skip
    assert parts(predict_peak(job))["gradients"] == 2 * count_parameters(LLAMA).total


def test_models_beside_the_actor_are_counted() -> None:
    """A frozen one has the actor's weights, a trained one its states and gradients as well."""
    alone = predict_peak(ACTOR)
    reference = predict_peak(replace(ACTOR, companions=Companions(frozen=2)))
    weights = 4 * count_parameters(LLAMA).total / 8
    assert reference.allocated_bytes - alone.allocated_bytes == pytest.approx(2 * weights)
    critic = predict_peak(replace(ACTOR, companions=Companions(trained=1)))
    found = parts(critic)
    assert found["critic"] == pytest.approx(3 * weights)
    assert critic.allocated_bytes >= alone.allocated_bytes + 3 * weights


def test_an_engine_that_sleeps_leaves_its_memory_to_the_training() -> None:
    """It binds while it samples only where it is larger than what training adds."""
    alone = predict_peak(ACTOR).allocated_bytes
    awake = predict_peak(replace(ACTOR, companions=Companions(engine_bytes=4 * GIB)))
    assert awake.allocated_bytes == pytest.approx(alone + 4 * GIB)
    asleep = Companions(engine_bytes=4 * GIB, engine_sleeps=True)
    assert predict_peak(replace(ACTOR, companions=asleep)).allocated_bytes == alone
    large = predict_peak(
        replace(ACTOR, companions=Companions(engine_bytes=60 * GIB, engine_sleeps=True))
    )
    assert large.binding_event == "rollout"
    assert large.allocated_bytes == pytest.approx(
        60 * GIB + sum(size for name, size in large.breakdown if name != "rollout engine")
    )
    assert "logits and loss" not in parts(large)
