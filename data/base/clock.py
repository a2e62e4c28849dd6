"""Time in UTC: the only place that reads the wall clock, and the checks that times carry a zone."""

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta, tzinfo
from datetime import time as time_of_day
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_DAY, _QUARTER = timedelta(days=1), timedelta(minutes=15)
"""Clocks change once a day at most, at quarters of an hour."""


def utc_now() -> datetime:
    """Return the current time, aware, in UTC."""
    return datetime.fromtimestamp(time.time(), tz=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class PacedClock:
    """A clock that stands at `start` when it is made and then runs `pace` times as fast as time."""

    start: datetime
    pace: float
    _began: float = field(default_factory=time.monotonic, repr=False)

    def __call__(self) -> datetime:
        """Return its time, aware, in UTC."""
        return self.start + timedelta(seconds=self.pace * (time.monotonic() - self._began))


def require_utc(name: str, at: datetime) -> None:
    """Refuse a time without a zone or in another zone than UTC (ValueError)."""
    offset = at.utcoffset()
    if offset is None:
        raise ValueError(f"{name} must be UTC-aware, got a naive time {at.isoformat()}")
    if offset.total_seconds() != 0:
        raise ValueError(f"{name} must be in UTC, got {at.isoformat()}")


def find_zone(name: str) -> ZoneInfo | None:
    """Return the IANA zone of a name, None where there is none."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        return None


def parts_of(start: datetime, end: datetime, longest: timedelta) -> list[tuple[datetime, datetime]]:
    """Return [start, end) in parts of that length, the last with what is left; at least one."""
    count = max(1, -(-(end - start) // longest))
    begins = [start + number * longest for number in range(count)]
    return list(zip(begins, [*begins[1:], end], strict=True))


def stretches_of_offset(
    start: datetime, end: datetime, zone: tzinfo
) -> Iterator[tuple[datetime, datetime, int]]:
    """Yield the periods of one offset (s ahead of UTC) that make up [start, end)."""

    def offset_at(at: datetime) -> int:
        return int((at.astimezone(zone).utcoffset() or timedelta()).total_seconds())

    since, offset = start, offset_at(start)
    day = floor_to_slot(start, int(_QUARTER.total_seconds()))
    while day < end:
        if offset_at(day + _DAY) != offset:
            at = day + _QUARTER
            while offset_at(at) == offset:
                at += _QUARTER
            if at >= end:
                break
            yield since, at, offset
            since, offset = at, offset_at(at)
        day += _DAY
    yield since, end, offset


def midnight(day: date, zone: ZoneInfo) -> datetime:
    """Return the moment (UTC) at which a day begins in a zone."""
    return datetime.combine(day, time_of_day(), tzinfo=zone).astimezone(UTC)


def ceil_to_slot(at: datetime, slot_seconds: int) -> datetime:
    """Return `at` where a slot starts there, else the start of the next slot."""
    below = floor_to_slot(at, slot_seconds)
    return below if below == at else below + timedelta(seconds=slot_seconds)


def floor_to_slot(at: datetime, slot_seconds: int) -> datetime:
    """Return the start of the slot (counted from the epoch, UTC) that holds `at`."""
    return datetime.fromtimestamp(int(at.timestamp()) // slot_seconds * slot_seconds, tz=UTC)
