"""Board power from utilization: what was measured comes back, and what is not known is said."""

import time
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from benchmarks._cap_slowdown import slowdown_under_cap
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.columns import SAMPLES, check_frame
from forecasting.power.cap import power_under_cap
from forecasting.power.cap_laws import learned_cap_laws
from forecasting.power.estimated import _not_negative, fit_power_models, readings_by_model
from forecasting.power.model import PowerModel
from forecasting.power.records import PowerSamples

H100 = "H100-SXM5-80GB"
CATALOGUE = load_gpu_catalogue()


def true_watts(utilization: np.ndarray) -> np.ndarray:
    """A board of 75 W idle and 700 W TDP that follows the model's own law."""
    awake = np.minimum(1, utilization / 0.05)
    return 75.0 + 625.0 * (0.08 * awake + 0.6 * utilization)


def make_samples(
    rows: int = 1200, *, seed: int = 0, noise: float = 8.0, apart: float = 0.0
) -> PowerSamples:
    """Readings of 24 jobs, each around its own utilization, a fifth at rest, a tenth not held.

    Jobs of one utilization draw up to `apart` more or less than the law.
    """
    rng = np.random.default_rng(seed)
    group = np.arange(rows) % 24
    utilization = np.clip(rng.uniform(0, 1, 24)[group] + rng.normal(scale=0.08, size=rows), 0, 1)
    utilization[group % 5 == 0] = 0.0
    held = (group % 10 != 0).astype(float)
    law = 75.0 + (true_watts(utilization) - 75.0) * rng.uniform(1 - apart, 1 + apart, 24)[group]
    power = law + 40.0 * held + rng.normal(scale=noise, size=rows)
    return PowerSamples(power_watts=power, utilization=utilization, allocated=held, group=group)


def fitted(samples: PowerSamples | None = None, name: str = H100) -> PowerModel:
    """The model of one GPU model."""
    given_samples = {} if samples is None else {H100: samples}
    return fit_power_models(given_samples, CATALOGUE, signal="sm_active")[name]


MEASURED = fitted(make_samples())


def test_a_known_law_is_found_again() -> None:
    """Predictions on new jobs are within the noise of the truth."""
    new = make_samples(seed=1)
    found = MEASURED.predict(new.utilization, allocated=new.allocated)
    assert np.abs(found.central - new.power_watts).mean() < 14


def test_knowing_what_is_held_helps() -> None:
    """The left-out error falls, and counts every reading."""
    alone, both = (fit.error for fit in MEASURED.fits)
    assert alone is not None
    assert both is not None
    assert both.mae_watts < alone.mae_watts
    assert both.samples == 1200


def test_an_unknown_utilization_has_no_power() -> None:
    """Where it is NaN nothing is said, row by row."""
    found = MEASURED.predict(np.array([0.5, np.nan]), allocated=1.0)
    assert np.isfinite(found.central).tolist() == [True, False]


def test_a_wild_tenth_of_readings_moves_little() -> None:
    """Readings of 3,000 W in every tenth row shift the fit by less than 5 %."""
    clean = make_samples()
    power = clean.power_watts.copy()
    power[::10] = 3000.0
    wild = PowerSamples(
        power_watts=power, utilization=clean.utilization, group=np.asarray(clean.group)
    )
    tame = PowerSamples(
        power_watts=clean.power_watts, utilization=clean.utilization, group=np.asarray(clean.group)
    )
    grid = np.linspace(0.1, 0.9, 9)
    assert fitted(wild).predict(grid).central == pytest.approx(
        fitted(tame).predict(grid).central, rel=0.05
    )


def test_the_interval_holds_four_fifths_of_new_readings() -> None:
    """On jobs that were not seen, q10 to q90 holds 76 to 92 %, over ten fleets."""
    inside = []
    for seed in range(10):
        model, new = (
            fitted(make_samples(seed=seed, apart=0.3)),
            make_samples(seed=100 + seed, apart=0.3),
        )
        found = model.predict(new.utilization, allocated=new.allocated)
        inside.append(((new.power_watts >= found.low) & (new.power_watts <= found.high)).mean())
    assert 0.76 <= np.mean(inside) <= 0.92


