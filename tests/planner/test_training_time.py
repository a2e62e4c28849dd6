"""How long a run takes: arithmetic over speed, as a range."""

from dataclasses import replace

import pytest

from planner.memory.estimate.training_plans import (
    GpuType,
    PlanQuestion,
    TrainingPlan,
    training_plans,
)
from planner.memory.estimate.training_time import flops_per_token, hours_range
from planner.memory.models.model_shape import ExpertLayers
from planner.memory.models.model_sizes import known_model
from planner.memory.step.training_job import Method, TrainingJob

H100 = GpuType(name="H100-SXM5-80GB", memory_bytes=80e9, relative_speed=2.6, price_per_hour=2.5)
LLAMA = known_model("llama3-8b")


@pytest.fixture(scope="module")
def plan() -> TrainingPlan:
    """The first plan of Llama-3-8B on at most eight H100."""
    question = PlanQuestion(
        job=TrainingJob(shape=LLAMA, sequence_length=4096, optimizer="adamw", length_varies=False),
        global_batch=64,
        gpu_types=(H100,),
        max_gpus=8,
    )
    return training_plans(question)[0]


def test_a_token_costs_six_operations_per_parameter_and_the_scores() -> None:
    """Llama-3-8B without its embedding's look-up: 6 x 7.5e9, and 12 l h s for attention."""
    counted = 8_030_261_248 - 128_256 * 4096
    expected = 6 * counted + 12 * 32 * 4096 * 4096
    assert flops_per_token(LLAMA, Method.FULL, 4096) == pytest.approx(expected)


def test_frozen_weights_cost_a_third_less() -> None:
    """An adapter's backward pass makes no gradients of the frozen weights."""
    full = flops_per_token(LLAMA, Method.FULL, 1)
    assert flops_per_token(LLAMA, Method.ADAPTER, 1) == pytest.approx(full * 4 / 6, rel=1e-3)


def test_idle_experts_cost_nothing() -> None:
    """Of eight experts with two per token a quarter works."""
    experts = ExpertLayers(experts=8, experts_per_token=2, ffn=14_336)
    sparse = replace(LLAMA, experts=experts)
    all_work = replace(sparse, experts=replace(experts, experts_per_token=8))
    routed = 32 * 8 * 3 * 4096 * 14_336
    saved = flops_per_token(all_work, Method.FULL, 1) - flops_per_token(sparse, Method.FULL, 1)
    assert saved == pytest.approx(6 * routed * 3 / 4)


def test_hours_grow_with_tokens_and_fall_with_speed(plan: TrainingPlan) -> None:
    """Twice the tokens take twice as long, twice the speed half; the range is a factor 2.25."""
    low, high = hours_range(plan, 1e9)
    assert high == pytest.approx(2.25 * low)
    assert hours_range(plan, 2e9) == pytest.approx((2 * low, 2 * high))
    assert hours_range(replace(plan, speed=2 * plan.speed), 1e9) == pytest.approx(
        (low / 2, high / 2)
    )
