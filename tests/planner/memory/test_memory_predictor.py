"""The front door: what an estimate holds, how it moves, and what it refuses."""

import time
from dataclasses import replace
from typing import Any

import pytest
from drawn import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from training_cases import GIB, LLAMA, STATED

from planner.memory.estimate.bounds import Tier
from planner.memory.estimate.predictor import predict_peak
from planner.memory.models.model_shape import ExpertLayers
from planner.memory.models.model_sizes import known_model
from planner.memory.step.assumptions import complete
from planner.memory.step.framework_traits import framework_traits, known_frameworks
from planner.memory.step.step_events import held, step_events
from planner.memory.step.training_job import (
    Adapter,
    Method,
    Parallelism,
    Recompute,
    Sharding,
    TrainingJob,
)

QUIET = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow], max_examples=examples(60)
)

jobs = st.builds(
    TrainingJob,
    shape=st.sampled_from([known_model(text) for text in ("llama3-8b", "phi-2", "gemma2-2b")]),
    framework=st.sampled_from(["", *known_frameworks()]),
    method=st.sampled_from(Method),
    micro_batch=st.integers(1, 8) | st.none(),
    sequence_length=st.integers(16, 16384) | st.none(),
    length_varies=st.booleans() | st.none(),
    gradient_accumulation=st.integers(1, 8) | st.none(),
    optimizer=st.sampled_from(["adamw", "adamw8bit", "sgd", "muon", "lion", "paged_adamw8bit"]),
    quantization=st.sampled_from(["", "nf4", "gptq-int4"]),
    recompute=st.sampled_from(Recompute) | st.none(),
    flash_attention=st.booleans() | st.none(),
    parallelism=st.builds(
        Parallelism,
        data=st.sampled_from([1, 2, 8]),
        tensor=st.sampled_from([1, 2, 4]),
        pipeline=st.sampled_from([1, 2]),
        sharding=st.sampled_from(Sharding),
    ),
)


@QUIET
@given(jobs)
def test_the_breakdown_is_the_allocated_peak(job: TrainingJob) -> None:
    """The components at the binding event add up to what tensors take; NVML shows the most."""
    found = predict_peak(job)
    assert sum(size for _, size in found.breakdown) == pytest.approx(found.allocated_bytes)
    assert all(size > 0 for _, size in found.breakdown)
    assert found.allocated_bytes <= found.reserved_bytes < found.nvml_bytes <= found.p99_bytes


@QUIET
@given(jobs)
def test_what_stages_hold_is_the_same_for_every_batch(job: TrainingJob) -> None:
    """Events on stages that were counted for no batch at all are those of the job itself."""
    recipe = complete(job)
    without = replace(job, micro_batch=None, gradient_accumulation=None, recompute=None)
    assert step_events(recipe, held(complete(without))) == step_events(recipe)


@QUIET
@given(jobs, st.sampled_from(["micro_batch", "sequence_length"]))
def test_more_tokens_never_need_less(job: TrainingJob, field: str) -> None:
    """Twice the batch or the length takes at least as much memory."""
    job = replace(job, micro_batch=job.micro_batch or 1, sequence_length=job.sequence_length or 64)
    more = replace(job, **{field: 2 * getattr(job, field)})
    assert predict_peak(more).allocated_bytes >= predict_peak(job).allocated_bytes


@QUIET
@given(jobs)
def test_the_same_job_gives_the_same_estimate(job: TrainingJob) -> None:
    """An estimate depends on nothing but the job."""
    assert predict_peak(job) == predict_peak(replace(job))


@pytest.mark.parametrize("sharding", [Sharding.ZERO1, Sharding.ZERO2, Sharding.ZERO3])
def test_sharding_over_more_ranks_needs_less(sharding: Sharding) -> None:
    """States that are shared out shrink with the ranks, and later stages share out more."""
    few, many = (
        predict_peak(
            replace(STATED, framework="qwen_deepspeed",
                    parallelism=Parallelism(data=ranks, sharding=sharding))
        ).allocated_bytes
        for ranks in (8, 64)
    )  # fmt: skip
    assert many < few


