"""What a layer keeps is what the published formulas say, where their assumptions are made."""

from dataclasses import replace

import pytest
from training_cases import STATED

from planner.memory.estimate.predictor import predict_peak
from planner.memory.models.model_shape import ExpertLayers, LatentAttention, ModelShape
from planner.memory.models.model_sizes import known_model
from planner.memory.step.activations import layer_activations
from planner.memory.step.assumptions import Recipe, complete
from planner.memory.step.step_events import step_events
from planner.memory.step.training_job import (
    Adapter,
    Method,
    Parallelism,
    Recompute,
    Sharding,
    TrainingJob,
)

GIB = 2**30
GPT = ModelShape(
    name="gpt", layers=4, hidden=1024, heads=16, kv_heads=16, head_dim=64, ffn=4096, vocab=50000,
    gated_mlp=False, norm_vectors=2,
)  # fmt: skip


def recipe(shape: ModelShape, **changes: object) -> Recipe:
    """A recipe of full training without recomputation, one sequence of 2,048 tokens."""
    job = TrainingJob(
        shape=shape, micro_batch=1, sequence_length=2048, optimizer="adamw",
        recompute=Recompute.NONE, length_varies=False,
    )  # fmt: skip
    return complete(replace(job, **changes))  # type: ignore[arg-type]


def without_habits(one: Recipe, **traits: object) -> Recipe:
    """The same recipe with 16-bit norms, as the papers count them."""
    return replace(one, traits=replace(one.traits, norm_trained=2.0, **traits))  # type: ignore[arg-type]


@pytest.mark.parametrize("tensor", [1, 2, 4])
def test_a_gpt_layer_keeps_what_korthikanti_counts(tensor: int) -> None:
    """10 + 24/t bytes per element without the scores (arXiv 2205.05198, table 2)."""
    one = recipe(GPT, parallelism=Parallelism(tensor=tensor))
    one = without_habits(one, dropout=True)
    sums = 4 * GPT.heads / tensor
    found = layer_activations(one).everything - sums
    assert found == pytest.approx(GPT.hidden * (10 + 24 / tensor))


def test_sequence_parallelism_divides_everything() -> None:
    """With sequence parallelism 34 bytes per element are divided by t."""
    one = recipe(GPT, parallelism=Parallelism(tensor=4, sequence=True))
    found = layer_activations(without_habits(one, dropout=True)).everything
    assert found == pytest.approx((34 * GPT.hidden + 4 * GPT.heads) / 4)


@pytest.mark.parametrize("name", ["llama2-7b", "llama3-8b", "llama3-70b"])
def test_a_llama_layer_keeps_what_fujii_counts(name: str) -> None:
    """12 + 4 k/a + 8 f/h bytes per element (arXiv 2411.06465, equation 12)."""
    shape = known_model(name)
    found = layer_activations(without_habits(recipe(shape))).everything - 4 * shape.heads
    ratio = 12 + 4 * shape.kv_heads / shape.heads + 8 * shape.ffn / shape.hidden
    assert found == pytest.approx(shape.hidden * ratio)


@pytest.mark.parametrize(
    ("name", "tokens", "gib"),
    [("llama3-8b", 8192, 1.281), ("llama2-7b", 4096, 0.586), ("llama3-70b", 8192, 2.531)],
)
def test_a_layer_of_public_models_takes_the_known_memory(
    name: str, tokens: int, gib: float
) -> None:
    """One sequence through one layer, in GiB, as computed by hand from Fujii's equation."""
    shape = known_model(name)
    found = layer_activations(without_habits(recipe(shape))).everything - 4 * shape.heads
    assert found * tokens / GIB == pytest.approx(gib, abs=0.001)


def test_a_fused_product_is_kept_by_the_values_alone() -> None:
    """Turned queries and keys are new tensors while the values keep the whole fused product."""
    fused = replace(GPT, fused_qkv=True)
    still = replace(fused, rotary=False)
    apart = (
        layer_activations(recipe(fused)).everything - layer_activations(recipe(still)).everything
    )
    assert apart == 2 * (GPT.hidden + GPT.hidden)
    assert layer_activations(recipe(still)) == layer_activations(recipe(GPT))


@pytest.mark.parametrize(
    ("changes", "bytes_each"),
    [({}, 2 + 4), ({"framework": "megatron"}, 5), ({"precision": "fp32"}, 4)],
)
def test_eager_attention_keeps_its_scores(changes: dict[str, str], bytes_each: int) -> None:
    """A score takes its width, an fp32 softmax beside 16 bits 4 more; 5 in Korthikanti's GPT."""
    flash, eager = recipe(GPT, **changes), recipe(GPT, flash_attention=False, **changes)
    apart = layer_activations(eager).everything - layer_activations(flash).everything
    assert apart == pytest.approx(bytes_each * GPT.heads * 2048 - 4 * GPT.heads)


