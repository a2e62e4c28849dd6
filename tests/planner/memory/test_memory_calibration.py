"""Finished jobs of a family correct the next estimate, against a strong prior."""

import math
from dataclasses import replace

import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from data.base.errors import ImpossibleProblemError
from planner.memory.estimate.bounds import Tier, bound_factor
from planner.memory.estimate.calibration import Calibration, Correction, FinishedRun
from planner.memory.estimate.correction import correction
from planner.memory.estimate.predictor import finished_run, predict_peak
from planner.memory.models.model_sizes import known_model
from planner.memory.step.training_job import Recompute, TrainingJob

GIB = 2**30
NONE = Calibration(family="none")


def runs_at(ratio: float, *, count: int) -> Calibration:
    """Finished runs of 10 to 40 GiB whose peaks are that many times the estimate."""
    calibration = Calibration(family="steady")
    for index in range(count):
        static, dynamic = (8 + index) * GIB, (2 + 2 * index) * GIB
        run = FinishedRun(
            static_bytes=static, dynamic_bytes=dynamic, measured_bytes=ratio * (static + dynamic)
        )
        calibration = calibration.with_run(run)
    return calibration


def corrected(calibration: Calibration) -> Correction:
    """The correction of a job of 20 GiB in the middle of those runs."""
    return correction(calibration, static_bytes=12 * GIB, dynamic_bytes=8 * GIB)


def test_without_finished_runs_the_estimate_stays() -> None:
    """The prior's middle is the estimate itself."""
    found = corrected(NONE)
    assert found.ratio == 1.0
    assert found.sample_count == 0


def test_ten_runs_of_one_ratio_are_learned() -> None:
    """Ten runs 12 % above their estimates raise the next by at least 10 %."""
    found = corrected(runs_at(1.12, count=10))
    assert found.ratio == pytest.approx(1.12, abs=0.02)
    assert found.sample_count == 10


def test_one_run_moves_less_than_ten() -> None:
    """The prior is strong: a single run is believed in part."""
    one, ten = (corrected(runs_at(1.12, count=count)).ratio for count in (1, 10))
    assert 1.0 < one < ten


def test_the_spread_shrinks_with_runs() -> None:
    """More finished runs of the family leave less open."""
    spreads = [corrected(runs_at(1.05, count=count)).spread for count in (0, 1, 3, 10)]
    assert spreads == sorted(spreads, reverse=True)


def test_one_broken_run_hardly_counts() -> None:
    """A run that measured four times its estimate moves ten good ones by less than 4 %."""
    good = runs_at(1.0, count=10)
    broken = FinishedRun(static_bytes=12 * GIB, dynamic_bytes=8 * GIB, measured_bytes=80 * GIB)
    assert corrected(good.with_run(broken)).ratio == pytest.approx(1.0, abs=0.04)


def test_the_oldest_run_goes_first() -> None:
    """A calibration holds at most 200 runs."""
    calibration = Calibration(family="long")
    for index in range(1, 203):
        calibration = calibration.with_run(
            FinishedRun(static_bytes=GIB, dynamic_bytes=GIB, measured_bytes=index * GIB)
        )
    assert calibration.sample_count == 200
    assert calibration.runs[0].measured_bytes == 3 * GIB


@settings(deadline=None, max_examples=examples(50))
@given(
    st.lists(st.tuples(*(st.floats(1e6, 1e12) for _ in range(3))), min_size=1, max_size=12),
    st.floats(0, 1e12),
    st.floats(1, 1e12),
)
def test_any_history_gives_a_usable_correction(
    history: list[tuple[float, float, float]], static: float, dynamic: float
) -> None:
    """Whatever was measured, the ratio is positive and finite, and so is its spread."""
    runs = tuple(
        FinishedRun(static_bytes=entry, dynamic_bytes=two, measured_bytes=three)
        for entry, two, three in history
    )
    found = correction(
        Calibration(family="any", runs=runs), static_bytes=static, dynamic_bytes=dynamic
    )
    assert 0 < found.ratio < 20
    assert math.isfinite(found.spread)
    assert found.spread > 0


@pytest.mark.parametrize("measured", [0.0, -1.0, math.nan, math.inf])
def test_a_measurement_that_is_none_is_refused(measured: float) -> None:
    """A peak of zero, NaN or less teaches nothing."""
    with pytest.raises(ImpossibleProblemError, match="measured_bytes"):
        FinishedRun(static_bytes=1.0, dynamic_bytes=1.0, measured_bytes=measured)


def test_a_prediction_uses_the_finished_runs_of_its_family() -> None:
    """Ten finished jobs 10 % above their estimate raise the prediction and narrow its bound."""
    job = TrainingJob(
        shape=known_model("phi-2"), framework="litgpt", micro_batch=2, sequence_length=1024,
        optimizer="adamw", recompute=Recompute.FULL, length_varies=True,
    )  # fmt: skip
    calibration = Calibration(family="litgpt full")
    for length in range(512, 1024, 52):
        other = replace(job, sequence_length=length)
        measured = 1.1 * predict_peak(other).nvml_bytes
        calibration = calibration.with_run(finished_run(other, measured))
    raw, learned = predict_peak(job), predict_peak(job, calibration=calibration)
    assert learned.p50_bytes == pytest.approx(1.1 * raw.p50_bytes, rel=0.02)
    assert learned.sample_count == calibration.sample_count
    assert learned.p99_bytes / learned.p50_bytes < raw.p99_bytes / raw.p50_bytes


def test_bounds_rise_with_their_share_and_with_the_tier() -> None:
    """99 % lies above 95 % above 90 %, and C above B above A."""
    for tier in Tier:
        factors = [bound_factor(tier, share) for share in (0.90, 0.95, 0.99)]
        assert factors == sorted(factors)
    for share in (0.90, 0.95, 0.99):
        factors = [bound_factor(tier, share) for tier in Tier]
        assert factors == sorted(factors)