def test_zero_stages_need_less_and_less() -> None:
    """None, ZeRO-1, ZeRO-2, ZeRO-3 on 8 GPUs, in falling order."""
    stages = (Sharding.NONE, Sharding.ZERO1, Sharding.ZERO2, Sharding.ZERO3)
    found = [
        predict_peak(
            replace(STATED, framework="generic", precision="zero", micro_batch=1,
                    sequence_length=128, parallelism=Parallelism(data=8, sharding=stage))
        ).allocated_bytes
        for stage in stages
    ]  # fmt: skip
    assert found == sorted(found, reverse=True)
    assert len(set(found)) == len(found)


def test_adam_in_mixed_precision_takes_its_bytes_per_parameter() -> None:
    """Megatron without distributed optimiser: 18 bytes per parameter; bf16 throughout: 8."""
    small = replace(STATED, framework="generic", micro_batch=1, sequence_length=1)
    for precision, bytes_each in (("megatron", 18), ("bf16-true", 8), ("fp32", 16)):
        found = dict(predict_peak(replace(small, precision=precision)).breakdown)
        states = sum(found[name] for name in ("weights", "gradients", "optimizer states"))
        assert states == pytest.approx(bytes_each * 8_030_261_248, rel=1e-6)


@pytest.mark.parametrize(
    ("optimizer", "bytes_each"),
    [("adamw", 8), ("sgd", 0), ("sgd_momentum", 4), ("lion", 4), ("adamw8bit", 2.032)],
)
def test_optimizer_states_take_their_bytes(optimizer: str, bytes_each: float) -> None:
    """Moments in fp32, or in 8 bits with a scale for every 256 elements."""
    job = replace(STATED, framework="generic", precision="fp32", optimizer=optimizer)
    found = dict(predict_peak(job).breakdown).get("optimizer states", 0.0)
    assert found == pytest.approx(bytes_each * 8_030_261_248, rel=1e-6)


def test_muon_keeps_one_moment_of_matrices_and_two_of_the_rest() -> None:
    """4 bytes for the layers' matrices, 8 for embedding, head and norms."""
    job = replace(STATED, framework="generic", precision="fp32", optimizer="muon")
    rest = 2 * 128256 * 4096 + 32 * 2 * 4096 + 4096
    expected = 4 * (8_030_261_248 - rest) + 8 * rest
    assert dict(predict_peak(job).breakdown)["optimizer states"] == pytest.approx(expected)


def test_logits_can_be_the_peak() -> None:
    """A long sequence with a large vocabulary peaks in the forward pass, at the logits."""
    found = predict_peak(replace(STATED, framework="generic", sequence_length=32768, micro_batch=1))
    assert found.binding_event == "forward"
    parts = dict(found.breakdown)
    assert parts["logits and loss"] == pytest.approx(12 * 128256 * 32768)


def test_a_chunked_loss_takes_less() -> None:
    """Computing the loss in chunks lowers the logits' share."""
    job = replace(STATED, framework="torchtune", sequence_length=32768, micro_batch=1)
    chunked = predict_peak(replace(job, chunked_loss=True))
    assert chunked.allocated_bytes < predict_peak(job).allocated_bytes


def test_the_first_pipeline_stage_holds_as_many_micro_batches_as_stages() -> None:
    """1F1B: with enough micro-batches stage 0 keeps the activations of all layers."""
    job = replace(STATED, framework="generic", sequence_length=16384, gradient_accumulation=16)
    one = dict(predict_peak(replace(job, recompute=Recompute.NONE)).breakdown)["activations"]
    four = predict_peak(replace(job, recompute=Recompute.NONE, parallelism=Parallelism(pipeline=4)))
    assert four.binding_stage == 0
    assert dict(four.breakdown)["activations"] == pytest.approx(one)


