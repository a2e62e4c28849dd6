"""The batch solver is at the optimum of Prophet's own posterior, and gives Prophet's forecast."""

from statistics import NormalDist
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from prophet_equality import SHAPES, History, Verdict, compare, quiet_prophet, simulated

from data.compiled import outer
from data.errors import ForecastError
from forecasting.prophet.batch import fit_batch
from forecasting.prophet.fits import REASONS, FitStatus, ProphetFits
from forecasting.prophet.terms import ProphetOptions, prophet_design

Floats = npt.NDArray[np.float64]

MONDAY = 1_699_833_600
HOUR = 3600
SAFE = ProphetOptions(starts=2)


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
    ours = fits.parameters(series)
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
    parted = two.lone_optimum == 0
    assert 0 < parted.sum() < 40
    assert (two.objective <= one.objective).all()
    assert (one.objective - two.objective)[parted].max() > 1
    np.testing.assert_allclose(two.objective[~parted], one.objective[~parted], rtol=1e-12)
    assert two.kkt_residual.max() < 1e-6


def test_the_objective_is_the_posterior_written_out() -> None:
    """The figures from the Gram matrix are those from the columns and the data."""
    fits = fit_batch(simulated("level shift", 20, 336, HOUR), HOUR, MONDAY)
    for series in range(20):
        history = History.of(fits, series)
        ours = fits.parameters(series)
        assert history.objective(ours) == pytest.approx(fits.objective[series], abs=1e-8)
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
        model.fit(History.of(fits, series).frame(), init=fits.parameters(series))
        yhat = model.predict(future(fits, series, 30))["yhat"].to_numpy()
        spread = np.nanstd(values[series])
        np.testing.assert_allclose(forecast.point[series], yhat, rtol=0, atol=1e-5 * spread)


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
    forecast = fits.predict(horizon, (0.1, 0.5, 0.9))
    for series in range(2):
        model = prophet_at(fits, series, uncertainty_samples=20_000)
        np.random.seed(5)  # noqa: NPY002 - Prophet draws from the global generator
        drawn = model.predict(future(fits, series, horizon))
        ours = forecast.bands[2, series] - forecast.bands[0, series]
        theirs = (drawn["yhat_upper"] - drawn["yhat_lower"]).to_numpy()
        assert np.abs(ours / theirs - 1).max() < tolerance
        np.testing.assert_allclose(forecast.bands[1, series], forecast.point[series])


@pytest.mark.parametrize("horizon", [1, 30])
def test_the_variance_of_the_trend_is_that_of_prophets_draws(horizon: int) -> None:
    """Step by step, with gaps: of a single slot Prophet takes the mean step of the known points."""
    values = simulated("level shift", 1, 336, HOUR)
    values[0, 100:240] = np.nan
    fits = fit_batch(values, HOUR, MONDAY)
    root = NormalDist().cdf(3**0.5)  # where the correction for the fourth cumulant is 0
    above = fits.predict(horizon, (root,))
    ours = ((above.bands[0, 0] - above.point[0]) / fits.scale[0]) ** 2 / 3 - fits.sigma[0] ** 2
    model = prophet_at(fits, 0, uncertainty_samples=40_000)
    np.random.seed(7)  # noqa: NPY002 - Prophet draws from the global generator
    trend = model.predictive_samples(future(fits, 0, horizon))["trend"] / fits.scale[0]
    np.testing.assert_allclose(ours, trend.var(axis=1), rtol=0.15)


def test_flat_growth_is_a_ridge() -> None:
    """Without trend changes the terms are a ridge at the noise found, and the noise its root."""
    values = simulated("log-normal flow", 4, 336, HOUR)
    fits = fit_batch(values, HOUR, MONDAY, options=ProphetOptions(growth="flat"))
    for series in range(4):
        history, ours = History.of(fits, series), fits.parameters(series)
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
    history, ours = History.of(fits, 0), fits.parameters(0)
    start = {**ours, "delta": np.zeros(25)}
    model = quiet_prophet(growth="flat", uncertainty_samples=0).fit(history.frame(), init=start)
    assert np.abs(history.yhat(model.params) - history.yhat(ours)).max() < 1e-5 * history.y.std()


def test_the_phase_of_the_window_does_not_matter() -> None:
    """The same values starting at any hour have the same optimum, in Prophet's coefficients too."""
    values = np.repeat(simulated("weekend drop", 1, 400, HOUR), 3, axis=0)
    begins = MONDAY + np.array([0, 5, 170]) * HOUR + 1234
    fits = fit_batch(values, HOUR, begins, options=SAFE)
    forecast = fits.predict(24)
    # The order in which threads add up moves the last digits.
    np.testing.assert_allclose(fits.objective, fits.objective[0], rtol=1e-12)
    np.testing.assert_allclose(forecast.point, forecast.point[[0, 0, 0]], rtol=1e-9, atol=1e-12)
    for series in range(3):
        history = History.of(fits, series)
        ours = fits.parameters(series)
        assert history.objective(ours) == pytest.approx(fits.objective[series], abs=1e-8)


