"""Outlooks of a cycle beside the plan: slow work, weeks and months of workloads."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from dashboard.cycle.memory_outlook import recipes_of
from data.base.clock import floor_to_slot
from data.base.units import SECONDS_PER_HOUR
from data.facts.jobs import Job
from data.records.forecasts import GroupKind, WorkloadForecast
from data.records.slow_work import SlowWork
from data.settings.all_settings import Settings
from data.store import StoreReader
from data.store.facts.fact_reader import without_former_jobs
from data.store.facts.planning_view import PlanningView
from forecasting.groups.workloads import alive, forecast_workloads, workloads_of
from planner.slow_work.remedies import remedy_of
from planner.slow_work.rules import slow_work

_OUTLOOK_SECONDS = 6 * SECONDS_PER_HOUR
"""A week and a month ahead change little within hours, and cost more than the rest of a cycle."""
WINDOW = timedelta(hours=6)
"""Long enough for evaluation and checkpoints to be a part of it; a changed job is judged anew."""


def slow_work_causes(
    reader: StoreReader, jobs: Sequence[Job], as_of: datetime
) -> tuple[SlowWork, ...]:
    """Return the causes of slow jobs by their last six hours, with what to try."""
    activity = reader.job_activity(start=as_of - WINDOW, end=as_of)
    if activity.empty:
        return ()
    recipes = recipes_of(reader.submissions())
    return tuple(
        replace(entry, remedy=remedy_of(entry.cause, recipes.get(entry.job_id)))
        for entry in slow_work(activity, {job.job_id: job for job in jobs})
    )


def workload_outlooks(
    reader: StoreReader, view: PlanningView, settings: Settings, now: datetime
) -> tuple[WorkloadForecast, ...] | None:
    """Return the forecasts of workloads, None where those of these hours were made before."""
    last_at = reader.workloads_made_at()
    if last_at is not None and floor_to_slot(last_at, _OUTLOOK_SECONDS) == floor_to_slot(
        now, _OUTLOOK_SECONDS
    ):
        return None
    fleet = view.groups[view.groups["kind"] == str(GroupKind.FLEET)]
    if fleet.empty:
        return ()
    first = fleet["slot_start"].min().to_pydatetime()
    end = fleet["slot_start"].max().to_pydatetime() + timedelta(seconds=SECONDS_PER_HOUR)
    workloads = workloads_of(reader.jobs(seen_since=first), view.as_of)
    if not workloads:
        return ()
    jobs = [job for workload in workloads for job in workload.jobs]
    ids = tuple(sorted(job.job_id for job in jobs))
    holdings = without_former_jobs(
        reader.job_holdings(ids, start=first, end=end), jobs, slot_seconds=SECONDS_PER_HOUR
    )
    # A run that waits, or never held a GPU, makes no job a recurring one.
    with_gpus = set(holdings["job_id"].unique())
    runs = {
        workload.name: [job for job in workload.jobs if job.job_id in with_gpus]
        for workload in workloads
    }
    return forecast_workloads(
        alive(runs, view.as_of),
        holdings,
        fleet,
        as_of=view.as_of,
        settings=settings.planning,
        ray_address=settings.ray.address,
    )