def test_interleaving_holds_more() -> None:
    """Virtual stages raise what stage 0 keeps by 1 + (p-1)/(pv)."""
    job = replace(
        STATED, framework="generic", sequence_length=16384, gradient_accumulation=16,
        recompute=Recompute.NONE,
    )  # fmt: skip
    plain = predict_peak(replace(job, parallelism=Parallelism(pipeline=4)))
    spread = Parallelism(pipeline=4, virtual_stages=2)
    interleaved = predict_peak(replace(job, parallelism=spread))
    ratio = dict(interleaved.breakdown)["activations"] / dict(plain.breakdown)["activations"]
    assert ratio == pytest.approx(1 + 3 / 8)


def test_experts_are_divided_over_expert_parallel_ranks() -> None:
    """With 8 ranks of experts a GPU holds an eighth of the routed weights."""
    mixtral = replace(
        known_model("mistral-7b"), name="mixtral",
        experts=ExpertLayers(experts=8, experts_per_token=2, ffn=14336),
    )  # fmt: skip
    job = replace(
        STATED, shape=mixtral, framework="generic", precision="bf16-true", sequence_length=128,
        micro_batch=1, parallelism=Parallelism(data=8),
    )  # fmt: skip
    whole = dict(predict_peak(job).breakdown)["weights"]
    split = dict(predict_peak(replace(job, parallelism=Parallelism(data=8, expert=8))).breakdown)[
        "weights"
    ]
    routed = 32 * 8 * 3 * 4096 * 14336
    assert whole - split == pytest.approx(2 * routed * 7 / 8)


@pytest.mark.parametrize(("data", "tensor", "expert"), [(8, 1, 8), (4, 2, 8), (1, 8, 8), (2, 4, 2)])
def test_the_gpus_of_a_stage_hold_all_experts_between_them(
    data: int, tensor: int, expert: int
) -> None:
    """However tensor and expert parallelism share out the experts, none is left over."""
    mixture = replace(
        known_model("mistral-7b"), name="mixture",
        experts=ExpertLayers(experts=8, experts_per_token=2, ffn=14336),
    )  # fmt: skip
    job = replace(
        STATED, shape=mixture, framework="generic", precision="bf16-true",
        parallelism=Parallelism(data=data, tensor=tensor, expert=expert),
    )  # fmt: skip
    routed = 2 * 32 * 8 * 3 * 4096 * 14336
    assert data * tensor * dict(predict_peak(job).breakdown)["weights"] >= routed


def test_data_parallelism_copies_gradients_into_buckets() -> None:
    """Torch's DDP keeps the gradients twice; Megatron's buffer is the gradient itself."""
    spread = Parallelism(data=8)
    torch = replace(STATED, framework="generic", precision="megatron", parallelism=spread)
    found = dict(predict_peak(torch).breakdown)
    assert found["gathered and buckets"] == pytest.approx(4 * 8_030_261_248)
    assert "gathered and buckets" not in dict(
        predict_peak(replace(torch, framework="megatron")).breakdown
    )


def test_ring_attention_holds_the_neighbours_keys_and_values() -> None:
    """With the sequence over 4 GPUs two neighbours' keys and values are alive at once."""
    job = replace(STATED, framework="generic", sequence_length=32768, micro_batch=1)
    found = dict(predict_peak(replace(job, parallelism=Parallelism(context=4))).breakdown)
    assert found["ring attention"] == pytest.approx(2 * 2 * 2 * 1024 * 32768 / 4)
    assert "ring attention" not in dict(predict_peak(job).breakdown)


