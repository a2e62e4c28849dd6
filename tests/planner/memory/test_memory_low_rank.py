"""Optimisers that keep the moments of projected gradients."""

from dataclasses import replace

import pytest

from planner.memory.estimate.predictor import predict_peak
from planner.memory.models.model_sizes import known_model
from planner.memory.step.adapters import low_rank_share
from planner.memory.step.training_job import Recompute, TrainingJob

JOB = TrainingJob(
    shape=known_model("llama2-7b"), framework="generic", precision="bf16-true", micro_batch=1,
    sequence_length=256, length_varies=False, optimizer="galore", optimizer_rank=1024,
    recompute=Recompute.FULL,
)  # fmt: skip


def parts(**changes: object) -> dict[str, float]:
    """The breakdown of the job at its peak."""
    return dict(predict_peak(replace(JOB, **changes)).breakdown)  # type: ignore[arg-type]


def test_states_are_those_of_the_paper() -> None:
    """Rank 1,024 of Llama-7B in bf16: m r + 2 n r for each matrix, two moments for the rest."""
    square, wide = 3 * 1024 * 4096, 1024 * 4096 + 2 * 1024 * 11008
    layer, rest = 4 * square + 3 * wide, 2 * 32000 * 4096 + 65 * 4096
    expected = 2 * (32 * layer + 2 * rest)
    assert parts()["optimizer states"] == pytest.approx(expected)


def test_a_rank_beyond_the_width_is_no_more_than_adam() -> None:
    """What is kept never exceeds two moments of the matrix itself, and grows with the rank."""
    shape = JOB.shape
    assert low_rank_share(shape, 10**6) == 2.0
    assert 0 < low_rank_share(shape, 16) < low_rank_share(shape, 128) < 0.2


def test_layer_by_layer_one_gradient_lives_at_a_time() -> None:
    """8-bit GaLore of 7B, layer by layer, batch of 256 tokens: below the 24 GB of its paper."""
    found = predict_peak(replace(JOB, optimizer="galore8bit_in_backward"))
    assert 17e9 < found.nvml_bytes < 24e9
    whole = predict_peak(replace(JOB, optimizer="galore8bit"))
    assert whole.allocated_bytes - found.allocated_bytes > 2 * 5e9


def test_the_rank_is_named_where_it_was_assumed() -> None:
    """It decides little and so does not lower the tier."""
    found = predict_peak(replace(JOB, optimizer_rank=None))
    assert "optimizer_rank = 128" in found.assumed
    assert "optimizer_rank" not in found.missing