def test_readings_at_the_cap_do_not_hide_the_demand() -> None:
    """Fitted under a cap of 300 W, full work is expected to draw far more without it."""
    utilization = np.random.default_rng(0).uniform(0, 1, 600)
    power = power_under_cap(75.0 + 500.0 * utilization, 300.0)
    capped = PowerSamples(power_watts=power, utilization=utilization, cap_watts=np.full(600, 300.0))
    blind = PowerSamples(power_watts=power, utilization=utilization)
    assert fitted(capped).predict(1.0).central > 420
    assert fitted(blind).predict(1.0).central < 320
    assert fitted(capped).predict(0.4).central == pytest.approx(275, rel=0.08)


def test_no_prediction_exceeds_the_cap_or_the_tdp() -> None:
    """Full load under 300 W is capped, and without a cap below the TDP."""
    under = MEASURED.predict(1.0, allocated=1.0, power_cap_watts=300.0)
    assert under.central <= 300
    assert under.high <= 300
    assert MEASURED.predict(1.0, allocated=1.0).high <= 700


def test_a_model_without_readings_rests_on_the_catalogue() -> None:
    """An unmeasured L4 is between its idle power and TDP, with a wide range."""
    found = fitted(name="L4-24GB").predict([0.0, 0.5, 1.0])
    assert found.central[0] == pytest.approx(16, rel=1e-4)
    assert 16 < found.central[1] < found.central[2] < 72
    assert (found.high - found.low)[1] > 20


def test_a_fleet_teaches_the_models_it_has_not_measured() -> None:
    """Where the measured H100 draws little for its load, the unmeasured A100 is expected to."""
    frugal = make_samples()
    power = 75 + 0.4 * (frugal.power_watts - 75)
    samples = PowerSamples(power_watts=power, utilization=frugal.utilization, group=frugal.group)
    models = fit_power_models({H100: samples}, CATALOGUE, signal="sm_active")
    before = fitted(name="A100-SXM4-80GB").predict(0.8).central
    assert models["A100-SXM4-80GB"].predict(0.8).central < before


def test_a_model_that_the_catalogue_lacks_is_fitted_on_its_own() -> None:
    """An unlisted board takes idle and TDP from its readings."""
    made = make_samples()
    samples = PowerSamples(power_watts=made.power_watts, utilization=made.utilization)
    model = fit_power_models({"X900": samples}, CATALOGUE, signal="gpu_util")["X900"]
    assert model.predict(0.5).central == pytest.approx(MEASURED.predict(0.5).central, rel=0.1)


def test_idle_power_is_measured_where_boards_rest() -> None:
    """Readings at rest replace the catalogue's idle power."""
    rng = np.random.default_rng(0)
    samples = PowerSamples(
        power_watts=np.concatenate([np.full(40, 66.0), 400 + rng.normal(size=40)]),
        utilization=np.concatenate([np.zeros(40), np.full(40, 0.6)]),
    )
    model = fitted(samples)
    assert model.idle_watts == 66.0


def test_boards_that_always_rest_leave_the_prior() -> None:
    """Utilization of exactly 0 at every reading moves no term of work: no fit, and no error."""
    resting = PowerSamples(
        power_watts=np.full(60, 66.0), utilization=np.zeros(60), group=np.arange(60) % 3
    )
    models = fit_power_models(
        {H100: make_samples(), "A100-SXM4-80GB": resting}, CATALOGUE, signal="sm_active"
    )
    assert np.isfinite(models["A100-SXM4-80GB"].predict(0.8).central).all()


