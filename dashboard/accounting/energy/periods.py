"""Hours, days, weeks and months of a range: whole ones of a zone, cut to the range at its ends.

The roll-ups count in hours of UTC. Days and weeks begin at midnights of the zone, so a range is
read in pieces of one UTC offset each, and a day on which the clocks change in two.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from data.base.clock import ceil_to_slot, floor_to_slot, midnight, stretches_of_offset
from data.base.errors import BadRangeError
from data.base.units import SECONDS_PER_DAY, SECONDS_PER_HOUR, SLOT_SECONDS
from data.store.facts.energy_parts import Periods

_EPOCH_WEEKDAY = 3
"""1970-01-01 was a Thursday."""


class PeriodLength(StrEnum):
    """How long a period is; total: the range is one."""

    HOUR = "hour"
    DAY = "day"
    WEEK = "week"
    MONTH = "month"
    TOTAL = "total"


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A stretch [start, end) of one UTC offset, and the grid on which its periods are numbered."""

    start: datetime
    end: datetime
    grid: Periods


@dataclass(frozen=True, slots=True, kw_only=True)
class Calendar:
    """Periods of one length in one zone; weeks begin on `week_begins`, 0 for Monday."""

    every: PeriodLength
    zone: str = "UTC"
    week_begins: int = 0

    def pieces(self, start: datetime, end: datetime) -> tuple[Piece, ...]:
        """Return the stretches to read one by one; together they are [start, end)."""
        if self.every is PeriodLength.TOTAL:
            return (Piece(start=start, end=end, grid=Periods()),)
        if self.every is PeriodLength.HOUR:
            return (Piece(start=start, end=end, grid=Periods(seconds=SECONDS_PER_HOUR)),)
        days = self._days
        parts = []
        for since, until, offset in stretches_of_offset(start, end, ZoneInfo(self.zone)):
            shift = offset + self._shift_days * SECONDS_PER_DAY
            grid = Periods(seconds=days * SECONDS_PER_DAY, shift_seconds=shift)
            parts.append(Piece(start=since, end=until, grid=grid))
        return tuple(parts)

    @property
    def _days(self) -> int:
        return 7 if self.every is PeriodLength.WEEK else 1

    @property
    def _shift_days(self) -> int:
        return _EPOCH_WEEKDAY - self.week_begins if self.every is PeriodLength.WEEK else 0

    def start_of(self, number: int, start: datetime) -> datetime:
        """Return first moment (UTC) of the period of that number in the range from `start` on."""
        if self.every is PeriodLength.TOTAL:
            return start
        if self.every is PeriodLength.HOUR:
            at = datetime.fromtimestamp(number * SECONDS_PER_HOUR, tz=UTC)
        else:
            day = date(1970, 1, 1) + timedelta(days=number * self._days - self._shift_days)
            first = day.replace(day=1) if self.every is PeriodLength.MONTH else day
            at = midnight(first, ZoneInfo(self.zone))
        return max(at, start)

    def spans(self, start: datetime, end: datetime) -> tuple[tuple[datetime, datetime], ...]:
        """Return all periods of [start, end) in order, cut to it; none for an empty range."""
        starts: list[datetime] = []
        at = start
        while at < end:
            starts.append(at)
            at = self._next(at, end)
        return tuple(zip(starts, [*starts[1:], end], strict=True)) if starts else ()

    def _next(self, at: datetime, end: datetime) -> datetime:
        if self.every is PeriodLength.TOTAL:
            return end
        if self.every is PeriodLength.HOUR:
            return floor_to_slot(at, SECONDS_PER_HOUR) + timedelta(hours=1)
        day = at.astimezone(ZoneInfo(self.zone)).date() + timedelta(days=1)
        while self.every is PeriodLength.WEEK and day.weekday() != self.week_begins:
            day += timedelta(days=1)
        while self.every is PeriodLength.MONTH and day.day != 1:
            day += timedelta(days=1)
        return midnight(day, ZoneInfo(self.zone))

    def name_of(self, start: datetime) -> str:
        """Return the name of a period: 2026-03-29, 2026-03-29 14:00 CEST, or '' for the total."""
        local = start.astimezone(ZoneInfo(self.zone))
        if self.every is PeriodLength.HOUR:
            return f"{local:%Y-%m-%d %H:%M %Z}"
        return "" if self.every is PeriodLength.TOTAL else f"{local:%Y-%m-%d}"


WHOLE_RANGE = Calendar(every=PeriodLength.TOTAL)


def require_whole_slots(start: datetime | None, end: datetime | None) -> None:
    """Refuse an asked range that cuts five minutes, which are counted whole (BadRangeError)."""
    for name, at in (("from", start), ("to", end)):
        if at is not None and at != (below := floor_to_slot(at, SLOT_SECONDS)):
            above = ceil_to_slot(at, SLOT_SECONDS)
            raise BadRangeError(
                f"`{name}` {at.isoformat()} lies within five minutes, which are counted whole",
                f"Give {below:%Y-%m-%dT%H:%MZ} or {above:%Y-%m-%dT%H:%MZ}.",
            )
