"""Batches of any content: each series alone, in any unit, and a reason where none can be fitted."""

import numba
import numpy as np
import pytest
from drawn import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from prophet_equality import HOUR, MONDAY, Floats, History, simulated

from benchmarks._prophet_design import bands, parameters
from data.base.compiled import outer
from data.base.errors import ForecastError
from forecasting.prophet.batch import FitStatus, fit_batch


def test_the_phase_of_the_window_does_not_matter() -> None:
    """The same values starting at any hour have the same optimum, in Prophet's coefficients too."""
    values = np.repeat(simulated("weekend drop", 1, 400, HOUR), 3, axis=0)
    begins = MONDAY + np.array([0, 5, 170]) * HOUR + 1234
    fits = fit_batch(values, HOUR, begins)
    forecast = fits.predict(24)
    # The order in which threads add up moves the last digits.
    np.testing.assert_allclose(fits.answers.variance, fits.answers.variance[0], rtol=1e-9)
    np.testing.assert_allclose(forecast, forecast[[0, 0, 0]], rtol=1e-9, atol=1e-12)
    for series in range(3):
        history = History.of(fits, series)
        ours = parameters(fits, series)
        assert history.kkt_residual(ours) < 1e-5


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
        np.testing.assert_allclose(alone.predict(24)[0], forecast[series])
        for name, value in parameters(alone, 0).items():
            np.testing.assert_allclose(parameters(together, series)[name], value, atol=1e-8)


def test_the_same_batch_twice_is_the_same_to_the_last_bit() -> None:
    """Nothing in the solver is random."""
    values = simulated("gaps", 6, 336, HOUR)
    first, second = (fit_batch(values, HOUR, MONDAY) for _ in range(2))
    np.testing.assert_array_equal(first.answers.smooth, second.answers.smooth)
    np.testing.assert_array_equal(first.answers.delta, second.answers.delta)


def test_unknown_and_infinite_values_are_dropped() -> None:
    """Infinity is as unknown as NaN."""
    values = simulated("wave", 2, 336, HOUR)
    values[1] = values[0]
    values[0, [3, 50]], values[1, [3, 50]] = np.nan, [np.inf, -np.inf]
    fits = fit_batch(values, HOUR, MONDAY)
    assert fits.answers.variance[0] == fits.answers.variance[1]
    assert fits.survey.counts.tolist() == [334, 334]


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
    fits = fit_batch(np.array(list(rows.values())), HOUR, MONDAY)
    forecast = fits.predict(24)
    assert dict(zip(rows, map(FitStatus, fits.status), strict=True)) == expected
    np.testing.assert_array_equal(np.isfinite(forecast).all(axis=1), fits.fitted)
    np.testing.assert_array_equal(np.isnan(forecast).all(axis=1), ~fits.fitted)
    for series in np.flatnonzero(fits.status == FitStatus.FITTED).tolist():
        assert History.of(fits, series).kkt_residual(parameters(fits, series)) < 0.1
    order = list(rows)
    ahead = np.arange(336.0, 360.0)
    np.testing.assert_allclose(forecast[order.index("ramp")], ahead, rtol=1e-6)
    clean = 3 * np.sin(2 * np.pi * ahead / 24) + ahead / 10
    np.testing.assert_allclose(forecast[order.index("clean wave")], clean, rtol=1e-6)


@pytest.mark.parametrize("shape", [(0, 336), (2, 0), (0, 0), (1, 1)])
def test_an_empty_batch_is_an_empty_forecast(shape: tuple[int, int]) -> None:
    """No series, or no slots: nothing to fit is no error."""
    fits = fit_batch(np.zeros(shape), HOUR, MONDAY)
    assert not fits.fitted.any()
    assert fits.predict(3).shape == (shape[0], 3)


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
)
def test_any_batch_gives_ordered_bands_or_a_reason(values: Floats, slot_seconds: int) -> None:
    """Never an exception; finite and ordered where fitted, NaN where not; at an optimum."""
    fits = fit_batch(values, slot_seconds, MONDAY)
    found = bands(fits, 7, (0.05, 0.5, 0.95))
    assert np.isfinite(found[:, fits.fitted]).all()
    assert np.isnan(found[:, ~fits.fitted]).all()
    assert (np.diff(found[:, fits.fitted], axis=0) >= 0).all()
    for series in np.flatnonzero(fits.status == FitStatus.FITTED).tolist():
        assert History.of(fits, series).kkt_residual(parameters(fits, series)) < 0.1


@settings(max_examples=examples(30), deadline=None)
@given(seed=st.integers(0, 10_000), factor=st.sampled_from([2.0**-40, 0.5, 1024.0, 2.0**60]))
def test_the_unit_of_a_series_does_not_matter(seed: int, factor: float) -> None:
    """A power of two in the values is the same power of two in the forecast, to the last bit."""
    values = simulated("level shift", 2, 120, HOUR, seed=seed)
    plain = fit_batch(values, HOUR, MONDAY).predict(12)
    scaled = fit_batch(values * factor, HOUR, MONDAY).predict(12)
    np.testing.assert_array_equal(scaled, plain * factor)


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
    with pytest.raises(ForecastError, match="horizon"):
        fit_batch(values, HOUR, MONDAY).predict(0)
