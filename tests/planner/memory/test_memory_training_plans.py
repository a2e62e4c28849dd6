"""Plans fit, divide what they share out, and are ranked; what fits nowhere says what would."""

from dataclasses import replace
from typing import Any

import pytest

from data.base.errors import ImpossibleProblemError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from planner.memory.estimate.predictor import MemoryEstimate, refusal
from planner.memory.estimate.training_plans import (
    GpuType,
    PlanQuestion,
    TrainingPlan,
    prior_speed,
    training_plans,
    unbounded_peak,
)
from planner.memory.models.model_shape import ModelShape
from planner.memory.models.model_sizes import known_model
from planner.memory.step.training_job import Parallelism, Sharding, TrainingJob

H100 = GpuType(name="H100-SXM5-80GB", memory_bytes=80e9, relative_speed=2.6, price_per_hour=2.5)
A100 = GpuType(name="A100-SXM4-40GB", memory_bytes=40e9, relative_speed=1.3, price_per_hour=1.2)
QUESTION = PlanQuestion(
    job=TrainingJob(
        shape=known_model("llama3-8b"), sequence_length=4096, optimizer="adamw",
        length_varies=False, framework="torchtitan",
    ),
    global_batch=64,
    gpu_types=(H100, A100),
    max_gpus=32,
)  # fmt: skip


@pytest.fixture(scope="module")
def plans() -> tuple[TrainingPlan, ...]:
    """The plans of an 8-billion-parameter model on up to 32 GPUs of two types."""
    return training_plans(QUESTION)


def test_every_plan_fits_its_gpu(plans: tuple[TrainingPlan, ...]) -> None:
    """No plan needs more than its GPU has, with the margin."""
    sizes = {gpu.name: gpu.memory_bytes for gpu in QUESTION.gpu_types}
    assert plans
    assert all(refusal(plan.estimate, sizes[plan.gpu_type]) == "" for plan in plans)


def test_every_plan_trains_the_whole_batch(plans: tuple[TrainingPlan, ...]) -> None:
    """Micro-batch, data parallelism and accumulation multiply to the sequences of a step."""
    for plan in plans:
        spread = plan.job.parallelism
        sequences = (plan.job.micro_batch or 0) * (plan.job.gradient_accumulation or 0)
        assert sequences * spread.data == 64
        assert spread.gpus == plan.gpus <= 32
        assert spread.tensor <= 8


def test_a_way_is_listed_once(plans: tuple[TrainingPlan, ...]) -> None:
    """Of one GPU type and parallelism only the fastest micro-batch stays."""
    ways = [(plan.gpu_type, plan.job.parallelism) for plan in plans]
    assert len(ways) == len(set(ways))


def test_each_way_is_estimated_once_and_as_if_it_were_alone(
    plans: tuple[TrainingPlan, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of six GPU types as of one, and the estimates are those of each plan by itself."""
    assert all(plan.estimate == unbounded_peak(plan.job) for plan in plans)
    asked = list[TrainingJob]()

    def noted(job: TrainingJob, **options: Any) -> MemoryEstimate:
        asked.append(replace(job, gpu_memory_bytes=None))
        return unbounded_peak(job, **options)

    monkeypatch.setattr("planner.memory.estimate.training_plans.unbounded_peak", noted)
    training_plans(replace(QUESTION, gpu_types=(H100,)))
    of_one = len(asked)
    assert of_one == len(set(asked))
    asked.clear()
    types = tuple(replace(H100, name=f"H100-{number}") for number in range(6))
    training_plans(replace(QUESTION, gpu_types=types))
    assert len(asked) == of_one


def test_small_cards_need_sharding() -> None:
    """On 40 GB cards no plan holds an unsharded 8-billion model on one tensor-parallel GPU."""
    found = training_plans(replace(QUESTION, gpu_types=(A100,)))
    alone = [
        plan
        for plan in found
        if plan.job.parallelism.tensor * plan.job.parallelism.pipeline == 1
        and plan.job.parallelism.sharding is not Sharding.FSDP
    ]
    assert alone == []


def test_a_model_that_fits_nowhere_names_the_smallest_cluster() -> None:
    """The error says how many GPUs of each type would do, and that many do."""
    large = replace(QUESTION.job, shape=known_model("llama3-70b"))
    with pytest.raises(ImpossibleProblemError, match="smallest cluster") as caught:
        training_plans(replace(QUESTION, job=large, max_gpus=4))
    assert H100.name in str(caught.value)
    count = int(caught.value.hint.split(": ")[1].split(" x ")[0])
    assert count > 4
    assert training_plans(replace(QUESTION, job=large, max_gpus=count, global_batch=256))


def test_ten_to_the_fifteenth_parameters_get_an_answer() -> None:
    """A model beyond any cluster is refused in words, not by an overflow."""
    huge = ModelShape(
        name="huge", layers=1000, hidden=290_000, heads=2320, kv_heads=2320, head_dim=125,
        ffn=1_160_000, vocab=100_000, gated_mlp=False,
    )  # fmt: skip
    with pytest.raises(ImpossibleProblemError, match=r"smallest cluster|not even"):
        training_plans(replace(QUESTION, job=replace(QUESTION.job, shape=huge)))


@pytest.mark.parametrize("changes", [{"global_batch": 0}, {"max_gpus": -1}, {"gpu_types": ()}])
def test_a_question_without_sense_is_refused(changes: dict[str, object]) -> None:
    """No batch, no GPUs or no GPU type is named."""
    with pytest.raises(ImpossibleProblemError):
        replace(QUESTION, **changes)


def test_gathering_weights_slows_small_micro_batches() -> None:
    """Under FSDP a micro-batch of 4,096 tokens keeps 0.7 to 0.9 of the speed of 32,768."""
    speeds = []
    for micro_batch in (1, 8):
        spread = Parallelism(data=8, sharding=Sharding.FSDP)
        job = replace(QUESTION.job, micro_batch=micro_batch, parallelism=spread)
        speeds.append(prior_speed(H100, job))
    assert 0.7 < speeds[0] / speeds[1] < 0.9


def test_more_nodes_lose_little_each() -> None:
    """From 8 to 512 GPUs a GPU loses between 5 and 10 % of its speed."""
    one, many = (
        prior_speed(H100, replace(QUESTION.job, parallelism=Parallelism(data=data))) / data
        for data in (8, 512)
    )
    assert 0.90 < many / one < 0.95


def test_a_pipeline_loses_its_bubble() -> None:
    """With 4 stages and 8 micro-batches 3 of 11 steps are idle."""
    job = replace(QUESTION.job, gradient_accumulation=8)
    piped = prior_speed(H100, replace(job, parallelism=Parallelism(pipeline=4)))
    plain = prior_speed(H100, replace(job, parallelism=Parallelism(data=4)))
    assert piped / plain == pytest.approx(8 / 11)


def test_a_catalogue_entry_is_a_gpu_type() -> None:
    """The catalogue's memory, speed and price become those of the type on offer."""
    model = load_gpu_catalogue().get("A100-SXM4-40GB")
    found = GpuType.of(model, gpus_per_node=4)
    assert found.memory_bytes == 40960 * 2**20
    assert (found.relative_speed, found.price_per_hour) == (1.3, 1.2)
    assert found.gpus_per_node == 4
