"""What is expected of a framework that nobody measured."""

from dataclasses import replace

import pytest
from training_cases import STATED

from planner.memory.estimate.bounds import Tier
from planner.memory.estimate.predictor import predict_peak
from planner.memory.step.framework_prior import dialects_of, quantile_index, situation_of
from planner.memory.step.framework_traits import (
    framework_traits,
    known_frameworks,
    similar_frameworks,
)
from planner.memory.step.training_job import Adapter, Method, Parallelism, Sharding, TrainingJob

FSDP = Parallelism(data=8, sharding=Sharding.FSDP)


@pytest.mark.parametrize(
    ("changes", "situation"),
    [
        ({}, "replicated"),
        ({"parallelism": Parallelism(data=8)}, "replicated"),
        ({"parallelism": Parallelism(pipeline=2, sequential=True)}, "replicated"),
        ({"parallelism": FSDP}, "fsdp"),
        ({"parallelism": Parallelism(data=8, sharding=Sharding.ZERO3)}, "zero"),
        ({"parallelism": Parallelism(tensor=2, sharding=Sharding.ZERO1)}, "model-parallel"),
        ({"method": Method.ADAPTER, "adapter": Adapter(), "parallelism": FSDP}, "adapter"),
    ],
)
def test_the_situation_is_what_frameworks_are_chosen_for(
    changes: dict[str, object], situation: str
) -> None:
    """Adapters first, then model parallelism, then how states are shared out."""
    assert situation_of(replace(STATED, **changes)) == situation  # type: ignore[arg-type]


def test_a_measured_framework_speaks_for_itself() -> None:
    """The traits of a framework that was measured are taken alone; so is the textbook's dialect."""
    for name in ("torchtitan", "generic"):
        assert dialects_of(replace(STATED, framework=name)) == ((framework_traits(name), 1.0),)


def test_an_estimate_without_a_framework_lies_inside_those_of_the_dialects() -> None:
    """Each figure lies between the dialects'; half or more of their weight lies above it."""
    job = replace(STATED, framework="", parallelism=FSDP)
    dialects = dialects_of(job)
    alone = [
        (predict_peak(job, dialects=(dialect,)).nvml_bytes, dialect[1]) for dialect in dialects
    ]
    found = predict_peak(job).nvml_bytes
    assert min(alone)[0] < found < max(alone)[0]
    above = sum(weight for size, weight in alone if size > found)
    assert above > sum(weight for _, weight in alone) / 2


def test_a_framework_never_measured_leans_to_what_is_recalled_of_it() -> None:
    """Full training on one GPU: recalled fp32 weights need more than recalled bf16 ones."""
    sizes = [
        predict_peak(replace(STATED, framework=name)).allocated_bytes for name in ("axolotl", "trl")
    ]
    assert sizes[0] < sizes[1]
    assert predict_peak(replace(STATED, framework="trl")).tier is Tier.C


def test_what_is_left_out_lends_nothing() -> None:
    """A framework whose runs are left out keeps its code's traits, and loses those chosen."""
    unseen = similar_frameworks("qwen")
    assert unseen == {"qwen", "qwen_deepspeed"}
    job = replace(STATED, framework="qwen")
    found = dialects_of(job, unseen=unseen)
    assert found[0][0] == framework_traits("qwen", measured=False)
    assert found[0][0].layer_buffer_bytes == 0 < framework_traits("qwen").layer_buffer_bytes
    assert not unseen & {traits.name for traits, _ in found[1:]}
    assert "framework" in predict_peak(job, dialects=found).missing


def test_more_tokens_need_more_without_a_framework() -> None:
    """Weights of dialects do not depend on the job's size, so no figure falls as it grows."""
    small = TrainingJob(shape=STATED.shape, micro_batch=1, sequence_length=128)
    sizes = [predict_peak(replace(small, sequence_length=2**power)) for power in range(7, 18)]
    for figure in ("allocated_bytes", "reserved_bytes", "nvml_bytes"):
        values = [getattr(found, figure) for found in sizes]
        assert values == sorted(values)


def test_the_quantile_counts_weights() -> None:
    """Of three estimates the heaviest is taken when it alone passes the quantile."""
    assert quantile_index([3.0, 1.0, 2.0], [1.0, 1.0, 1.0]) == 2
    assert quantile_index([3.0, 1.0, 2.0], [5.0, 1.0, 1.0]) == 0


def test_every_situation_has_frameworks() -> None:
    """Three or more frameworks are used for each, so no single one decides."""
    words = [word for name in known_frameworks() for word in framework_traits(name).used_for]
    for situation in ("adapter", "replicated", "fsdp", "zero", "model-parallel"):
        assert words.count(situation) >= 3
