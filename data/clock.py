"""Time in UTC: the only place that reads the wall clock, and the checks that times carry a zone."""

import time
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from datetime import time as time_of_day
from zoneinfo import ZoneInfo


def utc_now() -> datetime:
    """Return the current time, aware, in UTC."""
    return datetime.now(tz=UTC)


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
