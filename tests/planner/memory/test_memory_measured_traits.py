"""What our own runs of transformers' Trainer showed, as rules for every job of the kind."""

from dataclasses import replace

import pytest
from training_cases import STATED

from planner.memory.estimate.predictor import MemoryEstimate, predict_peak
from planner.memory.models.model_sizes import known_model, known_models
from planner.memory.step.activations import layer_activations
from planner.memory.step.assumptions import Recipe, complete
from planner.memory.step.training_job import (
    Adapter,
    Method,
    Parallelism,
    Recompute,
    Sharding,
    TrainingJob,
)

TRAINER = replace(STATED, framework="transformers", precision="amp", recompute=Recompute.NONE)
LORA = replace(
    TRAINER, method=Method.ADAPTER, precision=None, adapter=Adapter(rank=8, targets=("q", "v"))
)


def part(estimate: MemoryEstimate, name: str) -> float:
    """Bytes of a component at the peak; 0 where it is not alive."""
    return dict(estimate.breakdown).get(name, 0.0)


def kept(recipe: Recipe) -> float:
    """Bytes per token of a layer."""
    return layer_activations(recipe).everything


@pytest.mark.parametrize("precision", ["amp", "bf16-true"])
def test_a_fused_optimizer_copies_no_moment(precision: str) -> None:
    """A fused AdamW keeps the same moments, and its step needs nothing on top."""
    small = replace(TRAINER, precision=precision, micro_batch=1, sequence_length=1)
    each = predict_peak(replace(small, optimizer="adamw"))
    fused = predict_peak(replace(small, optimizer="adamw_fused"))
    assert part(fused, "optimizer states") == part(each, "optimizer states")
    assert part(each, "optimizer step") == part(each, "optimizer states") / 2
    assert part(fused, "optimizer step") == 0
    assert fused.allocated_bytes < each.allocated_bytes


@pytest.mark.parametrize("job", [TRAINER, LORA], ids=["full", "adapter"])
def test_the_trainer_keeps_three_fp32_copies_of_the_logits(job: TrainingJob) -> None:
    """12 bytes per token and vocabulary entry, with all weights trained or an adapter alone."""
    found = predict_peak(replace(job, sequence_length=8192))
    assert part(found, "logits and loss") == 12 * STATED.shape.vocab * 2 * 8192


@pytest.mark.parametrize("name", ["llama3-8b", "mistral-7b", "llama2-7b"])
def test_grouped_heads_are_repeated_for_a_padding_mask_or_eager_attention(name: str) -> None:
    """Batches of one length keep the heads that there are; without groups nothing differs."""
    job = replace(TRAINER, shape=known_model(name))
    shape = job.shape
    repeated = 2 * 2 * (shape.query_width - shape.key_width)
    padded = complete(replace(job, length_varies=True))
    assert kept(padded) - kept(complete(job)) == repeated
    eager = complete(replace(job, flash_attention=False))
    padded_eager = complete(replace(job, flash_attention=False, length_varies=True))
    assert kept(eager) == kept(padded_eager)


def test_an_adapter_under_autocast_keeps_16_bit_inputs_and_a_mask_of_its_dropout() -> None:
    """2 bytes an input, 3 with dropout, 4 without autocast, whatever the targets are."""
    for targets in (("q", "v"), ("q", "k", "v", "o", "gate", "up", "down"), ("down",)):
        adapter = Adapter(rank=8, targets=targets)
        plain = replace(LORA, adapter=adapter)
        dropped = replace(LORA, adapter=replace(adapter, dropout=True))
        bare = replace(plain, precision="bf16-true")
        base = kept(complete(plain))
        mask = kept(complete(dropped)) - base
        assert mask == sum(
            STATED.shape.ffn if target == "down" else STATED.shape.hidden for target in targets
        )
        assert kept(complete(bare)) - base == 2 * mask


