"""What sharding gathers: weights whole for a while, beside shares of everything."""

from dataclasses import replace

import pytest
from training_cases import STATED

from planner.memory.estimate.predictor import predict_peak
from planner.memory.models.parameters import count_parameters
from planner.memory.step.assumptions import complete
from planner.memory.step.step_events import step_events
from planner.memory.step.training_job import (
    Adapter,
    Method,
    Parallelism,
    Recompute,
    Sharding,
    TrainingJob,
)


def test_keeping_gathered_weights_needs_more() -> None:
    """SHARD_GRAD_OP holds all weights between forward and backward, so it needs more."""
    few, many = (
        predict_peak(
            replace(STATED, parallelism=Parallelism(data=8, sharding=entry))
        ).allocated_bytes
        for entry in (Sharding.FSDP, Sharding.FSDP_GRADIENTS)
    )
    assert many > few


@pytest.mark.parametrize("precision", ["bf16-true", "amp"])
@pytest.mark.parametrize("framework", ["transformers", "pytorch", "litgpt", "llm_foundry"])
def test_gathered_weights_are_kept_once_in_16_bit(framework: str, precision: str) -> None:
    """SHARD_GRAD_OP shares out what FSDP does, and between the passes holds the weights whole.

    Its words in torch.distributed.fsdp.ShardingStrategy.
    """
    job = replace(STATED, framework=framework, precision=precision, recompute=Recompute.FULL)
    full, kept = (
        dict(events_of(replace(job, parallelism=Parallelism(data=8, sharding=entry))))
        for entry in (Sharding.FSDP, Sharding.FSDP_GRADIENTS)
    )
    for name in ("forward", "recompute", "backward", "optimizer"):
        assert kept[name] - full[name] <= 2 * count_parameters(STATED.shape).total


def test_gathered_weights_of_four_bits_stay_so() -> None:
    """What SHARD_GRAD_OP holds of a quantised base is no more than one GPU would load of it."""
    job = replace(
        STATED, framework="fsdp_qlora", method=Method.ADAPTER, adapter=Adapter(rank=8),
        quantization="nf4", precision="bf16-true",
    )  # fmt: skip
    alone, kept = (
        predict_peak(replace(job, parallelism=spread)).allocated_bytes
        for spread in (Parallelism(), Parallelism(data=8, sharding=Sharding.FSDP_GRADIENTS))
    )
    assert kept < 1.3 * alone


def events_of(job: TrainingJob) -> list[tuple[str, float]]:
    """Return the allocated bytes of each event of a job."""
    return [(event.name, event.allocated_bytes) for event in step_events(complete(job))]
