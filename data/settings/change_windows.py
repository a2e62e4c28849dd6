"""Times of the week in which changes may begin, such as `Mon-Fri 22:00-06:00, Sat, Sun`."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, time, timedelta
from zoneinfo import ZoneInfo

_DAYS = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DAY = "|".join(_DAYS)
_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d"
_ENTRY = re.compile(
    rf"(?=\S)(?:(?P<first>{_DAY})(?:-(?P<last>{_DAY}))?)?(?:(?:^|\s+)"
    rf"(?P<begin>{_TIME})-(?!(?P=begin))(?P<end>{_TIME}))?",
    re.IGNORECASE,
)
FORM = "entries such as Mon-Fri 22:00-06:00 or Sat, parted by commas, or empty"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeWindow:
    """A stretch of time that begins on each of some days (0: Monday) and may end on the next."""

    days: frozenset[int]
    begin: time = time()
    end: time = time()

    def holds(self, local: datetime) -> bool:
        """Return whether a local time lies inside."""
        clock, today = local.time(), local.weekday()
        if self.begin < self.end:
            return today in self.days and self.begin <= clock < self.end
        began_today = today in self.days and clock >= self.begin
        return began_today or ((today - 1) % 7 in self.days and clock < self.end)


def change_windows(text: str) -> tuple[ChangeWindow, ...]:
    """Return the windows of a setting, () of an empty one. Errors: ValueError names the entry."""
    return tuple(_window(entry.strip()) for entry in text.split(",") if entry.strip())


def _window(entry: str) -> ChangeWindow:
    found = _ENTRY.fullmatch(entry)
    if found is None:
        raise ValueError(entry)
    first, last, begin, end = (found[name] for name in ("first", "last", "begin", "end"))
    days = range(7)
    if first:
        start = _DAYS.index(first.lower())
        span = (_DAYS.index((last or first).lower()) - start) % 7
        days = range(start, start + span + 1)
    return ChangeWindow(
        days=frozenset(day % 7 for day in days),
        begin=time.fromisoformat(begin) if begin else time(),
        end=time.fromisoformat(end) if end else time(),
    )


def next_opening(windows: Iterable[ChangeWindow], now: datetime, zone: ZoneInfo) -> datetime | None:
    """Return when (UTC) the next window opens, None while one is open or none is asked for.

    Where the clocks change, a window opens and closes by the new time; one that would open in the
    hour that is left out opens as that hour is skipped.
    """
    windows, local = tuple(windows), now.astimezone(zone)
    if not windows or any(window.holds(local) for window in windows):
        return None
    days = (local.date() + timedelta(days=ahead) for ahead in range(8))
    begins = (
        datetime.combine(day, window.begin, tzinfo=zone).astimezone(UTC)
        for day in days
        for window in windows
        if day.weekday() in window.days
    )
    return min(begin for begin in begins if begin > now)