def test_full_recomputation_keeps_the_input_of_each_layer() -> None:
    """What is kept is 2 bytes per element, and everything is alive for one layer."""
    found = layer_activations(recipe(GPT, recompute=Recompute.FULL))
    assert found.stored == 2 * GPT.hidden == found.boundary
    assert found.everything > found.stored


def test_recomputing_more_never_keeps_more() -> None:
    """None, attention, operators and full recomputation keep less and less, eager attention."""
    kept = [
        layer_activations(recipe(GPT, recompute=entry, flash_attention=False)).stored
        for entry in (Recompute.NONE, Recompute.ATTENTION, Recompute.OPERATORS, Recompute.FULL)
    ]
    assert kept == sorted(kept, reverse=True)


def test_frozen_matrices_keep_no_input() -> None:
    """A layer with an adapter keeps less than one that is trained."""
    lora = recipe(
        GPT, method=Method.ADAPTER, adapter=Adapter(rank=8, targets=("q",)), framework="litgpt"
    )
    full = recipe(GPT, framework="litgpt")
    assert layer_activations(lora).everything < layer_activations(full).everything


def test_a_four_bit_matrix_keeps_its_input() -> None:
    """QLoRA keeps more per token than LoRA, because 4-bit products save their input."""
    adapter = Adapter(rank=8, targets=("q", "v"))
    lora = recipe(GPT, method=Method.ADAPTER, adapter=adapter)
    qlora = recipe(GPT, method=Method.ADAPTER, adapter=adapter, quantization="nf4")
    assert layer_activations(qlora).everything > layer_activations(lora).everything


def test_weights_that_an_adapter_builds_do_not_grow_with_tokens() -> None:
    """A Fourier adapter builds its update as a matrix, 4 bytes per element of each target."""
    one = recipe(GPT, method=Method.ADAPTER, adapter=Adapter(kind="fourierft", targets=("q",)))
    assert layer_activations(one).built == 4 * 1024 * 1024


@pytest.mark.parametrize("offload", [frozenset(), frozenset({"activations"})])
@pytest.mark.parametrize("sequence_length", [4096, 16384])
def test_scores_that_are_computed_again_are_alive_for_one_layer(
    sequence_length: int, offload: frozenset[str]
) -> None:
    """Selective recomputation keeps no scores of eager attention, and makes those of a layer anew.

    Korthikanti et al., arXiv 2205.05198, section 5.
    """
    job = replace(
        STATED, framework="megatron", flash_attention=False, micro_batch=1, offload=offload,
        sequence_length=sequence_length, recompute=Recompute.ATTENTION,
    )  # fmt: skip
    shape = STATED.shape
    scores = 2 * shape.heads * sequence_length**2
    event = next(event for event in step_events(complete(job)) if event.name == "recompute")
    assert dict(event.dynamic)["one recomputed layer"] >= scores
    whole = predict_peak(replace(job, recompute=Recompute.NONE, offload=frozenset()))
    assert predict_peak(job).allocated_bytes < whole.allocated_bytes


DEEPSEEK_16B = ModelShape(
    name="deepseek-16b", layers=27, hidden=2048, heads=16, kv_heads=16, head_dim=128, ffn=10944,
    vocab=102400,
    experts=ExpertLayers(
        experts=64, experts_per_token=6, ffn=1408, shared_ffn=2816, dense_layers=1
    ),
    latent=LatentAttention(
        query_rank=0, key_value_rank=512, nope_dim=128, rope_dim=64, value_dim=128
    ),
)  # fmt: skip


@pytest.mark.parametrize(("batch", "expert", "seen"), [(4, 8, 73.32), (8, 1, 75.9), (8, 8, None)])
def test_selective_checkpoints_of_experts_keep_what_ranks_sent(
    batch: int, expert: int, seen: float | None
) -> None:
    """pytorch/torchtitan#1789: reserved GiB on boards of 79.1, and one run out of memory.

    With experts spread over ranks, tokens sent to them and back are kept, six of each a token.
    """
    estimate = predict_peak(
        TrainingJob(
            shape=DEEPSEEK_16B, framework="torchtitan", micro_batch=batch, sequence_length=4096,
            length_varies=False, optimizer="adamw", recompute=Recompute.OPERATORS, compiled=True,
            parallelism=Parallelism(data=8, expert=expert, sharding=Sharding.FSDP),
        )
    )  # fmt: skip
    if seen is None:
        assert estimate.allocated_bytes > 79.1 * GIB
    else:
        assert estimate.reserved_bytes == pytest.approx(seen * GIB, rel=0.08)
        assert estimate.p95_bytes > seen * GIB
