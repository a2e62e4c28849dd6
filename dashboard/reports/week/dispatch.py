"""Editions that are due, their recipients, and the reason where one is not sent.

A week is due from the hour and weekday of the settings on; after downtime the missed weeks of the
last month follow, oldest first. On weekends it waits for Monday: nobody is mailed on a day off.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from zoneinfo import ZoneInfo

from dashboard.reports.week.editions import Edition, EditionKind, recipients
from dashboard.reports.week.week import Week, last_whole_week
from dashboard.reports.week.weekly_report import WeeklyReport
from data.settings.reports import ReportSettings
from data.store.record.report_log import REMINDER_INTERVAL, ReportLog

_CATCH_UP_SPAN = timedelta(days=28)
_SEND_HOUR = 7
"""Before people begin to work."""
_FRIDAY = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Dispatch:
    """One edition of one week for its recipients; `hold_reason` is '' where it is sent.

    `findings` are what an owner is told of, by name, so that nothing is told twice in a week.
    """

    week: Week
    edition: Edition
    to: tuple[str, ...]
    webhook: bool
    findings: tuple[str, ...] = ()
    hold_reason: str = ""


def due_weeks(now: datetime, settings: ReportSettings, log: ReportLog) -> tuple[Week, ...]:
    """Return the weeks that should have been sent by `now` (UTC) and were not, oldest first.

    Before anything was ever sent only the newest counts.
    """
    newest = last_whole_week(now, settings)
    if now < sending_time(newest, settings):
        newest = _before(newest, settings)
    filed = log.filed()
    last_filed = max((period for period, _edition in filed), default=newest.name)
    missed = []
    week = _before(newest, settings)
    while week.name > last_filed and week.end > now - _CATCH_UP_SPAN:
        missed.append(week)
        week = _before(week, settings)
    # Of the newest week single editions may be left, when the process died between two of them.
    # A week before one that was filed is due only by a clock that was set back.
    waits = {(newest.name, edition.key) for edition in recipients(settings)} - filed
    return (*reversed(missed), *([newest] if waits and newest.name >= last_filed else []))


def _before(week: Week, settings: ReportSettings) -> Week:
    return last_whole_week(week.end - timedelta(hours=1), settings)


def sending_time(week: Week, settings: ReportSettings) -> datetime:
    """Return the first working hour at which the week's report may go out."""
    at = week.end.astimezone(ZoneInfo(settings.timezone)).replace(hour=_SEND_HOUR)
    while at.weekday() > _FRIDAY:
        at += timedelta(days=1)
    return at


def dispatches(
    week: Week, reports: Mapping[Edition, WeeklyReport], settings: ReportSettings, log: ReportLog
) -> tuple[Dispatch, ...]:
    """Return every edition of the week that the settings name, with its report at hand."""
    filed = log.filed()
    rows = []
    for edition, to in recipients(settings).items():
        findings: tuple[str, ...] = ()
        reason = ""
        if (week.name, edition.key) in filed:
            reason = "already sent"
        elif edition.kind is EditionKind.OWNER:
            findings = findings_of(reports[edition])
            reported = log.told_since(edition.name, week.end - REMINDER_INTERVAL)
            fresh = tuple(finding for finding in findings if finding not in reported)
            reason = _nothing_new(findings, fresh)
            findings = fresh
        rows.append(
            Dispatch(
                week=week,
                edition=edition,
                to=to,
                webhook=settings.webhook and edition.kind is EditionKind.FLEET,
                findings=findings,
                hold_reason=reason,
            )
        )
    return tuple(rows)


def _nothing_new(findings: Sequence[str], fresh: Sequence[str]) -> str:
    if not findings:
        return "nothing of theirs was idle and nothing waits"
    return "" if fresh else "told of all of it within 7 days"


def findings_of(report: WeeklyReport) -> tuple[str, ...]:
    """Return the findings of an owner's report: jobs mostly idle, and decisions that wait."""
    idle = [
        f"idle:{row.namespace}:{row.largest_job}"
        for row in report.waste
        if row.idle_ratio >= _MIN_IDLE_SHARE
    ]
    waiting = [
        f"{stored.recommendation.action}:{stored.recommendation.job_id}"
        for stored in report.recommendations
        if stored.state == "proposed"
    ]
    return tuple(dict.fromkeys([*idle, *waiting]))


_MIN_IDLE_SHARE = 0.5
"""An idle share below half is work with pauses, and no reason for a mail."""
