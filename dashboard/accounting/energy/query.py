"""The statement that somebody asks for, by the command line or the API."""

from datetime import datetime, timedelta

from dashboard.accounting.energy.build import calendar_of, make_statement
from dashboard.accounting.energy.periods import Every, require_whole_slots
from dashboard.accounting.energy.statement import EsgStatement, GroupBy
from data.base.clock import ceil_to_slot, utc_now
from data.base.errors import BadRangeError
from data.base.units import SLOT_SECONDS
from data.settings.all_settings import Settings
from data.store import StoreReader

_RANGE = timedelta(days=7)
_PERIODS = frozenset(Every) - {Every.TOTAL}


def asked_statement(
    reader: StoreReader,
    settings: Settings,
    *,
    by: str,
    every: str,
    start: datetime | None,
    end: datetime | None,
) -> EsgStatement:
    """Return the statement by a group, or by a period of the whole fleet.

    It begins 7 days before its end, and ends with the newest sample, unless told otherwise. Errors:
    BadRangeError, also for times within five minutes.
    """
    require_whole_slots(start, end)
    end = end or min(utc_now(), reader.latest_sample_at() or utc_now())
    start = start or ceil_to_slot(end - _RANGE, SLOT_SECONDS)
    if start >= end:
        raise BadRangeError(
            f"from {start:%Y-%m-%dT%H:%MZ} is not before to {end:%Y-%m-%dT%H:%MZ}",
            "Give an earlier `from`; `to` is the newest sample unless it is given.",
        )
    group = GroupBy.FLEET if by in _PERIODS else GroupBy(by)
    return make_statement(
        reader,
        start=start,
        end=end,
        settings=settings,
        by=group,
        calendar=calendar_of(settings, Every(by if by in _PERIODS else every)),
    )
