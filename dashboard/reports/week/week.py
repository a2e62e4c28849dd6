"""The week that a report covers.

Weeks of the calendar run from local midnight to local midnight, so that they follow one another
without a gap or an overlap: 168 h, 167 or 169 h where the clocks change, other lengths where a zone
changes its offset otherwise. The rolling week is the last 168 h.
"""

from dataclasses import dataclass
from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo

from data.base.clock import midnight, require_utc
from data.settings.reports import WEEKDAYS, ReportSettings

_DAYS = 7
_ROLLING = timedelta(hours=168)


@dataclass(frozen=True, slots=True, kw_only=True)
class Week:
    """The time from `start` to `end` (UTC), told in `zone`."""

    start: datetime
    end: datetime
    zone: str

    def __post_init__(self) -> None:
        require_utc("start", self.start)
        require_utc("end", self.end)

    @property
    def hours(self) -> float:
        """Length, h."""
        return (self.end - self.start) / timedelta(hours=1)

    @property
    def length(self) -> str:
        """Length in words, with the reason where it is not 168 h."""
        changed = "" if self.end - self.start == _ROLLING else ", since the clocks changed"
        return f"{self.hours:g} h{changed}"

    @property
    def name(self) -> str:
        """File name of this week's report: the date on which it ends; names sort by time."""
        return f"week-to-{self.end.astimezone(ZoneInfo(self.zone)):%Y-%m-%d}"

    def text(self, at: datetime) -> str:
        """Return a moment in the zone of the week, with the zone's abbreviation."""
        return f"{at.astimezone(ZoneInfo(self.zone)):%Y-%m-%d %H:%M %Z}"

    def date_of(self, at: datetime) -> date:
        """Return the day in the zone of the week."""
        return at.astimezone(ZoneInfo(self.zone)).date()

    def midnights(self) -> tuple[datetime, ...]:
        """Return the moments (UTC) of the week at which a day begins in its zone."""
        first = self.date_of(self.start)
        days = (first + timedelta(days=number) for number in range(_DAYS + 2))
        moments = dict.fromkeys(midnight(day, ZoneInfo(self.zone)) for day in days)
        return tuple(at for at in moments if self.start <= at < self.end)


def last_whole_week(now: datetime, settings: ReportSettings) -> Week:
    """Return the newest week of the settings' calendar that has ended by `now` (UTC)."""
    require_utc("now", now)
    zone = ZoneInfo(settings.timezone)
    today = now.astimezone(zone).date()
    back = (today.weekday() - WEEKDAYS.index(settings.week_ends)) % 7
    return _calendar_week(today - timedelta(days=back), settings.timezone)


def week_to(end: datetime, zone: str) -> Week:
    """Return the 168 h up to `end` (UTC)."""
    return Week(start=end - _ROLLING, end=end, zone=zone)


def week_filed(end: datetime, zone: str) -> Week:
    """Return the week of the calendar that ends at `end` (UTC), a midnight of the zone."""
    return _calendar_week(end.astimezone(ZoneInfo(zone)).date(), zone)


def _calendar_week(end: date, zone: str) -> Week:
    here = ZoneInfo(zone)
    start = midnight(end - timedelta(days=_DAYS), here)
    return Week(start=start, end=midnight(end, here), zone=zone)
