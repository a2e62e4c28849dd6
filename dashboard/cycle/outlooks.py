"""What growing elastic training asks of the store and of what was read, beside the plan."""

from datetime import datetime

from data.records.actions import Action
from data.records.lifecycle import STANDING
from data.records.plans import Configuration
from data.settings.all_settings import PlanningSettings
from data.store import StoreReader
from data.store.facts.planning_view import PlanningView
from forecasting.groups.queue_waits import places_in_line
from forecasting.series.past_runs import past_runs_by_size
from planner.advisers.growth_room import GrowthFacts


def growth_facts(
    reader: StoreReader, view: PlanningView, planning: PlanningSettings, now: datetime
) -> GrowthFacts | None:
    """Return what growing rests on, None where `planning.grow_elastic_training` is off.

    Jobs that are held or wait for a dependency want no boards yet.
    """
    if planning.grow_elastic_training == "off":
        return None
    places = places_in_line(view.known_jobs, view.as_of)
    in_line = {place.job_id for place in places if place.wait is not None}
    return GrowthFacts(
        waiting=tuple(job for job in view.known_jobs if job.job_id in in_line),
        progress=view.progress,
        runs=past_runs_by_size(view.known_jobs),
        had=_had_before(reader, view, now),
    )


def _had_before(reader: StoreReader, view: PlanningView, now: datetime) -> dict[str, Configuration]:
    """Return what jobs that are as large as they were grown had before."""
    standing = [digest for digest, state in reader.states().items() if state in STANDING]
    sizes = {job.job_id: (job.gpu_model, job.gpu_count) for job in view.jobs}
    grown = [
        stored.recommendation
        for stored in reader.recommendations_of(standing, now=now).values()
        if stored.recommendation.action is Action.GROW
    ]
    return {
        growth.job_id: growth.now
        for growth in sorted(grown, key=lambda growth: growth.created_at)
        if sizes.get(growth.job_id) == (growth.proposed.gpu_model, growth.proposed.gpu_count)
    }
