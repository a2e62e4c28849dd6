"""Forecasts of groups: a week by the hour, a month by the day."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import numpy as np
import pandas as pd

from data.base.units import SECONDS_PER_DAY, SECONDS_PER_HOUR
from data.facts.jobs import Job
from data.records.forecasts import GroupForecast
from data.settings.all_settings import PlanningSettings
from forecasting.jobs.forecast_path import PathTask
from forecasting.jobs.job_tasks import first_slot_after
from forecasting.jobs.path_pool import paths_of
from forecasting.mix.model import MIN_KNOWN
from forecasting.series.demand_series import DemandSeries
from forecasting.series.group_series import GroupSeries, group_series

HORIZONS = ((SECONDS_PER_HOUR, 168), (SECONDS_PER_DAY, 30))
"""(slot in s, slots ahead): 7 d by the hour, the first 24 h among them, and 30 d by the day."""


def forecast_groups(
    history: pd.DataFrame,
    *,
    as_of: datetime,
    jobs: Sequence[Job] = (),
    racks: Iterable[GroupSeries] = (),
    settings: PlanningSettings,
    ray_address: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> tuple[GroupForecast, ...]:
    """Return the forecasts of every group for every horizon that its history can carry.

    `history` has the columns GROUP_HISTORY, by the hour; `jobs` tell who waited; `racks` are more
    groups by the hour. A group with fewer
    than four known slots of a horizon's size has none there.
    """
    return forecast_series(
        [*group_series(history, SECONDS_PER_HOUR, jobs=jobs), *racks],
        as_of=as_of,
        settings=settings,
        ray_address=ray_address,
        progress=progress,
    )


def forecast_series(
    groups: Sequence[GroupSeries],
    *,
    as_of: datetime,
    settings: PlanningSettings,
    ray_address: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> tuple[GroupForecast, ...]:
    """Return the forecasts of groups by the hour, as `forecast_groups` does."""
    work: list[tuple[GroupSeries, int, int, list[PathTask]]] = []
    for slot_seconds, horizon in HORIZONS:
        first = first_slot_after(as_of, slot_seconds)
        for group in groups:
            series = [by_slot(entry, slot_seconds) for entry in group.series]
            tasks = [
                PathTask(series=values, first_slot=first, horizon=horizon)
                for values in series
                if int(values.known.sum()) >= MIN_KNOWN
            ]
            if tasks:
                work.append((group, slot_seconds, first, tasks))
    flat = [task for *_, tasks in work for task in tasks]
    paths = iter(
        paths_of(
            flat,
            settings=replace(settings, model="mix"),
            ray_address=ray_address,
            progress=progress,
        )
    )
    return tuple(
        GroupForecast(
            kind=group.kind,
            name=group.name,
            slot_starts=tuple(
                datetime.fromtimestamp(first + step * slot_seconds, tz=UTC)
                for step in range(tasks[0].horizon)
            ),
            paths=tuple(next(paths) for _ in tasks),
            known_slots=int(max(task.series.known.sum() for task in tasks)),
        )
        for group, slot_seconds, first, tasks in work
    )


def by_slot(series: DemandSeries, slot_seconds: int) -> DemandSeries:
    """Return the series by longer slots: means of known values, unknown with fewer than half known.

    A first and a last slot that the series does not fill are left out.
    """
    if slot_seconds == series.slot_seconds:
        return series
    inner = slot_seconds // series.slot_seconds
    skip = (-(series.first_slot // series.slot_seconds)) % inner
    values = series.values[skip:]
    values = values[: len(values) // inner * inner].reshape(-1, inner)
    finite = np.isfinite(values)
    count = finite.sum(axis=1)
    total = np.where(finite, values, 0.0).sum(axis=1)
    means = np.where(2 * count >= inner, total / np.maximum(count, 1), np.nan)
    return replace(
        series,
        first_slot=series.first_slot + skip * series.slot_seconds,
        slot_seconds=slot_seconds,
        values=means,
    )
