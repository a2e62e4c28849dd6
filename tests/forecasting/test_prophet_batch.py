"""The batch solver is at the optimum of Prophet's own posterior, and gives Prophet's forecast."""

from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
import pytest
from prophet_equality import (
    HOUR,
    MONDAY,
    SHAPES,
    History,
    Verdict,
    compare,
    quiet_prophet,
    simulated,
)

from benchmarks._prophet_design import bands, parameters, prophet_design
from forecasting.prophet.batch import ProphetFits, fit_batch


def assert_equal_to_prophet(verdict: Verdict) -> None:
    """Prophet does not find a lower objective, and does not leave our answer."""
    assert verdict.gap >= -1e-6
    assert verdict.gained <= 1e-6
    assert verdict.moved <= 1e-5
    assert verdict.kkt_residual < 1e-5


def future(fits: ProphetFits, series: int, horizon: int) -> pd.DataFrame:
    """The horizon's times as Prophet takes them."""
    slots = fits.values.shape[1] + np.arange(horizon)
    times = fits.first_slot[series] + slots * fits.slot_seconds
    return pd.DataFrame({"ds": pd.to_datetime(times, unit="s")})


def prophet_at(fits: ProphetFits, series: int, **options: Any) -> Any:
    """Prophet fitted from our answer, and then set to exactly our parameters."""
    ours = parameters(fits, series)
    model = quiet_prophet(**options).fit(History.of(fits, series).frame(), init=ours)
    model.params = {name: np.reshape(value, (1, -1)) for name, value in ours.items()}
    return model


@pytest.mark.parametrize("shape", SHAPES)
def test_prophet_cannot_improve_on_the_batch(shape: str) -> None:
    """One hourly series of every shape."""
    fits = fit_batch(simulated(shape, 1, 336, HOUR), HOUR, MONDAY)
    assert_equal_to_prophet(compare(fits, 0))


def test_prophet_cannot_improve_on_a_week_of_five_minutes() -> None:
    """2,016 slots of 5 minutes, with gaps."""
    fits = fit_batch(simulated("gaps", 1, 2016, 300), 300, MONDAY)
    assert_equal_to_prophet(compare(fits, 0))


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_prophet_cannot_improve_on_any_of_210_series(shape: str) -> None:
    """21 series of every shape: a fortnight of hours, three weeks of hours, a week of 5 min."""
    for slots, slot_seconds, number in ((336, HOUR, 14), (504, HOUR, 6), (2016, 300, 1)):
        values = simulated(shape, number, slots, slot_seconds, seed=1)
        fits = fit_batch(values, slot_seconds, MONDAY + 5 * HOUR)
        for series in range(number):
            assert_equal_to_prophet(compare(fits, series))


@pytest.mark.parametrize(
    ("known", "slot_seconds"),
    [
        (range(336), HOUR),
        (range(337), HOUR),
        (range(49), HOUR),
        (range(48), HOUR),
        (range(2), HOUR),
        (range(3), HOUR),
        (range(20), HOUR),
        (range(33), HOUR),
        (range(0, 400, 24), HOUR),
        (range(0, 336 * 12, 168), HOUR),
        (range(7, 400, 3), HOUR),
        ([0, 1, 2, 3, 9, 40, 77, 78, 90, 91, 95], HOUR),
        (range(740), 86_400),
    ],
)
def test_the_design_is_prophets(known: Any, slot_seconds: int) -> None:
    """Times, changepoints, Fourier columns and prior scales are what Prophet hands to Stan."""
    times = MONDAY + 7777 + np.array(known) * slot_seconds
    rng = np.random.default_rng(3)
    model = quiet_prophet()
    handed = model.preprocess(
        pd.DataFrame({"ds": pd.to_datetime(times, unit="s"), "y": rng.normal(size=len(times))})
    )
    design = prophet_design(times)
    columns = design.columns(times)
    seasonal = columns[:, 2 : len(design.precision)]
    np.testing.assert_allclose(design.unit_times(times), handed.t, rtol=0, atol=1e-14)
    np.testing.assert_allclose(design.changepoints, handed.t_change, rtol=0, atol=1e-14)
    assert [seasonality.name for seasonality in design.seasonalities] == list(model.seasonalities)
    if design.seasonalities:
        np.testing.assert_allclose(seasonal, handed.X.to_numpy(), rtol=0, atol=1e-8)
        np.testing.assert_allclose(design.precision[2:], 1 / np.square(handed.sigmas))
    else:
        assert seasonal.shape[1] == 0
    assert design.tau == handed.tau
    # k and m ~ normal(0, 5) stand in Prophet's Stan program only.
    np.testing.assert_allclose(design.precision[:2], 1 / 25)