@pytest.mark.parametrize("rows", [0, 1, 7])
def test_few_readings_leave_the_prior(rows: int) -> None:
    """Fewer than eight readings are no fit: the answer is the catalogue's, without an error."""
    few = PowerSamples(power_watts=np.full(rows, 300.0), utilization=np.full(rows, 0.5))
    model = fitted(few)
    assert all(fit.error is None for fit in model.fits)


def test_broken_readings_are_left_out() -> None:
    """NaN, infinite, negative power and impossible utilization change nothing."""
    made = make_samples()
    bad = np.array([np.nan, np.inf, -50.0, 300.0, 300.0])
    samples = PowerSamples(
        power_watts=np.concatenate([made.power_watts, bad]),
        utilization=np.concatenate([made.utilization, [0.5, 0.5, 0.5, np.nan, 7.0]]),
        group=np.concatenate([np.asarray(made.group), np.zeros(5, dtype=int)]),
    )
    clean = PowerSamples(
        power_watts=made.power_watts, utilization=made.utilization, group=made.group
    )
    assert fitted(samples).predict(0.5).central == fitted(clean).predict(0.5).central


def test_columns_of_different_length_are_refused() -> None:
    """A column with another number of rows is an error that names it."""
    with pytest.raises(ValueError, match="allocated has 2 rows, power_watts 3"):
        PowerSamples(power_watts=np.ones(3), utilization=np.ones(3), allocated=np.ones(2))


@settings(max_examples=examples(100), deadline=None)
@given(
    st.floats(0, 1),
    st.sampled_from(["utilization", "allocated", "power_cap_watts"]),
    st.floats(0, 1),
    st.floats(100, 900),
)
def test_more_of_anything_never_draws_less(used, name, more, cap) -> None:
    """Power does not fall when an input or the cap rises, and low <= central <= high."""
    before = {"utilization": used, "allocated": 0.0, "power_cap_watts": cap}
    top = 900.0 if name == "power_cap_watts" else 1.0
    after = {**before, name: before[name] + more * (top - before[name])}
    first, second = (
        MEASURED.predict(value.pop("utilization"), **value) for value in (before, after)
    )
    assert second.central >= first.central - 1e-9
    assert first.low <= first.central <= first.high


@given(st.floats(0, 2000), st.floats(50, 1000))
def test_a_cap_never_adds_power(demand, cap) -> None:
    """Board power under a cap is at most the demand and 96 % of the cap."""
    watts = float(power_under_cap(demand, cap))
    assert watts <= demand + 1e-9
    assert watts <= 0.96 * cap + 1e-9


def near_a_cap(share: float, cap: float = 300.0) -> PowerSamples:
    """Readings up to 250 W, and as many that sit at a share of the cap."""
    return PowerSamples(
        power_watts=np.concatenate([np.linspace(80, 250, 100), np.full(100, share * cap)]),
        utilization=np.concatenate([np.linspace(0, 0.4, 100), np.full(100, 0.9)]),
        cap_watts=np.full(200, cap),
    )


def test_boards_that_reach_their_cap_teach_how_far() -> None:
    """Readings that sit at 99 % of a cap of 300 W move the reach from 96 to 99 %, in plans too."""
    model = fitted(near_a_cap(0.99))
    assert model.cap_reach == pytest.approx(0.99)
    assert model.predict(0.9, power_cap_watts=300.0).central == pytest.approx(297, rel=0.05)
    assert learned_cap_laws([model], CATALOGUE)[H100].reach == pytest.approx(0.99)


