"""Use of the GPUs by the hour and now: what every page says of allocated, in use, idle and free."""

from datetime import datetime, timedelta

import pandas as pd

from dashboard.web.access.identity import current_world
from dashboard.web.frame.scope import scoped_jobs

_RECENT, _HOUR = timedelta(minutes=30), timedelta(hours=1)


def usage_over(start: datetime, end: datetime) -> pd.DataFrame:
    """Return the columns of `StoreReader.fleet_history` by the hour.

    Of chosen jobs nothing is free or of nobody, and `boards` are those that they held; an hour that
    is not over yet is left out.
    """
    reader, jobs = current_world().reader, scoped_jobs()
    if jobs is None:
        return reader.fleet_history(start=start, end=end, slot_seconds=3600)
    hours = reader.job_hours(tuple(sorted(jobs)), start=start)
    hours = hours[hours["slot_start"] + _HOUR <= end]
    amounts = ["gpu_hours", "used_gpu_hours", "idle_gpu_hours", "energy_kwh"]
    sums = hours.groupby("slot_start", as_index=False)[amounts].sum(min_count=1)
    allocated = sums["gpu_hours"].fillna(0.0)
    used, idle = sums["used_gpu_hours"].fillna(0.0), sums["idle_gpu_hours"].fillna(0.0)
    return pd.DataFrame(
        {
            "slot_start": sums["slot_start"],
            "boards": allocated,
            "allocated_gpus": allocated,
            "used_gpus": used,
            "idle_allocated_gpus": idle,
            "unknown_gpus": (allocated - used - idle).clip(lower=0.0),
            "unattributed_gpus": 0.0,
            "free_gpus": 0.0,
            "power_watts": 1000 * sums["energy_kwh"],
        }
    )


def usage_now(end: datetime) -> "pd.Series[float] | None":
    """Return the newest slot of it that is whole, None when there is none."""
    reader = current_world().reader
    if scoped_jobs() is not None:
        hours = usage_over(end - timedelta(days=1), end)
        return None if hours.empty else hours.iloc[-1]
    recent = reader.fleet_history(start=end - _RECENT, end=end, slot_seconds=300)
    if recent.empty:  # five-minute roll-ups are kept for a shorter time than hourly ones
        recent = usage_over(end - timedelta(days=1), end)
    # The last five minutes may have begun only: boards whose readings are to come are not free.
    newest: pd.Series[float] = recent[recent["boards"] >= recent["boards"].max()].iloc[-1]
    return newest