def test_the_forecast_is_prophets_at_the_same_optimum() -> None:
    """With gaps, at both ends too: Prophet started at our answer forecasts what we forecast."""
    values = simulated("gaps", 3, 336, HOUR)
    values[1, :31], values[2, -17:] = np.nan, np.nan
    fits = fit_batch(values, HOUR, MONDAY + 11 * HOUR)
    forecast = fits.predict(30)
    for series in range(3):
        model = quiet_prophet(uncertainty_samples=0)
        model.fit(History.of(fits, series).frame(), init=parameters(fits, series))
        yhat = model.predict(future(fits, series, 30))["yhat"].to_numpy()
        spread = np.nanstd(values[series])
        np.testing.assert_allclose(forecast[series], yhat, rtol=0, atol=1e-5 * spread)


@pytest.mark.parametrize(
    ("shape", "slot_seconds", "slots", "horizon", "tolerance"),
    [
        ("level shift", HOUR, 336, 24, 0.03),
        ("decline", HOUR, 336, 168, 0.06),
        ("weekend drop", 300, 2016, 288, 0.08),
        ("random walk", HOUR, 336, 1, 0.03),
    ],
)
def test_bands_are_prophets(
    shape: str, slot_seconds: int, slots: int, horizon: int, tolerance: float
) -> None:
    """The closed form is within Monte-Carlo noise of 20,000 paths that Prophet draws."""
    fits = fit_batch(simulated(shape, 2, slots, slot_seconds), slot_seconds, MONDAY)
    point, edges = fits.predict(horizon), bands(fits, horizon)
    for series in range(2):
        model = prophet_at(fits, series, uncertainty_samples=20_000)
        np.random.seed(5)  # noqa: NPY002 - Prophet draws from the global generator
        drawn = model.predict(future(fits, series, horizon))
        ours = edges[2, series] - edges[0, series]
        theirs = (drawn["yhat_upper"] - drawn["yhat_lower"]).to_numpy()
        assert np.abs(ours / theirs - 1).max() < tolerance
        np.testing.assert_allclose(edges[1, series], point[series])


@pytest.mark.parametrize("horizon", [1, 30])
def test_the_variance_of_the_trend_is_that_of_prophets_draws(horizon: int) -> None:
    """Step by step, with gaps: of a single slot Prophet takes the mean step of the known points."""
    values = simulated("level shift", 1, 336, HOUR)
    values[0, 100:240] = np.nan
    fits = fit_batch(values, HOUR, MONDAY)
    root = NormalDist().cdf(3**0.5)  # where the correction for the fourth cumulant is 0
    above = bands(fits, horizon, (root,))[0, 0] - fits.predict(horizon)[0]
    ours = (above / fits.scale[0]) ** 2 / 3 - fits.answers.variance[0]
    model = prophet_at(fits, 0, uncertainty_samples=40_000)
    np.random.seed(7)  # noqa: NPY002 - Prophet draws from the global generator
    trend = model.predictive_samples(future(fits, 0, horizon))["trend"] / fits.scale[0]
    np.testing.assert_allclose(ours, trend.var(axis=1), rtol=0.15)


def test_a_constant_series_is_as_prophet_makes_it() -> None:
    """Prophet does not optimise it: the value goes on, with next to no band."""
    fits = fit_batch(np.full((1, 100), 42.0), HOUR, MONDAY)
    model = quiet_prophet().fit(History.of(fits, 0).frame())
    drawn = model.predict(future(fits, 0, 5))
    forecast = fits.predict(5)
    np.testing.assert_allclose(forecast[0], drawn["yhat"], rtol=1e-12)
    np.testing.assert_allclose(bands(fits, 5)[0, 0], drawn["yhat_lower"], atol=1e-6)
    assert model.params["sigma_obs"].item() == np.sqrt(fits.answers.variance[0])