def test_a_batch_is_its_rows_one_by_one() -> None:
    """Sharing a Gram matrix, by a pattern that moves within the window, changes nothing."""
    values = simulated("level shift", 8, 336, HOUR)
    values[:4, 40:43] = np.nan
    values[4:, 45:48] = np.nan
    values[4:, :5] = np.nan
    values[:4, -5:] = np.nan
    together = fit_batch(values, HOUR, MONDAY)
    forecast = together.predict(24)
    for series in range(8):
        alone = fit_batch(values[series : series + 1], HOUR, MONDAY)
        assert alone.objective[0] == pytest.approx(together.objective[series], abs=1e-8)
        np.testing.assert_allclose(alone.predict(24).bands[:, 0], forecast.bands[:, series])
        for name, value in alone.parameters(0).items():
            np.testing.assert_allclose(together.parameters(series)[name], value, atol=1e-8)


def test_the_same_batch_twice_is_the_same_to_the_last_bit() -> None:
    """Nothing in the solver is random."""
    values = simulated("gaps", 6, 336, HOUR)
    first, second = (fit_batch(values, HOUR, MONDAY, options=SAFE) for _ in range(2))
    np.testing.assert_array_equal(first.answers.smooth, second.answers.smooth)
    np.testing.assert_array_equal(first.answers.delta, second.answers.delta)


def test_unknown_and_infinite_values_are_dropped() -> None:
    """Infinity is as unknown as NaN."""
    values = simulated("wave", 2, 336, HOUR)
    values[1] = values[0]
    values[0, [3, 50]], values[1, [3, 50]] = np.nan, [np.inf, -np.inf]
    fits = fit_batch(values, HOUR, MONDAY)
    assert fits.objective[0] == fits.objective[1]
    assert fits.survey.known.tolist() == [334, 334]


def test_nothing_in_one_series_stops_the_others() -> None:
    """Odd series get a status; what is not fitted is NaN, the rest is finite."""
    hours = np.arange(336.0)
    rng = np.random.default_rng(2)
    noise = rng.normal(size=336)
    rows = {
        "nothing": np.full(336, np.nan),
        "infinite": np.full(336, np.inf),
        "one": np.where(hours == 5, 3.0, np.nan),
        "two": np.where((hours == 5) | (hours == 300), hours, np.nan),
        "three": np.where(hours < 3, hours**2, np.nan),
        "six": np.where(hours < 6, hours**2, np.nan),
        "far apart": np.where(hours % 11 == 0, noise, np.nan),
        "constant": np.full(336, -7.0),
        "zero": np.zeros(336),
        "ramp": hours,
        "clean wave": 3 * np.sin(2 * np.pi * hours / 24) + hours / 10,
        "huge": 1e12 * (3 + noise),
        "largest": np.where(hours % 2 == 0, 1.7e308, -1.7e308),
        "smallest": np.where(hours % 2 == 0, 5e-324, 0.0),
        "nearly constant": 1 + 1e-5 * noise,
        "nearly clean": np.sin(2 * np.pi * hours / 24) + 1e-6 * noise,
        "spike at the end": np.where(hours == 335, 1.0, 0.0),
        "step": np.where(hours > 150, 1.0, 0.0),
    }
    expected = dict.fromkeys(rows, FitStatus.FITTED)
    expected |= dict.fromkeys(("nothing", "infinite", "one"), FitStatus.TOO_FEW_POINTS)
    expected |= dict.fromkeys(("two", "three", "far apart"), FitStatus.AS_MANY_TERMS_AS_POINTS)
    expected |= dict.fromkeys(("constant", "zero"), FitStatus.CONSTANT)
    expected |= dict.fromkeys(("ramp", "clean wave"), FitStatus.THROUGH_ALL_POINTS)
    fits = fit_batch(np.array(list(rows.values())), HOUR, MONDAY, options=SAFE)
    forecast = fits.predict(24)
    assert dict(zip(rows, map(FitStatus, fits.status), strict=True)) == expected
    assert set(REASONS) == set(FitStatus)
    np.testing.assert_array_equal(np.isfinite(forecast.point).all(axis=1), fits.fitted)
    np.testing.assert_array_equal(np.isnan(forecast.point).all(axis=1), ~fits.fitted)
    assert fits.kkt_residual[fits.status == FitStatus.FITTED].max() < 1e-5
    order = list(rows)
    ahead = np.arange(336.0, 360.0)
    np.testing.assert_allclose(forecast.point[order.index("ramp")], ahead, rtol=1e-6)
    clean = 3 * np.sin(2 * np.pi * ahead / 24) + ahead / 10
    np.testing.assert_allclose(forecast.point[order.index("clean wave")], clean, rtol=1e-6)


