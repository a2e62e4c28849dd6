"""The week and the month of services and recurring jobs, made anew when an hour has turned."""

from datetime import datetime, timedelta

from data.base.clock import floor_to_slot
from data.base.units import SECONDS_PER_HOUR
from data.records.forecasts import GroupKind, WorkloadForecast
from data.settings.all_settings import Settings
from data.store import StoreReader
from data.store.facts.fact_reader import of_these_jobs
from data.store.facts.planning_view import PlanningView
from forecasting.groups.workloads import forecast_workloads, workloads_of


def foreseen_workloads(
    reader: StoreReader, view: PlanningView, settings: Settings, now: datetime
) -> tuple[WorkloadForecast, ...] | None:
    """Return the forecasts of workloads, None where those of this hour were made before."""
    made = reader.workloads_made_at()
    if made is not None and _hour(made) == _hour(now):
        return None
    fleet = view.groups[view.groups["kind"] == str(GroupKind.FLEET)]
    if fleet.empty:
        return ()
    first = fleet["slot_start"].min().to_pydatetime()
    end = fleet["slot_start"].max().to_pydatetime() + timedelta(seconds=SECONDS_PER_HOUR)
    recent = [job for job in view.known_jobs if job.last_seen_at >= first]
    workloads = workloads_of(recent, view.as_of)
    if not workloads:
        return ()
    jobs = [job for workload in workloads for job in workload.jobs]
    ids = tuple(sorted(job.job_id for job in jobs))
    held = of_these_jobs(
        reader.job_holdings(ids, start=first, end=end), jobs, slot_seconds=SECONDS_PER_HOUR
    )
    # A run that waits, or never held a GPU, makes no job a recurring one.
    seen = set(held["job_id"])
    return forecast_workloads(
        workloads_of([job for job in jobs if job.job_id in seen], view.as_of),
        held,
        fleet,
        as_of=view.as_of,
        settings=settings.planning,
        ray_address=settings.ray.address,
    )


def _hour(at: datetime) -> datetime:
    return floor_to_slot(at, SECONDS_PER_HOUR)
