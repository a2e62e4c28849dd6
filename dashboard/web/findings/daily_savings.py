"""Savings of applied changes so far, computed once for all pages that show them."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from dashboard.accounting.savings.daily_savings import (
    DaySaved,
    SavedSum,
    measured_until,
    saved_by_day,
    summed,
)
from dashboard.web.access.identity import current_world
from data.base.clock import floor_to_slot

_SOME_MINUTES = 300


def saved_days() -> Sequence[DaySaved]:
    """Return a row for each change and day, made anew after a decision and every five minutes."""
    world = current_world()
    return world.reader.remember(
        ("saved by day", floor_to_slot(world.clock(), _SOME_MINUTES)),
        lambda: saved_by_day(world.reader, world.settings.settings, now=world.clock()),
        decisions=True,
    )


def measured_to() -> datetime | None:
    """Return up to when savings are measured, None where nothing was read yet."""
    world = current_world()
    return measured_until(world.reader, world.settings.settings)


def saved_by_finding() -> Mapping[str, SavedSum]:
    """Return the savings of each finding to date, by its reference."""
    return {saved_sum.name: saved_sum for saved_sum in summed(saved_days(), "finding")}
