"""A plan is called fitting by a probability, and by the very distribution that is shown."""

from dataclasses import replace
from functools import cache

import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from data.base.errors import ImpossibleProblemError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from planner.memory.estimate.bounds import FIT_PROBABILITY, USABLE_RATIO, bound_factor
from planner.memory.estimate.calibration import Calibration
from planner.memory.estimate.predictor import finished_run, needed_bytes, predict_peak
from planner.memory.estimate.training_plans import (
    GpuType,
    PlanQuestion,
    TrainingPlan,
    training_plans,
)
from planner.memory.models.model_sizes import known_model
from planner.memory.step.framework_traits import known_frameworks
from planner.memory.step.training_job import Recompute, TrainingJob

MODELS = ("tinyllama-1.1b", "llama3.2-3b", "llama3-8b", "llama2-13b", "phi-2")
BOARDS = tuple(GpuType.of(model) for model in load_gpu_catalogue())


@st.composite
def questions(draw: st.DrawFn) -> PlanQuestion:
    """A model, its recipe as far as it is stated, boards, a batch, and finished runs."""
    job = TrainingJob(
        shape=known_model(draw(st.sampled_from(MODELS))),
        framework=draw(st.sampled_from(("", *known_frameworks()))),
        sequence_length=draw(st.sampled_from((512, 2048, 4096, 16384))),
        optimizer=draw(st.sampled_from((None, "adamw", "adamw8bit", "sgd"))),
        length_varies=draw(st.sampled_from((None, False, True))),
    )
    calibration = None
    if runs := draw(st.integers(0, 12)):
        calibration = Calibration(family="drawn")
        off = draw(st.floats(0.7, 1.5))
        for length in range(512, 512 + 64 * runs, 64):
            one = replace(job, sequence_length=length, micro_batch=1)
            calibration = calibration.with_run(
                finished_run(one, off * predict_peak(one).nvml_bytes)
            )
    return PlanQuestion(
        job=job,
        global_batch=draw(st.sampled_from((1, 8, 48, 64, 256))),
        gpu_types=tuple(draw(st.lists(st.sampled_from(BOARDS), min_size=1, max_size=2))),
        max_gpus=draw(st.sampled_from((1, 4, 8))),
        calibration=calibration,
        raised=draw(st.sampled_from((1.0, 1.05, 1.6))),
        micro_batches=(1, 4),
        recomputes=(Recompute.NONE, Recompute.FULL),
    )


def plans_of(question: PlanQuestion) -> tuple[TrainingPlan, ...]:
    """The plans, none where the tensors have room nowhere."""
    try:
        return training_plans(question)
    except ImpossibleProblemError:
        return ()


@settings(max_examples=examples(60), deadline=None)
@given(questions())
def test_a_plan_fits_by_the_distribution_that_is_shown(question: PlanQuestion) -> None:
    """Fitting plans keep their 95 % bound within what a process can have, all others do not.

    The bounds are those that the benchmark covers, over a median that no board cuts off.
    """
    plans = plans_of(question)
    for plan in plans:
        found, usable = plan.estimate, USABLE_RATIO * (plan.job.gpu_memory_bytes or 0.0)
        whole = predict_peak(
            replace(plan.job, gpu_memory_bytes=None), calibration=question.calibration
        )
        assert found.p50_bytes == pytest.approx(whole.p50_bytes * question.raised)
        assert found.p95_bytes / found.p50_bytes == pytest.approx(whole.p95_bytes / whole.p50_bytes)
        assert whole.p95_bytes <= whole.p50_bytes * bound_factor(whole.tier, 0.95) * (1 + 1e-9)
        assert found.p50_bytes < found.p90_bytes < found.p95_bytes < found.p99_bytes
        assert plan.fits is (plan.fit_probability >= FIT_PROBABILITY)
        assert plan.fits is (found.p95_bytes <= usable)
        assert needed_bytes(found) <= (plan.job.gpu_memory_bytes or 0.0)
        parts = sum(size for _, size in found.breakdown)
        assert parts == pytest.approx(found.allocated_bytes)


@settings(max_examples=examples(30), deadline=None)
@given(questions())
def test_what_fits_comes_first_and_the_rest_by_its_probability(question: PlanQuestion) -> None:
    """Speed decides between plans that fit, the probability between those that do not."""
    plans = plans_of(question)
    fits = [plan.fits for plan in plans]
    assert fits == sorted(fits, reverse=True)
    speeds = [plan.speed_per_gpu for plan in plans if plan.fits]
    assert speeds == sorted(speeds, reverse=True)
    rest = [plan.fit_probability for plan in plans if not plan.fits]
    assert rest == sorted(rest, reverse=True)


@cache
def peak_of(framework: str, varies: bool | None) -> TrainingPlan:
    """Any plan of a recipe."""
    job = TrainingJob(
        shape=known_model("tinyllama-1.1b"), framework=framework, sequence_length=2048,
        optimizer="adamw", precision="amp", length_varies=varies,
    )  # fmt: skip
    question = PlanQuestion(job=job, global_batch=8, gpu_types=BOARDS[:1], max_gpus=8)
    return training_plans(question)[0]


@given(
    framework=st.sampled_from(("", "torchtitan", "peft")),
    varies=st.sampled_from((None, False, True)),
    low=st.floats(0.0, 5.0),
    more=st.floats(0.0, 5.0),
)
def test_the_probability_is_a_distribution(
    framework: str, varies: bool | None, low: float, more: float
) -> None:
    """It rises with the memory, meets every bound at its share, and is never certain."""
    estimate = peak_of(framework, varies).estimate
    low_share = estimate.probability_within(low * estimate.p50_bytes)
    assert 0.01 <= low_share <= estimate.probability_within((low + more) * estimate.p50_bytes)
    assert estimate.probability_within((low + more) * estimate.p50_bytes) <= 0.99
    bounds = {0.5: estimate.p50_bytes, 0.9: estimate.p90_bytes, 0.95: estimate.p95_bytes,
        0.99: estimate.p99_bytes}  # fmt: skip
    for share, bound in bounds.items():
        assert estimate.probability_within(bound) == pytest.approx(share)
        mirrored = estimate.p50_bytes**2 / bound
        assert estimate.probability_within(mirrored) == pytest.approx(1 - share)
