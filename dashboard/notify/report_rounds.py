"""Files the reports that are due; the outbox sends them."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from dashboard.notify.report_mail import REPORT_MAIL, REPORT_WEBHOOK, order_text
from dashboard.reports.dispatch import Dispatch, dispatches, due_weeks
from dashboard.reports.editions import recipients
from dashboard.reports.week import Week
from dashboard.reports.weekly_report import make_weekly_report
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.clock import utc_now
from data.settings import Settings
from data.store import Store
from data.store.outbox import Message


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
        """Return who would get what of a week, and what is held back, why. Errors: StoreError."""
        settings = self.settings()
        reports = {
            edition: make_weekly_report(
                self.store.reader,
                week=week,
                settings=settings,
                carbon=load_carbon_table().get(settings.energy.region),
                catalogue=load_gpu_catalogue(),
                edition=edition,
            )
            for edition in recipients(settings.report)
        }
        return dispatches(week, reports, settings.report, self.store.report_log)

    def file(self, one: Dispatch, now: datetime) -> bool:
        """File one edition unless it is held back; tell whether it was filed. Errors: StoreError.

        Of an owner's edition that is held back the period is filed too, without a message, so
        that it is not made anew every minute.
        """
        if one.held == "already sent":
            return False
        messages = () if one.held else _messages(one)
        detail = f"{one.week.name} {one.edition.key}: " + (
            one.held or f"{len(messages)} recipients"
        )
        return self.store.report_log.file(
            period=one.week.name,
            edition=one.edition.key,
            messages=messages,
            detail=detail,
            owner=one.edition.name,
            findings=() if one.held else one.findings,
            now=now,
        )


def _messages(one: Dispatch) -> tuple[Message, ...]:
    """Return the messages of an edition; their entry in the audit is put in when they are filed."""
    name = f" ({one.edition.kind} {one.edition.name})" if one.edition.name else ""
    channels = [(REPORT_MAIL, address) for address in one.to]
    if one.webhook:
        channels.append((REPORT_WEBHOOK, "notify.webhook_url"))
    return tuple(
        Message(
            entry=0,
            channel=channel,
            recipient=recipient,
            subject=f"Trimtab weekly report, {one.week.name}{name}",
            body=order_text(one.week, one.edition.key),
        )
        for channel, recipient in channels
    )
