"""Files the reports that are due; the outbox sends them."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from dashboard.notify.report_mail import REPORT_MAIL, REPORT_WEBHOOK, order_text
from dashboard.reports.week.dispatch import Dispatch, dispatches, due_weeks
from dashboard.reports.week.editions import recipients
from dashboard.reports.week.week import Week
from dashboard.reports.week.weekly_report import make_weekly_report
from data.base.clock import utc_now
from data.settings.all_settings import Settings
from data.store import Store
from data.store.record.outbox import Message


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRounds:
    """Looks which reports are due, under the settings of the moment."""

    store: Store
    settings: Callable[[], Settings]
    clock: Callable[[], datetime] = utc_now

    def file_due(self) -> bool:
        """File the editions that are due; tell whether there was one. Errors: StoreError."""
        settings, now = self.settings(), self.clock()
        if not recipients(settings.report):
            return False
        weeks = due_weeks(now, settings.report, self.store.report_log)
        filed = [self.file(entry, now) for week in weeks for entry in self.planned(week)]
        return any(filed)

    def planned(self, week: Week) -> tuple[Dispatch, ...]:
        """Return the dispatches of a week, held ones with their reasons. Errors: StoreError."""
        settings = self.settings()
        reports = {
            edition: make_weekly_report(
                self.store.reader,
                week=week,
                settings=settings,
                edition=edition,
            )
            for edition in recipients(settings.report)
        }
        return dispatches(week, reports, settings.report, self.store.report_log)

    def file(self, dispatch: Dispatch, now: datetime) -> bool:
        """File one edition unless it is held back; tell whether it was filed. Errors: StoreError.

        Of an owner's edition that is held back the period is filed too, without a message, so
        that it is not made anew every minute.
        """
        if dispatch.hold_reason == "already sent":
            return False
        messages = () if dispatch.hold_reason else _messages(dispatch)
        detail = f"{dispatch.week.name} {dispatch.edition.key}: " + (
            dispatch.hold_reason or f"{len(messages)} recipients"
        )
        return self.store.report_log.file(
            period=dispatch.week.name,
            edition=dispatch.edition.key,
            messages=messages,
            detail=detail,
            owner=dispatch.edition.name,
            findings=() if dispatch.hold_reason else dispatch.findings,
            now=now,
        )


def _messages(dispatch: Dispatch) -> tuple[Message, ...]:
    """Return the messages of an edition; their entry in the audit is put in when they are filed."""
    name = f" ({dispatch.edition.kind} {dispatch.edition.name})" if dispatch.edition.name else ""
    channels = [(REPORT_MAIL, address) for address in dispatch.to]
    if dispatch.webhook:
        channels.append((REPORT_WEBHOOK, "notify.webhook_url"))
    return tuple(
        Message(
            entry=0,
            channel=channel,
            recipient=recipient,
            subject=f"Trimtab weekly report, {dispatch.week.name}{name}",
            body=order_text(dispatch.week, dispatch.edition.key),
        )
        for channel, recipient in channels
    )
