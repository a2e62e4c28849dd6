"""Which 168 hours a report covers.

A week is always 168 h long. It ends at a midnight of the configured zone; where the clocks were
changed within it, it therefore begins at 01:00 or 23:00 there: no hour is counted twice or lost
between two reports' totals and the store's hourly roll-ups.
"""

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from zoneinfo import ZoneInfo

from data.clock import require_utc
from data.report_settings import WEEKDAYS, ReportSettings

HOURS = 168


@dataclass(frozen=True, slots=True, kw_only=True)
class Week:
    """168 hours up to `end` (UTC), told in `zone`."""

    end: datetime
    zone: str

    def __post_init__(self) -> None:
        require_utc("end", self.end)

    @property
    def start(self) -> datetime:
        """The first moment, UTC."""
        return self.end - timedelta(hours=HOURS)

    @property
    def name(self) -> str:
        """How the report of this week is filed: the date on which it ends; names sort by time."""
        return f"week-to-{self.end.astimezone(ZoneInfo(self.zone)):%Y-%m-%d}"

    def text(self, at: datetime) -> str:
        """Give a moment in the zone of the week, with the zone's abbreviation."""
        return f"{at.astimezone(ZoneInfo(self.zone)):%Y-%m-%d %H:%M %Z}"

    def date_of(self, at: datetime) -> date:
        """Give the day in the zone of the week."""
        return at.astimezone(ZoneInfo(self.zone)).date()

    def midnights(self) -> tuple[datetime, ...]:
        """Give the moments (UTC) of the week at which a day begins in its zone."""
        zone, first = ZoneInfo(self.zone), self.date_of(self.start)
        days = (first + timedelta(days=number) for number in range(9))
        found = (datetime.combine(day, time(), tzinfo=zone).astimezone(UTC) for day in days)
        return tuple(at for at in found if self.start <= at < self.end)


def last_whole_week(now: datetime, settings: ReportSettings) -> Week:
    """Give the newest week of the settings' calendar that has ended by `now` (UTC)."""
    require_utc("now", now)
    zone = ZoneInfo(settings.timezone)
    today = now.astimezone(zone).date()
    back = (today.weekday() - WEEKDAYS.index(settings.week_ends)) % 7
    end = datetime.combine(today - timedelta(days=back), time(), tzinfo=zone).astimezone(UTC)
    return Week(end=end, zone=settings.timezone)


def next_week_end(after: datetime, settings: ReportSettings) -> datetime:
    """Give the first end of a week that comes after `after` (UTC)."""
    zone = ZoneInfo(settings.timezone)
    last = last_whole_week(after, settings).end.astimezone(zone).date()
    return datetime.combine(last + timedelta(days=7), time(), tzinfo=zone).astimezone(UTC)
