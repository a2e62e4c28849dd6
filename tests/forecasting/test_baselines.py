"""Seasonal naive and Prophet: ordered, bounded, never running away."""

import subprocess
import sys

import numpy as np
import pytest
from drawn import examples
from forecasting_cases import daily, series
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from benchmarks._model_comparison import rolling_backtest
from benchmarks._naive_model import NaiveModel
from data.base.errors import NotEnoughHistoryError
from forecasting.models.backtest import held_out, pinball_losses
from forecasting.models.demand_model import Quantiles
from forecasting.models.seasonal_naive_model import SeasonalNaiveModel
from forecasting.prophet.model import ProphetModel


@settings(max_examples=examples(80), deadline=None)
@given(
    values=hnp.arrays(
        float, st.integers(1, 80), elements=st.one_of(st.floats(0, 100), st.just(np.nan))
    ),
    horizon=st.integers(1, 40),
)
def test_the_baseline_is_ordered_and_bounded(values: np.ndarray, horizon: int) -> None:
    """Any series with a known slot has quantiles inside 0..capacity that do not cross."""
    if not np.isfinite(values).any():
        return
    found = SeasonalNaiveModel().forecast(series(values), horizon)
    rows = np.stack([found.q05, found.q10, found.q50, found.q90, found.q95])
    assert rows.shape == (5, horizon)
    assert (np.diff(rows, axis=0) >= 0).all()
    assert rows.min() >= 0
    assert rows.max() <= 100


def test_nothing_known_is_refused() -> None:
    """A series without a known slot has no baseline."""
    with pytest.raises(NotEnoughHistoryError, match="no known slot"):
        SeasonalNaiveModel().forecast(series(np.full(9, np.nan)), 3)


@pytest.mark.parametrize(
    "values",
    [
        np.linspace(60, 3, 336),
        np.concatenate([np.full(288, 20.0), np.full(48, 40.0)]),
        np.where(np.arange(336) % 24 < 8, 5.0, 50.0),
        np.where(np.arange(336) % 7 == 0, np.nan, 30.0 + np.arange(336) % 24),
    ],
    ids=["decline", "doubled", "day", "gaps"],
)
def test_prophet_does_not_run_away(values: np.ndarray) -> None:
    """A day ahead stays within what the series has shown."""
    found = ProphetModel().forecast(series(values), 24)
    shown = np.nanmax(values) - np.nanmin(values)
    assert (found.q10 <= found.q50).all()
    assert (found.q50 <= found.q90).all()
    assert found.q50.min() >= np.nanmin(values) - 0.5 * shown
    assert found.q50.max() <= np.nanmax(values) + 0.5 * shown


def test_prophet_sees_the_day_that_noise_hides_from_the_baseline() -> None:
    """On a noisy daily curve Prophet's held-out loss is below seasonal naive's."""
    tested = held_out(series(daily(14, noise=0.4)), ProphetModel(), 24)
    assert tested is not None
    losses = dict(tested.losses)
    assert losses["prophet"] < losses["seasonal-naive"]


def test_a_short_series_is_not_tested() -> None:
    """With fewer than four held-out slots there is no backtest."""
    assert held_out(series(daily(1)[:12]), SeasonalNaiveModel(), 24) is None


def test_pinball_loss_of_a_sure_and_right_forecast_is_zero() -> None:
    """And unknown slots do not count."""
    truth = np.array([1.0, np.nan, 3.0])
    row = np.array([1.0, 9.0, 3.0])
    sure = Quantiles(q05=row, q10=row, q50=row, q90=row, q95=row)
    assert np.nanmax(pinball_losses(truth, sure)) == 0.0


def test_pinball_loss_is_the_textbook_one() -> None:
    """One slot, truth 10: q10 of 4 costs .1 x 6, q50 of 9 costs .5, q90 of 13 costs .1 x 3."""
    rows = (np.array([value]) for value in (4.0, 4.0, 9.0, 13.0, 13.0))
    found = Quantiles(**dict(zip(("q05", "q10", "q50", "q90", "q95"), rows, strict=True)))
    assert pinball_losses(np.array([10.0]), found)[0] == pytest.approx((0.6 + 0.5 + 0.3) / 3)


def test_failures_of_a_model_are_counted() -> None:
    """Prophet refuses fewer than twelve slots: those origins are failures, not losses."""
    tested = rolling_backtest(series(daily(3)), ProphetModel(), origins=[5, 60], horizon=6)
    assert tested.failures == 1
    assert tested.pinball.shape == (1, 6)


def test_prophet_is_quiet_and_deferred() -> None:
    """Importing the runner does not import Prophet; fitting prints nothing."""
    script = (
        "import sys, numpy as np\n"
        "import forecasting.forecast\n"
        "assert 'prophet' not in sys.modules\n"
        "from forecasting.prophet.model import ProphetModel\n"
        "from forecasting.series.demand_series import DemandSeries\n"
        "from data.records.forecasts import Quantity\n"
        "ProphetModel().forecast(DemandSeries(quantity=Quantity.POWER, first_slot=0,"
        " slot_seconds=3600, values=np.random.default_rng(1).uniform(0, 9, 99), lower=0.0,"
        " upper=10.0), 5)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")


@pytest.mark.parametrize("slot_seconds", [300, 900, 1800, 3600])
def test_naive_bands_are_the_spread_of_changes_over_each_lead(slot_seconds: int) -> None:
    """Of four changes or more, and of leads up to half the history; both sides hold the value."""
    values = np.array([50.0, 53.0, 47.0, 55.0, 51.0, 58.0, 49.0, 52.0, 50.0])
    found = NaiveModel().forecast(series(values, slot_seconds=slot_seconds), 6)
    rows = np.stack([found.q05, found.q10, found.q50, found.q90, found.q95])
    for lead in (1, 2, 4):
        changes = np.quantile(values[lead:] - values[:-lead], [0.05, 0.1, 0.9, 0.95])
        low, high = np.minimum(changes[:2], 0), np.maximum(changes[2:], 0)
        assert rows[:, lead - 1] == pytest.approx([*(50 + low), 50, *(50 + high)])
    assert (rows[:, 4:] == rows[:, 3:4]).all()
    five = NaiveModel().forecast(series(values[:5]), 1)
    assert five.q90[0] > five.q50[0] == 51
    four = NaiveModel().forecast(series(values[:4]), 1)
    assert four.q05[0] == four.q95[0] == 55
