"""Reasons to plan again before the next cycle is due.

Demand left the forecast interval, jobs have come, a job ran out of memory or soon will, or nodes of
the plan are gone.
"""

import logging
from datetime import datetime, timedelta

from dashboard.cycle.context import World
from dashboard.cycle.memory_outlook import growing_memory
from dashboard.cycle.run_cycle import collect_and_keep
from data.base.clock import floor_to_slot
from data.facts.jobs import Job, JobState
from data.records.plans import Plan
from data.store import StoreReader
from forecasting.jobs.surprises import Surprise, surprises

logger = logging.getLogger(__name__)

_OUT_OF_MEMORY = ("OOM", "OUT_OF_MEMORY", "OUTOFMEMORY")


def look_again(world: World, *, now: datetime) -> bool:
    """Collect, and say whether something has happened that the plan in force did not foresee."""
    collect_and_keep(world, now)
    reasons = reasons_to_plan(world, now=now)
    for reason in reasons:
        logger.info("planning again: %s", reason)
    return bool(reasons)


def reasons_to_plan(world: World, *, now: datetime) -> tuple[str, ...]:
    """Return the events since the latest plan that call for another."""
    reader = world.store.reader
    surprised = tuple(
        f"{surprise.job_id} is {surprise.side} its forecast: {surprise.reason}"
        for surprise in surprises_since_plan(world, now=now)
    )
    plan = reader.latest_plan()
    if plan is None:
        return surprised
    jobs = reader.jobs(seen_since=plan.created_at)
    return (
        *surprised,
        *_arrivals(plan, jobs, {forecast.job_id for forecast in reader.forecasts()}),
        *_out_of_memory(plan, jobs),
        *_growing_memory(reader),
        *_lost_nodes(world, plan),
    )


def _arrivals(plan: Plan, jobs: tuple[Job, ...], forecast: set[str]) -> tuple[str, ...]:
    """Return the jobs that began to hold GPUs after the plan was made."""
    return tuple(
        f"{job.job_id} has come with {job.gpu_count} × {job.gpu_model}"
        for job in jobs
        if job.job_id not in forecast
        and job.first_seen_at > plan.created_at
        and job.scheduling.state in (JobState.RUNNING, JobState.UNKNOWN)
    )


def _out_of_memory(plan: Plan, jobs: tuple[Job, ...]) -> tuple[str, ...]:
    """Return the planned jobs whose scheduler says since the plan that memory ran out."""
    planned = {job.job_id for job in plan.jobs}
    return tuple(
        f"{job.job_id} ran out of memory"
        for job in jobs
        if job.job_id in planned
        and job.last_seen_at > plan.created_at
        and any(word in job.scheduling.reason.upper() for word in _OUT_OF_MEMORY)
    )


def _growing_memory(reader: StoreReader) -> tuple[str, ...]:
    """Return the jobs whose memory grows to their board, of which the latest cycle said nothing."""
    return tuple(
        f"{finding.job_id} may run out of memory at about {finding.at:%H:%M} UTC"
        for finding in growing_memory(reader)
    )


def _lost_nodes(world: World, plan: Plan) -> tuple[str, ...]:
    """Return the nodes with planned jobs that stopped taking jobs since the plan."""
    names = {stay.node for job in plan.jobs for stay in job.stays}
    busy = {node.node for node in plan.nodes if node.open and node.node in names}
    return tuple(
        f"node {node.name} takes no jobs any more: {node.state} {node.reason}".rstrip()
        for node in world.store.reader.nodes()
        if node.name in busy and not node.schedulable and node.seen_at > plan.created_at
    )


def surprises_since_plan(world: World, *, now: datetime) -> tuple[Surprise, ...]:
    """Return the jobs whose demand left its interval since the latest cycle; whole slots only."""
    reader = world.store.reader
    forecasts = reader.forecasts()
    latest = reader.latest_sample_at(until=now)
    starts = [forecast.slot_starts[0] for forecast in forecasts if hasattr(forecast, "slot_starts")]
    if latest is None or not starts:
        return ()
    slot_seconds = world.settings.planning.slot_minutes * 60
    end = floor_to_slot(latest, slot_seconds)
    start = min(starts)
    if end <= start:
        return ()
    history = reader.job_history(
        "", start=start - timedelta(microseconds=1), end=end, slot_seconds=slot_seconds
    )
    return surprises(forecasts, history)
