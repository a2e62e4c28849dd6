"""Jobs that cannot be, or do not fit, are refused with the words that help."""

from dataclasses import replace
from typing import Any

import pytest
from training_cases import GIB, LLAMA, STATED

from data.base.errors import ImpossibleProblemError
from planner.memory.estimate.bounds import Tier
from planner.memory.estimate.predictor import predict_peak, refusal
from planner.memory.models.model_shape import ExpertLayers, ModelShape
from planner.memory.models.model_sizes import known_model
from planner.memory.step.training_job import Adapter, Method, Parallelism


def test_stage_sizes_must_match_the_stages() -> None:
    """Three stage sizes for four stages are refused."""
    with pytest.raises(ImpossibleProblemError, match="3 stage sizes for 4"):
        Parallelism(pipeline=4, stage_layers=(1, 1, 1))


def test_an_unknown_model_name_is_refused_with_the_known_ones() -> None:
    """The error lists what could have been meant."""
    with pytest.raises(ImpossibleProblemError, match="llama3-8b"):
        known_model("llama9-1b")


def test_a_job_that_does_not_fit_is_refused_with_its_largest_part() -> None:
    """The refusal names the event, both sizes and the largest component."""
    found = predict_peak(STATED)
    assert refusal(found, 200 * GIB) == ""
    words = refusal(found, 24 * GIB)
    assert found.binding_event in words
    assert "the GPU has 24 GiB" in words
    assert max(found.breakdown, key=lambda part: part[1])[0] in words


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"parallelism": Parallelism(tensor=3)}, "32 heads over 3"),
        ({"parallelism": Parallelism(pipeline=64)}, "32 layers over 64"),
        ({"parallelism": Parallelism(expert=2)}, "no experts"),
        ({"micro_batch": 0}, "micro_batch"),
        ({"sequence_length": -4}, "sequence_length"),
        ({"gpu_memory_bytes": float("nan")}, "gpu_memory_bytes"),
        ({"sequence_length": 10**400}, "sequence_length is beyond"),
    ],
)
def test_a_job_that_cannot_be_is_refused(changes: dict[str, Any], words: str) -> None:
    """The error names what cannot be and what would."""
    with pytest.raises(ImpossibleProblemError, match=words):
        replace(STATED, **changes)


@pytest.mark.parametrize(
    ("spread", "words"),
    [
        (Parallelism(data=8, expert=16), "16 expert-parallel GPUs of 8"),
        (Parallelism(data=3, expert=2), "2 expert-parallel GPUs of 3"),
        (Parallelism(data=2, pipeline=4, expert=4), "4 expert-parallel GPUs of 2"),
    ],
)
def test_experts_over_more_gpus_than_a_stage_has_are_refused(
    spread: Parallelism, words: str
) -> None:
    """The GPUs of a stage hold all experts of its layers between them."""
    mixture = replace(LLAMA, experts=ExpertLayers(experts=16, experts_per_token=2, ffn=1024))
    with pytest.raises(ImpossibleProblemError, match=words):
        replace(STATED, shape=mixture, parallelism=spread)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"optimizer": "magic"}, "magic"),
        ({"precision": "fp3"}, "fp3"),
        ({"quantization": "int1"}, "int1"),
    ],
)
def test_an_unknown_word_is_refused_with_the_known_ones(
    changes: dict[str, Any], words: str
) -> None:
    """The error repeats the word and lists what is known."""
    with pytest.raises(ImpossibleProblemError, match=words) as caught:
        predict_peak(replace(STATED, **changes))
    assert "known are" in str(caught.value)


@pytest.mark.parametrize("kind", ["vera", "oft", "fnord", ""])
def test_an_adapter_of_a_kind_that_is_not_known_is_told_and_widens_the_bound(kind: str) -> None:
    """It is counted as LoRA, and the estimate says which word it did not know."""
    adapter = Adapter(kind=kind, rank=8, targets=("q", "v"))
    job = replace(STATED, method=Method.ADAPTER, adapter=adapter)
    known = predict_peak(replace(job, adapter=replace(adapter, kind="lora")))
    assert (known.missing, known.tier) == ((), Tier.A)
    unknown = predict_peak(job)
    assert (unknown.missing, unknown.tier) == ((f"adapter kind ({kind})",), Tier.C)
    assert f"adapter kind ({kind}) = lora" in unknown.assumed


def test_a_width_beyond_any_model_is_refused() -> None:
    """A hidden width of 10^400 is an error for people, not an overflow."""
    with pytest.raises(ImpossibleProblemError, match="hidden"):
        replace(LLAMA, hidden=10**400)


def test_degrees_below_one_are_refused() -> None:
    """No job runs on zero pipeline stages."""
    with pytest.raises(ImpossibleProblemError, match="pipeline"):
        Parallelism(pipeline=0)


def test_a_model_with_uneven_key_heads_is_refused() -> None:
    """Query heads that key heads do not divide are no grouped-query attention."""
    with pytest.raises(ImpossibleProblemError, match="kv_heads"):
        ModelShape(name="odd", layers=1, hidden=8, heads=6, kv_heads=4, head_dim=2, ffn=8, vocab=8)
