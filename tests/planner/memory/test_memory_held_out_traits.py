"""What runs showed that nobody had looked at when the predictor was made, as rules."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from training_cases import STATED

from benchmarks._held_out_cases import CASES, MODELS, job_of
from benchmarks._held_out_runs import held_out_runs
from planner.memory.estimate.predictor import predict_peak
from planner.memory.models.model_config import shape_from_config
from planner.memory.models.model_shape import ModelShape
from planner.memory.models.model_sizes import known_model
from planner.memory.models.parameters import count_parameters
from planner.memory.step.activations import layer_activations
from planner.memory.step.adapters import adapter_parameters
from planner.memory.step.assumptions import complete
from planner.memory.step.step_events import step_events
from planner.memory.step.training_job import Adapter, Method, Recompute, TrainingJob

TRAINER = replace(STATED, framework="transformers", precision="bf16-true", recompute=Recompute.NONE)
LORA = replace(
    TRAINER, method=Method.ADAPTER, precision=None, adapter=Adapter(rank=8, targets=("q", "v"))
)
ROWS = Path(__file__).parents[3] / "benchmarks" / "measured" / "training_memory_2_h200.json"


def kept(job: TrainingJob) -> float:
    """Bytes per token of a layer."""
    return layer_activations(complete(job)).everything


def shape_of(model: str, **changed: object) -> ModelShape:
    """Shape of a measured model, read from its config with these keys changed."""
    return shape_from_config(MODELS[model] | changed).shape


def part(job: TrainingJob, name: str) -> float:
    """Bytes of a component at the peak; 0 where it is not alive."""
    return dict(predict_peak(job).breakdown).get(name, 0.0)


def test_parameters_are_those_of_the_models_that_ran() -> None:
    """To the last parameter, and those of adapters but on fused matrices."""
    rows = {row["name"]: row for row in json.loads(ROWS.read_text(encoding="utf-8"))["rows"]}
    assert len(rows) == len(CASES)
    for case in CASES:
        job, row = job_of(case), rows[case.name]
        trained = row["trainable_parameters"]
        frozen = row["parameters"] - trained if case.rank else row["parameters"]
        assert count_parameters(job.shape).total == frozen, case.name
        if case.rank and not (job.shape.fused_qkv and case.linear):
            assert adapter_parameters(complete(job)) == trained, case.name


def test_the_runs_not_used_to_choose_rules_stay_well_met() -> None:
    """Allocated bytes of them within 3 % in the mean, before the rules within 5 %."""
    runs = [run for run in held_out_runs()[1] if not run.chosen_on and not run.oom]

    def error(when: str) -> float:
        told = [getattr(run, when)["told"]["allocated"] / run.peaks["allocated"] for run in runs]
        return sum(abs(ratio - 1) for ratio in told) / len(told)

    assert error("now") < 0.03 < error("blind") < 0.05


def test_bloom_attends_eagerly_in_transformers_alone() -> None:
    """Nobody asks for it; Megatron fuses what it trains."""
    job = replace(TRAINER, shape=shape_of("bloom-560m"))
    assert kept(job) == kept(replace(job, flash_attention=False))
    megatron = replace(job, framework="megatron", precision="megatron")
    assert kept(megatron) < kept(replace(megatron, flash_attention=False))


def test_one_key_head_of_falcon_keeps_fp32_scores() -> None:
    """4 bytes a score; the newer architecture with groups of heads is fused."""
    assert known_model("falcon-7b").attention == shape_of("falcon-7b-cut").attention
    for model, changed, scores in (
        ("falcon-7b-cut", {}, 4),
        ("falcon-7b-cut", {"new_decoder_architecture": True, "num_kv_heads": 1}, 0),
        ("falcon-rw-1b", {}, 0),
    ):
        shape = shape_of(model, **changed)
        job = replace(TRAINER, shape=shape, sequence_length=1024)
        longer = replace(job, sequence_length=2048)
        assert kept(longer) - kept(job) == scores * 1024 * shape.heads, (model, changed)


def test_the_bias_of_every_head_is_cast_in_each_layer_under_autocast() -> None:
    """2 bytes a score where weights are fp32, none where the bias is 16-bit already."""
    shape = shape_of("falcon-rw-1b")
    job = replace(TRAINER, shape=shape, sequence_length=1024, precision="amp")
    longer = replace(job, sequence_length=2048)
    assert kept(longer) - kept(job) == 2 * 1024 * shape.heads


@pytest.mark.parametrize(
    ("model", "precision", "scores"),
    [("llama3-8b", "fp32", 4), ("llama3-8b", "amp", 0), ("llama2-7b", "fp32", 0)],
)
def test_fp32_attention_over_grouped_heads_is_not_fused(
    model: str, precision: str, scores: float
) -> None:
    """No fused kernel of torch takes both: 4 bytes a score, unless heads are repeated."""
    job = replace(TRAINER, shape=known_model(model), precision=precision, sequence_length=1024)
    longer = replace(job, sequence_length=2048)
    assert kept(longer) - kept(job) == scores * 1024 * job.shape.heads
    padded = replace(job, length_varies=True), replace(longer, length_varies=True)
    assert kept(padded[0]) == kept(padded[1])


@pytest.mark.parametrize(
    ("framework", "compiled", "each"),
    [
        ("pytorch", False, 14),
        ("pytorch", True, 10),
        ("accelerate", False, 17),
        ("lightning", False, 12),
    ],
)
def test_a_loop_keeps_the_logits_of_its_last_outputs(
    framework: str, compiled: bool, each: float
) -> None:
    """2 bytes a logit more than the Trainer, and an fp32 copy in accelerate."""
    job = replace(TRAINER, framework=framework, compiled=compiled, sequence_length=8192)
    assert part(job, "logits and loss") == each * STATED.shape.vocab * 2 * 8192


def test_lightning_keeps_gradients_through_the_forward_pass() -> None:
    """They are let go between forward and backward pass, so the logits come on top of them."""
    job = replace(TRAINER, gradient_accumulation=1)
    gradients = 2 * count_parameters(job.shape).total
    for framework, held in (("lightning", gradients), ("transformers", 0)):
        events = step_events(complete(replace(job, framework=framework)))
        forward = next(event for event in events if event.name == "forward")
        assert dict(forward.static)["gradients"] == held


def test_lightning_trains_16_bit_adapters_in_bf16_true() -> None:
    """Their weights, and no input in fp32; the Trainer's adapters stay in fp32."""
    lightning = replace(LORA, framework="lightning", precision="bf16-true")
    assert complete(lightning).policy.weight == 2
    assert complete(replace(lightning, framework="transformers")).policy.weight == 4
    assert kept(lightning) < kept(replace(lightning, framework="transformers"))


