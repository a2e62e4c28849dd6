"""A report on its way to people: rendered from the store when it is sent, not when it is filed."""

import json
from datetime import datetime
from email.message import EmailMessage

from dashboard.common.escaping import without_escapes
from dashboard.reports.render.html_report import render_html, render_markdown
from dashboard.reports.render.pdf_file import render_pdf
from dashboard.reports.week.editions import edition_of
from dashboard.reports.week.week import Week, week_filed
from dashboard.reports.week.weekly_report import WeeklyReport, make_weekly_report
from data.settings.all_settings import Settings
from data.store import StoreReader

REPORT_MAIL, REPORT_WEBHOOK = "report-mail", "report-webhook"


def order_text(week: Week, edition: str) -> str:
    """Return the outbox's text for a report: which one it is."""
    return json.dumps({"end": week.end.isoformat(), "zone": week.zone, "edition": edition})


def ordered_report(body: str, reader: StoreReader, settings: Settings) -> WeeklyReport:
    """Return the report that the body of a message names. Errors: StoreError."""
    order = json.loads(body)
    return make_weekly_report(
        reader,
        week=week_filed(datetime.fromisoformat(order["end"]), order["zone"]),
        settings=settings,
        edition=edition_of(order["edition"]),
    )


def attach(mail: EmailMessage, report: WeeklyReport) -> None:
    """Put the report into the mail: text to read, HTML and PDF attached."""
    name = f"trimtab-{report.week.name}"
    mail.set_content(without_escapes(render_markdown(report)))
    mail.add_attachment(render_pdf(report), "application", "pdf", filename=f"{name}.pdf")
    mail.add_attachment(render_html(report).encode(), "text", "html", filename=f"{name}.html")


def summary(report: WeeklyReport) -> str:
    """Return the report in a message: its week and its sentence."""
    week = report.week
    span = f"{week.text(week.start)} to {week.text(week.end)}"
    return f"Trimtab weekly report, {span}\n{report.finding}"
