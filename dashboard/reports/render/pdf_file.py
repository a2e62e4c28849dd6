"""The report as PDF: what draws it is loaded with the first one."""

from dashboard.reports.week.weekly_report import WeeklyReport
from data.base.extras import require_extra


def render_pdf(report: WeeklyReport) -> bytes:
    """Return the report as PDF. Errors: SettingsError without the extra that draws it."""
    require_extra("pages", "a report as PDF is asked for")
    from dashboard.reports.render.pdf_report import pdf_of

    return pdf_of(report)
