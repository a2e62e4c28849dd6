"""Series and histories for tests of forecasts."""

import os
import signal
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd

from data.facts.columns import HISTORY, check_frame
from data.records.forecasts import QuantilePath, Quantity
from data.settings.all_settings import PlanningSettings
from forecasting.jobs.forecast_path import MIX, PathTask, forecast_path
from forecasting.series.demand_series import DemandSeries

AS_OF = datetime(2026, 1, 5, 12, tzinfo=UTC)
HOURLY = PlanningSettings(slot_minutes=60, horizon_slots=24)


def series(
    values: np.ndarray, *, upper: float = 100.0, slot_seconds: int = 3600, lower: float = 0.0
) -> DemandSeries:
    """A series that starts at midnight."""
    return DemandSeries(
        quantity=Quantity.EFFECTIVE_GPUS,
        first_slot=0,
        slot_seconds=slot_seconds,
        values=np.asarray(values, dtype=float),
        lower=lower,
        upper=upper,
    )


def daily(days: int, *, noise: float = 0.1, seed: int = 1, per_day: int = 24) -> np.ndarray:
    """A daily curve around 50 with noise as a share of its swing of 30."""
    rng = np.random.default_rng(seed)
    slots = np.arange(days * per_day)
    swing = 30 * np.sin(2 * np.pi * slots / per_day)
    return np.clip(50 + swing + rng.normal(0, 30 * noise, len(slots)), 0, 100)


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


BROKEN = {
    "one point": np.array([3.0]),
    "two points": np.array([3.0, 5.0]),
    "constant": np.full(300, 2.0),
    "zeros": np.zeros(300),
    "infinite": np.where(np.arange(300) % 50 == 0, np.inf, 4.0),
    "all but two unknown": np.where(np.isin(np.arange(300), (10, 290)), 7.0, np.nan),
    "starts and ends unknown": np.where(
        (np.arange(300) > 50) & (np.arange(300) < 250), 9.0, np.nan
    ),
    "jump by 100": np.concatenate([np.full(200, 0.5), np.full(100, 50.0)]),
    "lone spike": np.where(np.arange(300) == 150, 1e12, 1.0),
    "tiny": np.full(300, 1e-300) * np.arange(300),
    "negative": np.linspace(-50, 50, 300),
    "saw": np.arange(300) % 7.0,
}
"""Series that telemetry has been seen to deliver, or might."""


def killed_path(task: PathTask, model: str) -> QuantilePath:
    """A forecast whose process the system kills, unless the mix makes it."""
    if model != MIX:
        os.kill(os.getpid(), signal.SIGKILL)
    return forecast_path(task, model)
