"""The batch solver is at the optimum of Prophet's own posterior, and gives Prophet's forecast."""

from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd
import pytest
from prophet_equality import (
    HOUR,
    MONDAY,
    SAFE,
    SHAPES,
    History,
    Verdict,
    compare,
    quiet_prophet,
    simulated,
)

from benchmarks._prophet_design import bands, parameters, prophet_design
from forecasting.prophet.batch import ProphetFits, fit_batch
from forecasting.prophet.terms import ProphetOptions


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
    fits = fit_batch(simulated(shape, 1, 336, HOUR), HOUR, MONDAY, options=SAFE)
    assert_equal_to_prophet(compare(fits, 0))


def test_prophet_cannot_improve_on_a_week_of_five_minutes() -> None:
    """2,016 slots of 5 minutes, with gaps."""
    fits = fit_batch(simulated("gaps", 1, 2016, 300), 300, MONDAY, options=SAFE)
    assert_equal_to_prophet(compare(fits, 0))


@pytest.mark.slow
@pytest.mark.parametrize("shape", SHAPES)
def test_prophet_cannot_improve_on_any_of_210_series(shape: str) -> None:
    """21 series of every shape: a fortnight of hours, three weeks of hours, a week of 5 min."""
    for slots, slot_seconds, number in ((336, HOUR, 14), (504, HOUR, 6), (2016, 300, 1)):
        values = simulated(shape, number, slots, slot_seconds, seed=1)
        fits = fit_batch(values, slot_seconds, MONDAY + 5 * HOUR, options=SAFE)
        for series in range(number):
            assert_equal_to_prophet(compare(fits, series))


def test_the_lower_of_two_optima_is_found() -> None:
    """Two starts enclose all stationary points; where they part, the lower objective wins."""
    values = simulated("random walk", 400, 336, HOUR, seed=7)
    one, two = fit_batch(values, HOUR, MONDAY), fit_batch(values, HOUR, MONDAY, options=SAFE)
    parted = two.answers.lone == 0
    assert 0 < parted.sum() < 40
    assert (two.answers.objective <= one.answers.objective).all()
    assert (one.answers.objective - two.answers.objective)[parted].max() > 1
    np.testing.assert_allclose(
        two.answers.objective[~parted], one.answers.objective[~parted], rtol=1e-12
    )
    assert two.answers.residual.max() < 1e-6


def test_the_objective_is_the_posterior_written_out() -> None:
    """The figures from the Gram matrix are those from the columns and the data."""
    fits = fit_batch(simulated("level shift", 20, 336, HOUR), HOUR, MONDAY)
    for series in range(20):
        history = History.of(fits, series)
        ours = parameters(fits, series)
        assert history.objective(ours) == pytest.approx(fits.answers.objective[series], abs=1e-8)
        assert history.kkt_residual(ours) < 1e-6


@pytest.mark.parametrize(
    ("known", "slot_seconds", "options"),
    [
        (range(336), HOUR, {}),
        (range(337), HOUR, {}),
        (range(49), HOUR, {}),
        (range(48), HOUR, {}),
        (range(2), HOUR, {}),
        (range(3), HOUR, {}),
        (range(20), HOUR, {}),
        (range(33), HOUR, {}),
        (range(0, 400, 24), HOUR, {}),
        (range(0, 336 * 12, 168), HOUR, {}),
        (range(7, 400, 3), HOUR, {}),
        ([0, 1, 2, 3, 9, 40, 77, 78, 90, 91, 95], HOUR, {}),
        (range(740), 86_400, {}),
        (range(2016), 300, {"daily_seasonality": 10, "weekly_seasonality": 3}),
        (range(336), HOUR, {"n_changepoints": 0}),
        (range(336), HOUR, {"n_changepoints": 7, "changepoint_range": 0.9}),
        (range(336), HOUR, {"growth": "flat", "daily_seasonality": 2}),
        (range(336), HOUR, {"seasonality_prior_scale": 0.3, "changepoint_prior_scale": 0.5}),
    ],
)
def test_the_design_is_prophets(known: Any, slot_seconds: int, options: dict[str, Any]) -> None:
    """Times, changepoints, Fourier columns and prior scales are what Prophet hands to Stan."""
    times = MONDAY + 7777 + np.array(known) * slot_seconds
    rng = np.random.default_rng(3)
    model = quiet_prophet(**options)
    handed = model.preprocess(
        pd.DataFrame({"ds": pd.to_datetime(times, unit="s"), "y": rng.normal(size=len(times))})
    )
    ours = {
        "n_changepoints": "changepoints",
        "daily_seasonality": "daily",
        "weekly_seasonality": "weekly",
    }
    chosen = ProphetOptions(**{ours.get(name, name): option for name, option in options.items()})
    design = prophet_design(times, chosen)
    columns = design.columns(times)
    trend = 1 if chosen.growth == "flat" else 2
    seasonal = columns[:, trend : len(design.precision)]
    np.testing.assert_allclose(design.unit_times(times), handed.t, rtol=0, atol=1e-14)
    if chosen.growth == "linear":
        np.testing.assert_allclose(design.changepoints, handed.t_change, rtol=0, atol=1e-14)
    assert [seasonality.name for seasonality in design.seasonalities] == list(model.seasonalities)
    if design.seasonalities:
        np.testing.assert_allclose(seasonal, handed.X.to_numpy(), rtol=0, atol=1e-8)
        np.testing.assert_allclose(design.precision[trend:], 1 / np.square(handed.sigmas))
    else:
        assert seasonal.shape[1] == 0
    assert design.tau == handed.tau
    # k and m ~ normal(0, 5) stand in Prophet's Stan program only.
    np.testing.assert_allclose(design.precision[:trend], 1 / 25)


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