def test_a_stream_of_fp32_weights_is_fp32_and_cast_for_every_matrix() -> None:
    """Under autocast layers pass on 4 bytes an element, and five matrices keep a copy each."""
    shape = STATED.shape
    mixed, narrow = complete(TRAINER), complete(replace(TRAINER, precision="bf16-true"))
    assert layer_activations(mixed).boundary == 4 * shape.hidden
    assert layer_activations(narrow).boundary == 2 * shape.hidden
    assert kept(mixed) - kept(narrow) == 2 * shape.hidden * (5 - 2)
    spread = Parallelism(data=8, sharding=Sharding.FSDP)
    assert layer_activations(complete(replace(TRAINER, parallelism=spread))).boundary == (
        2 * shape.hidden
    )


@pytest.mark.parametrize("recompute", list(Recompute))
def test_casts_of_autocast_are_not_beside_all_gradients(recompute: Recompute) -> None:
    """Casts fall as gradients rise: at one token the peak holds the casts of one layer at most."""
    job = replace(
        TRAINER, optimizer="sgd", recompute=recompute, micro_batch=1, sequence_length=1,
        gradient_accumulation=1,
    )  # fmt: skip
    found = predict_peak(job)
    assert found.binding_event == "backward"
    shape = STATED.shape
    assert part(found, "weights cast by autocast") == 2 * shape.vocab * shape.hidden


@pytest.mark.parametrize("precision", ["amp", "bf16-true"])
def test_adafactor_steps_with_fp32_copies_of_the_largest_matrix(precision: str) -> None:
    """Four fp32 copies of the embedding while it is stepped; of an adapter no more than it has."""
    job = replace(TRAINER, precision=precision, micro_batch=1, sequence_length=1)
    job = replace(job, gradient_accumulation=1)
    found = predict_peak(replace(job, optimizer="adafactor", shape=known_model("phi-2")))
    assert found.binding_event == "optimizer"
    assert part(found, "optimizer step") == 16 * 51200 * 2560
    small = replace(LORA, optimizer="adafactor")
    without = replace(LORA, optimizer="sgd")
    assert predict_peak(small).allocated_bytes < 1.01 * predict_peak(without).allocated_bytes


@pytest.mark.parametrize("name", ["llama3-8b", "qwen2.5-1.5b", "tinyllama-1.1b"])
def test_recomputation_beside_large_logits_reserves_more(name: str) -> None:
    """The share of the cache that nothing uses grows with the logits where layers are recomputed.

    Without recomputation it is small whatever the vocabulary.
    """
    shape = known_models()[name]
    job = replace(TRAINER, shape=shape, precision="bf16-true", optimizer="sgd", micro_batch=8)
    ratios = []
    for recompute in (Recompute.NONE, Recompute.FULL):
        found = predict_peak(replace(job, recompute=recompute))
        ratios.append(found.reserved_bytes / found.allocated_bytes)
    assert 1.03 <= ratios[0] <= 1.08
    assert ratios[1] > ratios[0]


@pytest.mark.parametrize(("precision", "more"), [(None, 12), ("bf16-true", 6)])
@pytest.mark.parametrize("name", ["phi-2", "phi-1.5"])
def test_gelu_in_single_operations_keeps_them(name: str, precision: str | None, more: int) -> None:
    """Bytes per element of the MLP by what autograd keeps of each operation.

    Autocast takes the power in fp32. A compiled model, and a framework with a kernel of its own,
    keep the input alone.
    """
    shape = known_models()[name]
    composed = replace(LORA, shape=shape, precision=precision, adapter=Adapter(rank=16))
    plain = replace(composed, shape=replace(shape, composed_gelu=False))
    tokens = 4 * 1024
    stated = {"micro_batch": 4, "sequence_length": 1024, "recompute": Recompute.NONE}
    differs = [predict_peak(replace(job, **stated)).allocated_bytes for job in (composed, plain)]
    assert differs[0] - differs[1] == pytest.approx(more * shape.layers * shape.ffn * tokens)
    for other in ({"compiled": True}, {"framework": "litgpt"}):
        same = [predict_peak(replace(job, **stated, **other)) for job in (composed, plain)]
        assert same[0].allocated_bytes == same[1].allocated_bytes
