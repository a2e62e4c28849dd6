"""Hours in which only what is urgent is told; the rest comes when they end."""

from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

from data.access_settings import HOURS
from data.store.report_log import URGENT

AT_ONCE = frozenset({URGENT, "failing", "stopped", "resumed"})
"""Events that are told at any hour."""


def quiet_until(now: datetime, hours: str, zone: str) -> datetime | None:
    """Return when the quiet hours around `now` end, UTC; None outside of them.

    `hours` is such as 22:00-07:00 by the clock of the zone, '' for none. Where the clock changes,
    they end by its new time.
    """
    found = HOURS.fullmatch(hours)
    if found is None:
        return None
    begin_hour, begin_minute, end_hour, end_minute = map(int, found.groups())
    begin, end = time(begin_hour, begin_minute), time(end_hour, end_minute)
    local = now.astimezone(ZoneInfo(zone))
    clock = local.time()
    inside = begin <= clock < end if begin < end else clock >= begin or clock < end
    if not inside:
        return None
    day = local.date() + timedelta(days=int(clock >= end))
    return datetime.combine(day, end, tzinfo=local.tzinfo).astimezone(UTC)