@pytest.mark.parametrize("shape", [(0, 336), (2, 0), (0, 0), (1, 1)])
def test_an_empty_batch_is_an_empty_forecast(shape: tuple[int, int]) -> None:
    """No series, or no slots: nothing to fit is no error."""
    fits = fit_batch(np.zeros(shape), HOUR, MONDAY)
    assert not fits.fitted.any()
    assert fits.predict(3).bands.shape == (3, shape[0], 3)


def test_without_changepoints_there_is_no_trend_noise() -> None:
    """Prophet's stand-in changepoint is part of k: bands are as if there were none."""
    options = ProphetOptions(changepoints=0, changepoint_prior_scale=1000.0, daily=0)
    fits = fit_batch(simulated("decline", 1, 336, HOUR), HOUR, MONDAY, options=options)
    history, ours = History.of(fits, 0), fits.parameters(0)
    stan = quiet_prophet(n_changepoints=0, changepoint_prior_scale=1000.0, daily_seasonality=False)
    stan.fit(history.frame(), init={**ours, "beta": np.zeros(1)})
    yhat = stan.predict(future(fits, 0, 48))["yhat"]
    forecast = fits.predict(48, (0.1,))
    np.testing.assert_allclose(forecast.point[0], yhat, rtol=1e-5)
    half = forecast.point[0] - forecast.bands[0, 0]
    np.testing.assert_allclose(half, half[0], rtol=1e-6)


def test_a_constant_series_is_as_prophet_makes_it() -> None:
    """Prophet does not optimise it: the value goes on, with next to no band."""
    fits = fit_batch(np.full((1, 100), 42.0), HOUR, MONDAY)
    model = quiet_prophet().fit(History.of(fits, 0).frame())
    drawn = model.predict(future(fits, 0, 5))
    forecast = fits.predict(5)
    np.testing.assert_allclose(forecast.point[0], drawn["yhat"], rtol=1e-12)
    np.testing.assert_allclose(forecast.bands[0, 0], drawn["yhat_lower"], atol=1e-6)
    assert model.params["sigma_obs"].item() == fits.sigma[0]


def calendar(slots: int) -> Floats:
    """A binary column, a column to be standardised and a constant one: [slots, 3]."""
    at = np.arange(slots)
    return np.stack([(at % 50 < 5) * 1.0, np.cos(at / 9.0) * 40 + 7, np.full(slots, 3.0)], axis=1)


def with_calendar(growth: str = "linear") -> Any:
    """A Prophet that takes the columns of `calendar`."""
    model = quiet_prophet(uncertainty_samples=0, growth=growth)
    for name in "abc":
        model.add_regressor(name)
    return model


@pytest.mark.parametrize("own", [False, True])
def test_regressors_are_prophets(own: bool) -> None:
    """Standardised as Prophet does, over the known points only, shared or per series."""
    columns = calendar(360)
    values = simulated("gaps", 4, 336, HOUR) + columns[:336] @ [9.0, 0.2, 0.0]
    block = np.repeat(columns[None], 4, axis=0) if own else columns
    fits = fit_batch(values, HOUR, MONDAY, options=SAFE, regressors=block[..., :336, :])
    forecast = fits.predict(24, regressors=block[..., 336:, :])
    history, ours = History.of(fits, 2), fits.parameters(2)
    known = np.isfinite(values[2])
    frame = history.frame().assign(**dict(zip("abc", columns[:336][known].T, strict=True)))
    ahead = future(fits, 2, 24).assign(**dict(zip("abc", columns[336:].T, strict=True)))
    stan, again = with_calendar().fit(frame), with_calendar().fit(frame, init=ours)
    best = history.objective(ours)
    assert history.objective(stan.params) >= best - 1e-6
    assert history.objective(again.params) >= best - 1e-6
    yhat = again.predict(ahead)["yhat"].to_numpy()
    np.testing.assert_allclose(forecast.point[2], yhat, rtol=0, atol=1e-5 * history.y.std())


def test_regressors_stay_with_their_slots() -> None:
    """Series that begin at different slots share no pattern when the batch has regressors."""
    columns = calendar(336)
    values = simulated("wave", 6, 336, HOUR) + columns @ [9.0, 0.2, 0.0]
    values[:3, :24] = np.nan
    values[3:, -24:] = np.nan
    together = fit_batch(values, HOUR, MONDAY, regressors=columns)
    for series in range(6):
        alone = fit_batch(values[series : series + 1], HOUR, MONDAY, regressors=columns)
        assert alone.objective[0] == pytest.approx(together.objective[series], abs=1e-8)