def test_zero_3_gathers_a_billion_parameters_and_steps_on_a_billion() -> None:
    """8B over 8 GPUs: 2 GB gathered at the least; each shard's gradients are in fp32 as it steps.

    FSDP gathers three layers, and embedding and head, here and there.
    """
    spread = {
        entry: Parallelism(data=8, sharding=entry) for entry in (Sharding.ZERO3, Sharding.FSDP)
    }
    for ranks, stepped in ((8, 8_030_261_248 / 8), (2, 1e9)):
        few = replace(spread[Sharding.ZERO3], data=ranks)
        events = step_events(complete(replace(STATED, framework="generic", parallelism=few)))
        step = next(event for event in events if event.name == "optimizer")
        assert dict(step.dynamic)["optimizer step"] == pytest.approx(4 * min(stepped, 1e9))
    held = replace(STATED, framework="generic", sequence_length=16384)
    zero, fsdp = (
        dict(predict_peak(replace(held, parallelism=split)).breakdown)["gathered and buckets"]
        for split in spread.values()
    )
    layer = 218_112_000
    assert zero - fsdp == pytest.approx(2 * (1e9 - 3 * layer) + 1e9)


def test_offloaded_states_leave_the_gpu() -> None:
    """The optimiser's states are absent when they live in host memory."""
    found = predict_peak(replace(STATED, framework="generic", offload=frozenset({"optimizer"})))
    assert "optimizer states" not in dict(found.breakdown)


def test_autocast_keeps_a_copy_of_every_weight() -> None:
    """Mixed precision on one GPU holds fp32 weights and their 16-bit casts.

    With full recomputation layers are cast anew, and the casts of the head alone stay.
    """
    job = replace(
        STATED, framework="generic", precision="amp", sequence_length=8192, optimizer="sgd"
    )
    for recompute, cast in ((Recompute.NONE, 8_030_261_248), (Recompute.FULL, 128_256 * 4096)):
        parts = dict(predict_peak(replace(job, recompute=recompute)).breakdown)
        assert parts["weights cast by autocast"] == pytest.approx(2 * cast)


def test_a_published_run_is_met() -> None:
    """LoRA of Llama-2-7B by litgpt on an A100, 1,304 tokens: its tutorial prints 21.30 GB."""
    job = TrainingJob(
        shape=known_model("llama2-7b"), framework="litgpt", method=Method.ADAPTER,
        adapter=Adapter(rank=8, targets=("q", "v")), micro_batch=1, sequence_length=1304,
        recompute=Recompute.NONE, length_varies=False,
    )  # fmt: skip
    assert predict_peak(job).allocated_bytes == pytest.approx(21.30e9, rel=0.02)


def test_loading_can_be_the_peak() -> None:
    """A framework whose ranks each load the whole model before sharing it out peaks there."""
    job = TrainingJob(
        shape=LLAMA, framework="litgpt", method=Method.ADAPTER, adapter=Adapter(rank=8),
        micro_batch=1, sequence_length=256, recompute=Recompute.FULL, length_varies=False,
        parallelism=Parallelism(data=4, sharding=Sharding.FSDP),
    )  # fmt: skip
    found = predict_peak(job)
    assert found.binding_event == "load"
    assert found.allocated_bytes == pytest.approx(2 * 8_030_261_248 * 1.25, rel=0.01)
    assert any("meta device" in note for note in found.notes)


def test_inference_holds_weights_and_the_key_value_cache() -> None:
    """No gradients, no optimiser: 16-bit weights and 2 bytes per key and value element."""
    job = replace(STATED, framework="generic", method=Method.INFERENCE, micro_batch=1)
    parts = dict(predict_peak(job).breakdown)
    assert parts["weights"] == pytest.approx(2 * 8_030_261_248)
    assert parts["key-value cache"] == pytest.approx(2 * 2 * 1024 * 32 * 4096)
    assert "gradients" not in parts


