"""Reasons to plan again before the next cycle is due.

Demand left the forecast interval, jobs have come, a job ran out of memory or soon will, or nodes of
the plan are gone.
"""

import logging
from collections.abc import Iterator
from datetime import datetime, timedelta

from dashboard.cycle.context import World
from dashboard.cycle.memory_outlook import growing_memory
from dashboard.cycle.run_cycle import collect_and_keep
from data.base.clock import floor_to_slot
from data.facts.jobs import JobState
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
    return surprised if plan is None else (*surprised, *_since(plan, reader))


def _since(plan: Plan, reader: StoreReader) -> Iterator[str]:
    """Yield the jobs that came, lacked memory or soon will, and the nodes that took none any more.

    Nodes are those of planned jobs.
    """
    jobs = reader.jobs(seen_since=plan.created_at)
    forecast = {entry.job_id for entry in reader.forecasts()}
    planned = {job.job_id for job in plan.jobs}
    for job in jobs:
        came = job.job_id not in forecast and job.first_seen_at > plan.created_at
        if came and job.scheduling.state in (JobState.RUNNING, JobState.UNKNOWN):
            yield f"{job.job_id} has come with {job.gpu_count} × {job.gpu_model}"
    for job in jobs:
        reason, is_told = job.scheduling.reason.upper(), job.last_seen_at > plan.created_at
        if job.job_id in planned and is_told and any(word in reason for word in _OUT_OF_MEMORY):
            yield f"{job.job_id} ran out of memory"
    for finding in growing_memory(reader):
        yield f"{finding.job_id} may run out of memory at about {finding.at:%H:%M} UTC"
    names = {stay.node for job in plan.jobs for stay in job.stays}
    busy = {node.node for node in plan.nodes if node.open and node.node in names}
    for node in reader.nodes():
        if node.name in busy and not node.schedulable and node.seen_at > plan.created_at:
            yield f"node {node.name} takes no jobs any more: {node.state} {node.reason}".rstrip()


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
