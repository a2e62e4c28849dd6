"""Forecasts: ordered, bounded, honest about what they lack."""

import subprocess
import sys
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from factories import make_job
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from data.columns import HISTORY, check_frame, empty_frame
from data.records.forecasts import DemandForecast, ForecastSkipped, Quantity
from data.settings import PlanningSettings
from forecasting.backtest import backtest, pinball_loss
from forecasting.demand_model import Quantiles
from forecasting.demand_series import DemandSeries
from forecasting.forecast_runner import forecast_demand, models
from forecasting.prophet_model import ProphetModel
from forecasting.seasonal_naive_model import SeasonalNaiveModel

AS_OF = datetime(2026, 1, 5, 12, tzinfo=UTC)
HOURLY = PlanningSettings(slot_minutes=60, horizon_slots=24, workers=1)


def series(values: np.ndarray, upper: float = 100.0) -> DemandSeries:
    """An hourly series."""
    return DemandSeries(
        quantity=Quantity.EFFECTIVE_GPUS,
        first_slot=0,
        slot_seconds=3600,
        values=values,
        lower=0.0,
        upper=upper,
    )


def history(job_id: str, demand: np.ndarray, *, end: datetime = AS_OF) -> pd.DataFrame:
    """Hourly history that ends at `end`; memory known, power never reported."""
    times = pd.date_range(end=end - timedelta(hours=1), periods=len(demand), freq="1h")
    frame = pd.DataFrame(
        {
            "job_id": job_id,
            "slot_start": times.as_unit("us"),
            "effective_gpus": demand,
            "memory_used_mib": 1000.0,
            "sample_count": 60,
        }
    )
    return check_frame(frame[frame["effective_gpus"].notna()], HISTORY)


@settings(max_examples=80, deadline=None)
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
    assert len(found.q50) == horizon
    assert (found.q10 >= 0).all()
    assert (found.q10 <= found.q50).all()
    assert (found.q50 <= found.q90).all()
    assert (found.q90 <= 100).all()


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
    """On a noisy daily curve Prophet is chosen by the backtest."""
    rng = np.random.default_rng(1)
    hours = np.arange(24 * 14)
    values = 50 + 30 * np.sin(2 * np.pi * hours / 24) + rng.normal(0, 12, len(hours))
    chosen, tested = backtest(series(np.clip(values, 0, 100)), models(), 24)
    assert chosen == "prophet"
    assert tested is not None
    assert dict(tested.losses)["prophet"] < dict(tested.losses)["seasonal-naive"]


def test_pinball_loss_of_a_sure_and_right_forecast_is_zero() -> None:
    """And unknown slots do not count."""
    truth = np.array([1.0, np.nan, 3.0])
    row = np.array([1.0, 9.0, 3.0])
    assert pinball_loss(truth, Quantiles(q10=row, q50=row, q90=row)) == 0.0


def run(frame: pd.DataFrame, settings_: PlanningSettings = HOURLY, **job: object):  # type: ignore[no-untyped-def]
    """The forecast of one job."""
    (found,) = forecast_demand(
        frame, jobs=[make_job("a/b", **job)], as_of=AS_OF, settings=settings_
    )
    return found


def test_a_forecast_starts_after_now_and_names_what_is_missing() -> None:
    """Slots follow the one that holds `as_of`; power was never reported."""
    found = run(history("a/b", np.full(48, 0.5)))
    assert isinstance(found, DemandForecast)
    assert found.slot_starts[0] == AS_OF + timedelta(hours=1)
    assert len(found.slot_starts) == 24
    assert found.missing == ((Quantity.POWER, "never reported by the source"),)
    path = found.path(Quantity.EFFECTIVE_GPUS)
    assert path is not None
    assert set(path.q50) == {0.5}
    assert path.notes == ("the history is constant",)


@pytest.mark.parametrize(
    ("frame", "words"),
    [
        (empty_frame(HISTORY), "no samples"),
        (history("a/b", np.full(3, 0.5)), "only 3 h"),
        (history("a/b", np.full(48, 0.5), end=AS_OF - timedelta(hours=9)), "ended"),
        (
            history("a/b", np.full(48, 0.5)).assign(effective_gpus=np.nan),
            "no utilization",
        ),
    ],
)
def test_a_skip_says_why(frame: pd.DataFrame, words: str) -> None:
    """Short, ended and blind series have a reason instead of a forecast."""
    found = run(frame)
    assert isinstance(found, ForecastSkipped)
    assert words in found.reason


def test_values_above_capacity_and_infinite_ones_do_no_harm() -> None:
    """A job with one GPU cannot be forecast to need more than one."""
    demand = np.full(48, 0.5)
    demand[10], demand[20] = 7.0, np.inf
    found = run(history("a/b", demand))
    assert isinstance(found, DemandForecast)
    path = found.path(Quantity.EFFECTIVE_GPUS)
    assert path is not None
    assert max(path.q90) <= 1.0


@pytest.mark.slow
def test_the_number_of_processes_changes_nothing() -> None:
    """One process and two give the same forecasts in the same order."""
    rng = np.random.default_rng(2)
    jobs = [make_job(f"a/{index}") for index in range(9)]
    frame = pd.concat([history(job.job_id, rng.uniform(0, 1, 60)) for job in jobs])
    one, two = (
        forecast_demand(
            frame,
            jobs=jobs,
            as_of=AS_OF,
            settings=PlanningSettings(slot_minutes=60, horizon_slots=6, workers=workers),
        )
        for workers in (1, 2)
    )
    assert one == two


def test_prophet_is_quiet_and_deferred() -> None:
    """Importing the runner does not import Prophet; fitting prints nothing."""
    script = (
        "import sys, numpy as np\n"
        "import forecasting.forecast_runner\n"
        "assert 'prophet' not in sys.modules\n"
        "from forecasting.prophet_model import ProphetModel\n"
        "from forecasting.demand_series import DemandSeries\n"
        "from data.records.forecasts import Quantity\n"
        "ProphetModel().forecast(DemandSeries(quantity=Quantity.POWER, first_slot=0,"
        " slot_seconds=3600, values=np.random.default_rng(1).uniform(0, 9, 99), lower=0.0,"
        " upper=10.0), 5)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("", "")