def test_an_optimizer_inside_the_backward_pass_holds_one_gradient() -> None:
    """Stepping layer by layer, only the largest gradient lives at a time."""
    job = replace(STATED, framework="torchtune", sequence_length=128, micro_batch=1)
    usual = predict_peak(job).allocated_bytes
    inside = predict_peak(replace(job, optimizer="adamw_in_backward")).allocated_bytes
    assert usual - inside > 2 * 7e9


def test_a_shard_group_shares_out_inside_itself() -> None:
    """HYBRID_SHARD over groups of 8 of 64 ranks holds what 8 ranks hold."""
    whole, group, small = (
        dict(predict_peak(replace(STATED, parallelism=spread)).breakdown)["weights"]
        for spread in (
            Parallelism(data=64, sharding=Sharding.FSDP),
            Parallelism(data=64, sharding=Sharding.FSDP, shard_group=8),
            Parallelism(data=8, sharding=Sharding.FSDP),
        )
    )
    assert group == small == pytest.approx(8 * whole)


def test_uneven_stages_are_all_looked_at() -> None:
    """The stage with the most layers binds, wherever it is."""
    spread = Parallelism(pipeline=4, stage_layers=(2, 2, 26, 2))
    job = replace(
        STATED, framework="generic", precision="fp32", sequence_length=128, parallelism=spread
    )
    assert predict_peak(job).binding_stage == 2


def test_tier_a_needs_everything_stated() -> None:
    """A job with framework, batch, length, optimiser and recomputation stated is tier A."""
    found = predict_peak(STATED)
    assert found.tier is Tier.A
    assert found.missing == ()


def test_varying_lengths_are_tier_b() -> None:
    """Padding to each batch's longest sample widens the bound and says how to narrow it."""
    found = predict_peak(replace(STATED, length_varies=True))
    assert found.tier is Tier.B
    assert any("expandable_segments" in note for note in found.notes)
    fixed = predict_peak(STATED)
    assert found.p99_bytes / found.p50_bytes > fixed.p99_bytes / fixed.p50_bytes


@pytest.mark.parametrize(
    "field",
    ["micro_batch", "sequence_length", "optimizer", "recompute", "length_varies"],
)
def test_a_field_that_nobody_stated_is_named(field: str) -> None:
    """The estimate is tier C, names the field, says what was assumed, and widens the bound."""
    changes: dict[str, Any] = {field: None}
    found = predict_peak(replace(STATED, **changes))
    assert found.tier is Tier.C
    assert found.missing == (field,)
    assert any(entry.startswith(f"{field} = ") for entry in found.assumed)
    assert found.p99_bytes >= 1.75 * found.p50_bytes


def test_a_framework_without_traits_is_named() -> None:
    """A framework that is not known is read with generic traits, and missing."""
    assert "framework" in predict_peak(replace(STATED, framework="homegrown")).missing


def test_a_full_card_caps_what_is_reserved() -> None:
    """The allocator frees its cache before it fails, so reserved stays below the card."""
    job = replace(STATED, framework="swift", length_varies=True, sequence_length=8192)
    free = predict_peak(job)
    card = 1.05 * free.allocated_bytes + GIB
    capped = predict_peak(replace(job, gpu_memory_bytes=card))
    assert capped.reserved_bytes < free.reserved_bytes
    assert capped.reserved_bytes <= card
    assert capped.allocated_bytes == free.allocated_bytes


@pytest.mark.parametrize("name", known_frameworks())
def test_every_framework_says_where_its_traits_are_from(name: str) -> None:
    """The evidence names its kind: code, paper, measured, recalled or chosen."""
    evidence = framework_traits(name).evidence
    assert any(
        word in evidence for word in ("code:", "paper:", "measured:", "recalled:", "chosen:")
    )


def test_a_thousand_estimates_take_less_than_a_second() -> None:
    """Ranking plans needs many estimates: at least 1,000 per CPU second."""
    begun = time.process_time()
    for length in range(1, 1001):
        predict_peak(replace(STATED, sequence_length=length))
    assert time.process_time() - begun < 1.0
