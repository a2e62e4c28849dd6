"""The weekly report as PDF: the same facts in the same order as its other forms."""

import io
from typing import Any

from reportlab.lib.units import mm
from reportlab.pdfgen.canvas import Canvas
from reportlab.platypus import Flowable, SimpleDocTemplate, Spacer

from dashboard.common.figures import range_text, target_text
from dashboard.reports.render.html_report import number_text, time_text
from dashboard.reports.render.pdf_energy import energy_part, method_part, saved_part
from dashboard.reports.render.pdf_style import (
    FINDING,
    HEADING,
    MARGIN,
    PAGE,
    SOFTLY,
    TITLE,
    paragraph,
    register_fonts,
    table,
)
from dashboard.reports.render.pdf_timeline import pdf_timeline
from dashboard.reports.week.weekly_report import WeeklyReport

_TOP = 10
_MAX_RECOMMENDATIONS = 40
_SAVES = (
    "Saved money, energy of the site and location-based emissions, each with its range; — where "
    "it is not known."
)


def render_pdf(report: WeeklyReport) -> bytes:
    """Return the report as PDF, A4, with text that can be searched. Fetches nothing."""
    register_fonts()
    target = io.BytesIO()
    document = SimpleDocTemplate(
        target,
        pagesize=PAGE,
        leftMargin=MARGIN,
        rightMargin=MARGIN,
        topMargin=MARGIN,
        bottomMargin=MARGIN,
        title=f"Trimtab weekly report, {report.week.name}",
        author="Trimtab",
        invariant=1,
    )

    def footer(canvas: Canvas, sheet: Any) -> None:
        canvas.setFont("DejaVuSans", 7)
        canvas.drawString(MARGIN, 9 * mm, f"Trimtab weekly report, {report.week.name}")
        canvas.drawRightString(PAGE[0] - MARGIN, 9 * mm, f"page {sheet.page}")

    document.build(_story(report), onFirstPage=footer, onLaterPages=footer)
    return target.getvalue()


def _story(report: WeeklyReport) -> list[Flowable]:
    week = report.week
    covered = (
        f"{week.text(week.start)} to {week.text(week.end)} ({week.length}), newest sample "
        f"{time_text(report.as_of, week)}"
    )
    story: list[Flowable] = [
        paragraph(_title(report), TITLE),
        paragraph(covered, SOFTLY),
        Spacer(1, 6),
        paragraph(report.finding, FINDING),
    ]
    if not report.fleet.empty:
        story.append(pdf_timeline(report.fleet, week))
    return [
        *story,
        *_waste(report),
        *saved_part(report),
        *_next_steps(report),
        *_ahead(report),
        *energy_part(report),
        *method_part(report),
    ]


def _title(report: WeeklyReport) -> str:
    edition = report.edition
    return f"Trimtab weekly report{f': {edition.whose}' if edition.name else ''}"


def _waste(report: WeeklyReport) -> list[Flowable]:
    heading = paragraph("Allocated but idle", HEADING)
    if not report.waste:
        return [heading, paragraph(report.no_waste)]
    rows: list[tuple[object, ...]] = [
        (
            *row.shown_names,
            number_text(row.gpu_hours),
            number_text(row.idle_gpu_hours),
            f"{100 * row.idle_ratio:.0f} %",
            row.cost.text(report.currency),
            row.largest_job,
        )
        for row in report.waste[:_TOP]
    ]
    header = (
        "namespace",
        "owner",
        "GPU-h held",
        "idle",
        "share",
        f"cost of idle{report.left_out_of_prices}",
        "largest job",
    )
    return [
        heading,
        table(header, rows, widths=(3, 2.4, 1.6, 1.4, 1.2, 2.4, 5), numbers=(2, 3, 4, 5)),
        *_rest(len(report.waste), _TOP),
    ]


def _rest(count: int, listed: int) -> list[Flowable]:
    more = count - listed
    return [paragraph(f"{more} more in the JSON form of this report.", SOFTLY)] if more > 0 else []


def _next_steps(report: WeeklyReport) -> list[Flowable]:
    heading = paragraph("What to do next", HEADING)
    waiting = [
        recommendation
        for recommendation in report.recommendations
        if recommendation.state in ("proposed", "approved")
    ]
    if not waiting:
        return [heading, paragraph("No recommendation waits for a decision.")]
    changes = [entry.recommendation for entry in waiting[:_MAX_RECOMMENDATIONS]]
    rows: list[tuple[object, ...]] = [
        (
            (f"{change.action.spec.title}, {entry.state}", target_text(change), entry.reference),
            (f"{change.now.describe()} →", change.summary),
            (
                range_text(change.savings.cost),
                range_text(change.savings.energy_kwh),
                range_text(change.savings.emissions_kgco2e),
                f"in {change.savings.horizon_hours:.4g} h",
            ),
            change.risk,
        )
        for entry, change in zip(waiting, changes, strict=False)
    ]
    header = ("recommendation", "now → proposed", "saves", "risk")
    return [
        heading,
        table(
            header,
            rows,
            widths=(5.6, 5.4, 5, 1.6),
            numbers=(2,),
            notes=[change.why for change in changes],
        ),
        paragraph(_SAVES, SOFTLY),
        *_rest(len(waiting), _MAX_RECOMMENDATIONS),
    ]


def _ahead(report: WeeklyReport) -> list[Flowable]:
    heading = paragraph("The week ahead", HEADING)
    if not report.ahead:
        return [heading, paragraph("No forecast of the fleet is kept.")]
    rows: list[tuple[object, ...]] = [
        (
            f"{entry.day}" + (f" ({entry.hours} h)" if entry.hours < 24 else ""),
            range_text(entry.wanted),
            range_text(entry.used),
            f"{number_text(entry.peak_wanted)} at {time_text(entry.peak_at, report.week)}",
        )
        for entry in report.ahead
    ]
    header = ("day", "GPUs wanted", "GPUs in use", "peak wanted (q90)")
    note = "Means of the hours' q10, q50 and q90."
    if report.boards is not None:
        note += f" The fleet had {report.fleet_size}."
    return [
        heading,
        table(header, rows, widths=(2, 3, 3, 4), numbers=(1, 2, 3)),
        paragraph(note, SOFTLY),
    ]
