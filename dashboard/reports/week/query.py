"""The weekly report that somebody asks for, by the command line or the API."""

from datetime import datetime

from dashboard.reports.week.editions import WHOLE, Edition
from dashboard.reports.week.week import last_whole_week, week_to
from dashboard.reports.week.weekly_report import WeeklyReport, make_weekly_report
from data.base.clock import utc_now
from data.settings.all_settings import Settings
from data.store import StoreReader


def asked_report(
    reader: StoreReader,
    settings: Settings,
    *,
    end: datetime | None,
    last_week: bool,
    edition: Edition = WHOLE,
) -> WeeklyReport:
    """Return the report of the 168 hours before `end`, the newest sample where it is None.

    With `last_week`, of the last whole week of the calendar before it. Errors: StoreError.
    """
    now = end or min(utc_now(), reader.latest_sample_at() or utc_now())
    zone = settings.report.timezone
    return make_weekly_report(
        reader,
        week=last_whole_week(now, settings.report) if last_week else week_to(now, zone),
        settings=settings,
        edition=edition,
    )