def test_an_unknown_regressor_is_said() -> None:
    """It stops the series that need it there, and no other."""
    columns = calendar(336)
    columns[10, 1] = np.nan
    values = simulated("wave", 2, 336, HOUR)
    values[1, 10] = np.nan
    fits = fit_batch(values, HOUR, MONDAY, regressors=columns)
    assert fits.status.tolist() == [FitStatus.REGRESSOR_UNKNOWN, FitStatus.FITTED]


@settings(max_examples=examples(60), deadline=None)
@given(
    values=hnp.arrays(
        float,
        st.tuples(st.integers(1, 4), st.integers(1, 120)),
        elements=st.one_of(
            st.floats(-1e9, 1e9), st.sampled_from([0.0, 1.0, np.nan, np.inf, -np.inf])
        ),
    ),
    slot_seconds=st.sampled_from([60, 300, 3600, 86_400, 700_000]),
    growth=st.sampled_from(["linear", "flat"]),
    starts=st.sampled_from([1, 2]),
)
def test_any_batch_gives_ordered_bands_or_a_reason(
    values: Floats, slot_seconds: int, growth: Any, starts: Any
) -> None:
    """Never an exception; finite and ordered where fitted, NaN where not; at an optimum."""
    options = ProphetOptions(growth=growth, starts=starts)
    fits = fit_batch(values, slot_seconds, MONDAY, options=options)
    bands = fits.predict(7, (0.05, 0.5, 0.95)).bands
    assert np.isfinite(bands[:, fits.fitted]).all()
    assert np.isnan(bands[:, ~fits.fitted]).all()
    assert (np.diff(bands[:, fits.fitted], axis=0) >= 0).all()
    assert (fits.kkt_residual[fits.status == FitStatus.FITTED] < 1e-4).all()


@settings(max_examples=examples(30), deadline=None)
@given(seed=st.integers(0, 10_000), factor=st.sampled_from([2.0**-40, 0.5, 1024.0, 2.0**60]))
def test_the_unit_of_a_series_does_not_matter(seed: int, factor: float) -> None:
    """A power of two in the values is the same power of two in the forecast, to the last bit."""
    values = simulated("level shift", 2, 120, HOUR, seed=seed)
    plain = fit_batch(values, HOUR, MONDAY).predict(12)
    scaled = fit_batch(values * factor, HOUR, MONDAY).predict(12)
    np.testing.assert_array_equal(scaled.bands, plain.bands * factor)


@pytest.mark.parametrize(
    "wrong",
    [
        {"growth": "logistic"},
        {"changepoint_prior_scale": 0.0},
        {"seasonality_prior_scale": float("nan")},
        {"changepoint_range": 1.5},
        {"starts": 3},
        {"daily": -1},
    ],
)
def test_wrong_options_are_named(wrong: dict[str, Any]) -> None:
    """The message names the option."""
    with pytest.raises(ForecastError, match=next(iter(wrong))):
        ProphetOptions(**wrong)


def test_where_nothing_can_be_written_functions_are_compiled_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On a read-only root without a home, numba has no place for its cache: no error at import."""
    monkeypatch.setattr(numba.core.caching.CompileResultCacheImpl, "_locator_classes", [])

    def double(number: float) -> float:
        return 2 * number

    with pytest.raises(RuntimeError, match="no locator"):
        numba.njit(cache=True)(double)
    assert outer(double)(4.0) == 8.0


def test_wrong_shapes_are_named() -> None:
    """Arrays that do not fit together are an error of the caller, not of a series."""
    values = np.zeros((2, 10))
    with pytest.raises(ForecastError, match="dimensions"):
        fit_batch(values[0], HOUR, MONDAY)
    with pytest.raises(ForecastError, match="slot_seconds"):
        fit_batch(values, 0, MONDAY)
    with pytest.raises(ForecastError, match="shape"):
        fit_batch(values, HOUR, MONDAY, regressors=np.zeros((9, 1)))
    with pytest.raises(ForecastError, match="horizon"):
        fit_batch(values, HOUR, MONDAY).predict(0)
    with pytest.raises(ForecastError, match="quantiles"):
        fit_batch(values, HOUR, MONDAY).predict(3, (0.1, 1.0))
    with pytest.raises(ForecastError, match="regressors ahead"):
        fit_batch(values, HOUR, MONDAY).predict(3, regressors=np.zeros((3, 1)))