def test_flat_growth_is_a_ridge() -> None:
    """Without trend changes the terms are a ridge at the noise found, and the noise its root."""
    values = simulated("log-normal flow", 4, 336, HOUR)
    fits = fit_batch(values, HOUR, MONDAY, options=ProphetOptions(growth="flat"))
    for series in range(4):
        history, ours = History.of(fits, series), parameters(fits, series)
        theta, sigma = history.terms(ours)
        x, y = history.columns, history.y / history.scale
        ridge = np.linalg.solve(x.T @ x + sigma**2 * np.diag(history.design.precision), x.T @ y)
        np.testing.assert_allclose(theta, ridge, rtol=0, atol=1e-9)
        rss = np.sum((y - x @ ridge) ** 2)
        assert 4 * sigma**4 + len(y) * sigma**2 == pytest.approx(rss, rel=1e-7)


def test_flat_growth_is_prophets() -> None:
    """Prophet with flat growth does not leave the answer either."""
    values = simulated("gaps", 1, 336, HOUR)
    fits = fit_batch(values, HOUR, MONDAY, options=ProphetOptions(growth="flat"))
    history, ours = History.of(fits, 0), parameters(fits, 0)
    start = {**ours, "delta": np.zeros(25)}
    model = quiet_prophet(growth="flat", uncertainty_samples=0).fit(history.frame(), init=start)
    assert np.abs(history.yhat(model.params) - history.yhat(ours)).max() < 1e-5 * history.y.std()


def test_without_changepoints_there_is_no_trend_noise() -> None:
    """Prophet's stand-in changepoint is part of k: bands are as if there were none."""
    options = ProphetOptions(changepoints=0, changepoint_prior_scale=1000.0, daily=0)
    fits = fit_batch(simulated("decline", 1, 336, HOUR), HOUR, MONDAY, options=options)
    history, ours = History.of(fits, 0), parameters(fits, 0)
    stan = quiet_prophet(n_changepoints=0, changepoint_prior_scale=1000.0, daily_seasonality=False)
    stan.fit(history.frame(), init={**ours, "beta": np.zeros(1)})
    yhat = stan.predict(future(fits, 0, 48))["yhat"]
    forecast = fits.predict(48)
    np.testing.assert_allclose(forecast[0], yhat, rtol=1e-5)
    half = forecast[0] - bands(fits, 48)[0, 0]
    np.testing.assert_allclose(half, half[0], rtol=1e-6)


def test_a_constant_series_is_as_prophet_makes_it() -> None:
    """Prophet does not optimise it: the value goes on, with next to no band."""
    fits = fit_batch(np.full((1, 100), 42.0), HOUR, MONDAY)
    model = quiet_prophet().fit(History.of(fits, 0).frame())
    drawn = model.predict(future(fits, 0, 5))
    forecast = fits.predict(5)
    np.testing.assert_allclose(forecast[0], drawn["yhat"], rtol=1e-12)
    np.testing.assert_allclose(bands(fits, 5)[0, 0], drawn["yhat_lower"], atol=1e-6)
    assert model.params["sigma_obs"].item() == np.sqrt(fits.answers.variance[0])
