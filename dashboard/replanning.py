"""Whether to plan again before the next cycle is due: reality has left the forecasts' bands."""

import logging
from datetime import datetime, timedelta

from dashboard.cycle import World, collect_and_keep
from data.clock import floor_to_slot
from forecasting.surprises import Surprise, surprises

logger = logging.getLogger(__name__)


def look_again(world: World, *, now: datetime) -> bool:
    """Collect, and say whether jobs have left the bands that the plan in force rests on."""
    collect_and_keep(world, now)
    found = surprises_since_plan(world, now=now)
    for one in found:
        logger.info("%s is %s its forecast: %s", one.job_id, one.side, one.reason)
    return bool(found)


def surprises_since_plan(world: World, *, now: datetime) -> tuple[Surprise, ...]:
    """Give the jobs that left their bands since the latest cycle; whole slots only."""
    reader = world.store.reader
    forecasts = reader.forecasts()
    latest = reader.latest_sample_at(until=now)
    starts = [one.slot_starts[0] for one in forecasts if hasattr(one, "slot_starts")]
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