@given(st.floats(0.9, 1.05), st.floats(0.3, 0.9))
def test_boards_that_work_near_their_tdp_teach_nothing_of_caps(top: float, least: float) -> None:
    """Their work draws that much, whatever a cap would do: the published law holds."""
    activity = np.random.default_rng(1).uniform(least, 1, 400)
    samples = PowerSamples(
        power_watts=80 + (top * 700 - 80) * activity**0.4,
        utilization=activity,
        cap_watts=np.full(400, 700.0),
        group=np.arange(400) % 4,
    )
    assert learned_cap_laws([fitted(samples)], CATALOGUE) == {}
    both = replace(
        samples,
        power_watts=np.concatenate([samples.power_watts, near_a_cap(0.98).power_watts]),
        utilization=np.concatenate([samples.utilization, near_a_cap(0.98).utilization]),
        cap_watts=np.concatenate([np.full(400, 700.0), np.full(200, 300.0)]),
        group=np.arange(600) % 6,
    )
    assert learned_cap_laws([fitted(both)], CATALOGUE)[H100].reach == pytest.approx(0.98)


@pytest.mark.parametrize("cap", [np.nan, np.inf, 0.0])
def test_an_unknown_cap_is_none(cap: float) -> None:
    """Without a cap work draws what it draws."""
    assert power_under_cap(500.0, cap) == 500.0


def test_slowdown_grows_as_power_is_taken_away() -> None:
    """No cap costs no time, half the power costs 30-60 % centrally, and 0.3 is not known."""
    low, central, high = slowdown_under_cap([1.0, 0.85, 0.7, 0.55, 0.3])
    assert central[0] == 1.0
    assert (np.diff(central[:4]) > 0).all()
    assert 1.3 < central[3] < 1.6
    assert (low[:4] <= central[:4]).all()
    assert (central[:4] <= high[:4]).all()
    assert np.isnan(central[4])


def test_samples_of_whole_boards_become_readings() -> None:
    """MIG instances are left out; jobs are groups; a board with a job or memory is held."""
    frame = check_frame(
        pd.DataFrame(
            {
                "sampled_at": pd.Timestamp("2026-01-05", tz="UTC"),
                "gpu_uuid": ["a", "b", "c", "d"],
                "node": "n1",
                "gpu_model": H100,
                "mig_profile": ["", "", "", "1g.10gb"],
                "mig_instance": ["", "", "", "1"],
                "job_id": ["train", "", "", "train"],
                "utilization_ratio": [0.8, 0.0, 0.0, 0.5],
                "utilization_signal": "sm_active",
                "memory_used_mib": [60_000.0, 10.0, 40_000.0, 5_000.0],
                "memory_total_mib": 81_559.0,
                "power_watts": [600.0, 70.0, 115.0, 300.0],
                "power_limit_watts": 700.0,
            }
        ),
        SAMPLES,
    )
    (key, found), *others = readings_by_model(frame).items()
    assert others == []
    assert key == (H100, "sm_active")
    assert found.power_watts.tolist() == [600.0, 70.0, 115.0]
    assert found.column("allocated").tolist() == [1.0, 0.0, 1.0]
    assert found.column("group").tolist() == [0.0, 1.0, 2.0]
    assert found.column("cap_watts").tolist() == [700.0] * 3


def test_a_fleet_is_fitted_in_seconds() -> None:
    """200,000 readings of each of two models take less than 10 s of processor time."""
    made = make_samples(200_000)
    began = time.process_time()
    fit_power_models({H100: made, "A100-SXM4-80GB": made}, CATALOGUE, signal="sm_active")
    assert time.process_time() - began < 10


def test_coefficients_are_those_of_non_negative_least_squares() -> None:
    """Where none falls below 0 one system is solved, else SciPy; each equals SciPy's answer."""
    random = np.random.default_rng(7)
    bounded = 0
    for _case in range(200):
        columns = random.normal(size=(20, 3)) + 1
        normal = columns.T @ columns + 0.1 * np.eye(3)
        right_side = columns.T @ (columns @ [0.2, 0.6, 1.0] + random.normal(size=20))
        factor = np.linalg.cholesky(normal).T
        oracle, _ = nnls(factor, np.linalg.solve(factor.T, right_side))
        np.testing.assert_allclose(_not_negative(normal, right_side), oracle, atol=1e-9)
        bounded += bool((oracle == 0).any())
    assert 10 < bounded < 190