def test_momentum_steps_in_place() -> None:
    """SGD copies no moment."""
    small = replace(TRAINER, micro_batch=1, sequence_length=1, optimizer="sgd_momentum")
    assert part(small, "optimizer states") > 0
    assert part(small, "optimizer step") == 0


@pytest.mark.parametrize("family", ["mpt", "gpt_neo", "gptj", "bloom"])
def test_families_without_a_fused_attention_are_eager(family: str) -> None:
    """Their code in transformers multiplies, takes a softmax and multiplies."""
    config = {"model_type": family, "hidden_size": 64, "n_embd": 64, "d_model": 64, "vocab_size": 9}
    config |= {"num_layers": 2, "n_layers": 2, "n_layer": 2, "num_hidden_layers": 2}
    config |= {"num_heads": 4, "n_heads": 4, "n_head": 4, "num_attention_heads": 4}
    config |= {"n_positions": 9, "max_position_embeddings": 9, "max_seq_len": 9}
    assert shape_from_config(config).shape.attention == "eager"


def test_granite_shares_no_embedding_unless_it_says_so() -> None:
    """The default of its configuration."""
    (name,) = (name for name in MODELS if "granite" in name)
    config = {key: value for key, value in MODELS[name].items() if key != "tie_word_embeddings"}
    assert not shape_from_config(config).shape.tied_embeddings


@pytest.mark.parametrize(("stated", "capped"), [(30.0, True), (None, False)])
def test_logits_are_capped_where_the_config_says_so(stated: float | None, capped: bool) -> None:
    """A family's habit gives way to what its config states."""
    shape = shape_of("gemma2-2b", final_logit_softcapping=stated)
    assert shape.softcapped_logits is capped


@pytest.mark.parametrize(("stated", "norms"), [(1, 1), (2, 2), (None, 2)])
def test_a_new_falcon_may_have_one_norm_for_both_branches(stated: int | None, norms: int) -> None:
    """Falcon 11B has one."""
    name = next(name for name in MODELS if "falcon" in name)
    changed = {"new_decoder_architecture": True, "num_ln_in_parallel_attn": stated}
    assert shape_of(name, **changed).norms_per_layer == norms


def test_capped_logits_are_kept_once_more() -> None:
    """The tanh of Gemma 2 keeps 2 bytes a logit."""
    job = replace(TRAINER, shape=shape_of("gemma2-2b"), sequence_length=8192)
    plain = replace(job, shape=replace(job.shape, softcapped_logits=False))
    more = part(job, "logits and loss") - part(plain, "logits and loss")
    assert more == 2 * job.shape.vocab * 2 * 8192


def test_layer_norms_cast_a_16_bit_stream_under_autocast() -> None:
    """4 bytes an element, 2 without autocast; RMSNorm has its own rule."""
    shape = shape_of("opt-1.3b")
    job = replace(LORA, shape=shape)
    rms = replace(job, shape=replace(shape, norm_vectors=1))
    assert kept(job) == kept(rms)
    compiled = replace(job, compiled=True), replace(rms, compiled=True)
    assert kept(compiled[0]) == kept(compiled[1])
    bare = replace(job, precision="bf16-true"), replace(rms, precision="bf16-true")
    assert kept(bare[1]) - kept(bare[0]) == 2 * 2 * shape.hidden


@pytest.mark.parametrize(
    ("stated", "composed"), [("gelu_new", True), ("gelu", False), (None, True)]
)
def test_gelu_is_the_one_that_the_config_names(stated: str | None, composed: bool) -> None:
    """Families of `gelu_new` may be trained with another, which torch has as one operation."""
    assert shape_of("gpt2-large", activation_function=stated).composed_gelu is composed
