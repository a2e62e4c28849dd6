"""The weekly report as one self-contained HTML file, as Markdown, and as JSON.

Names come from labels and are hostile: HTML is escaped by Jinja, Markdown by the filter `md`, and
what cannot be seen is shown as such in both (see `dashboard.common.escaping`).
"""

import json
from dataclasses import asdict, dataclass
from datetime import date, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from jinja2 import Environment, PackageLoader, StrictUndefined

from dashboard.accounting.energy.export import (
    EnergyDocument,
    Fields,
    row_fields,
    statement_document,
)
from dashboard.accounting.energy.periods import WHOLE_RANGE
from dashboard.accounting.energy.statement import METHOD, NOT_INCLUDED, covered
from dashboard.accounting.savings.daily_savings import RunRate
from dashboard.accounting.savings.ledger import Total
from dashboard.common.escaping import markdown, shown
from dashboard.common.figures import bare_range_text, figure_text, range_text, target_text
from dashboard.reports.week.savings import WeeklySaved
from dashboard.reports.week.waste import WasteRow
from dashboard.reports.week.week import Week
from dashboard.reports.week.weekly_report import DayAhead, WeeklyReport
from data.base.counts import count_text
from data.base.extras import require_extra
from data.base.rows import row_of
from data.facts.energy_integration import MAX_GAP_SECONDS
from data.records.commands import AuditEntry, Measurement
from data.records.recommendations import Range, StatedRecommendation

UNKNOWN = "—"
_LONGEST = 200
_CHART_MARGIN = timedelta(seconds=MAX_GAP_SECONDS + 1)


_CONSTANTS = {"method": METHOD, "not_included": NOT_INCLUDED}


def bare_text(value: Range | None, ratio: float | None = None) -> str:
    """Return range without its unit, and the share of the board-time that it covers, if not all."""
    if value is None:
        return UNKNOWN
    return covered(bare_range_text(value), ratio)


def percent_text(ratio: float | None) -> str:
    """Return a share as a percentage, an em dash when unknown."""
    return UNKNOWN if ratio is None else f"{100 * ratio:.1f} %"


def number_text(value: float | None) -> str:
    """Return a number with three significant digits, an em dash when unknown."""
    return UNKNOWN if value is None else figure_text(value)


def time_text(at: datetime | None, week: Week) -> str:
    """Return a time to the minute in the zone of the week."""
    return UNKNOWN if at is None else week.text(at)


def markdown_text(text: object, *, longest: int = _LONGEST) -> str:
    """Return untrusted text for Markdown on one line, cut (see `escaping.markdown`)."""
    return markdown(text, limit=longest)


def _visible(value: object) -> object:
    """Return the output of a template with nothing unseen in it; markup stays as it is."""
    return shown(value) if type(value) is str else value


def _environment(week: Week, *, html: bool) -> Environment:
    environment = Environment(
        loader=PackageLoader("dashboard.reports.render", ""),
        autoescape=html,  # noqa: S701 - Markdown is escaped by the filter `md` instead
        undefined=StrictUndefined,
        finalize=_visible if html else None,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters.update(
        range=range_text,
        count=count_text,
        bare=bare_text,
        target=target_text,
        percent=percent_text,
        number=number_text,
        time=lambda at: time_text(at, week),
        md=markdown_text,
    )
    return environment


def render_markdown(report: WeeklyReport) -> str:
    """Return the report as Markdown."""
    template = _environment(report.week, html=False).get_template("weekly.md.j2")
    return template.render(report=report, **_CONSTANTS)


def render_html(report: WeeklyReport) -> str:
    """Return the report as one HTML file that fetches nothing and runs nothing."""
    picture = ""
    if not report.fleet.empty:
        require_extra("pages", "a report as HTML is asked for")
        # Deferred: fonts and page layout take half a second that Markdown and JSON do not need.
        from dashboard.reports.render.pdf_timeline import svg_timeline

        picture = svg_timeline(report.fleet, report.week)
    return fill_html(report, picture=picture)


def fill_html(report: WeeklyReport, *, picture: str) -> str:
    """Return the report as HTML with this picture of the fleet, '' where nothing was seen."""
    template = _environment(report.week, html=True).get_template("weekly.html.j2")
    return template.render(report=report, picture=picture, **_CONSTANTS)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanLine:
    """Cost and bound of the plan in a report."""

    plan_id: str
    cost: float
    lower_bound: float
    gap: float
    currency: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedChange:
    """An applied change of a report, with what it promised and brought."""

    finding: str
    id: str
    digest: str
    action: str
    target: str
    state: str
    applied_at: datetime
    measured_at: datetime | None
    measurement: Measurement | None
    unknown_because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedDocument:
    """Counts, sums and changes of a week."""

    approved: int
    rejected: int
    applied: int
    run_rate: RunRate | None
    gpu_hours: Total
    energy_kwh: Total
    emissions_kgco2e: Range | None
    changes: list[SavedChange]


@dataclass(frozen=True, slots=True, kw_only=True)
class WeeklyDocument:
    """The weekly report as one object; unknown is None."""

    start: datetime
    end: datetime
    zone: str
    edition: str
    as_of: datetime | None
    boards: float | None
    allocated_gpus: float | None
    used_gpus: float | None
    coverage_ratio: float | None
    finding: str
    forecasts: int
    forecasts_skipped: int
    energy: EnergyDocument
    energy_by_job: list[Fields]
    energy_by_day: list[Fields]
    waste: tuple[WasteRow, ...]
    made_of: dict[str, str]
    decided: tuple[AuditEntry, ...]
    saved: SavedDocument
    ahead: tuple[DayAhead, ...]
    recommendations: list[StatedRecommendation]
    plan: PlanLine | None


def weekly_document(report: WeeklyReport) -> WeeklyDocument:
    """Return the report as one object for programs."""
    names = (
        "as_of", "boards", "allocated_gpus", "used_gpus", "coverage_ratio", "finding", "forecasts",
        "forecasts_skipped", "waste", "decided", "ahead",
    )  # fmt: skip
    fields: dict[str, Any] = {name: getattr(report, name) for name in names}
    plan, days = report.plan, report.energy.days
    return WeeklyDocument(
        start=report.week.start,
        end=report.week.end,
        zone=report.week.zone,
        edition=report.edition.key,
        energy=statement_document(report.energy.statement),
        energy_by_job=[row_fields(row, WHOLE_RANGE) for row in report.energy.top_jobs],
        energy_by_day=[row_fields(row, days.calendar) for row in days.rows],
        made_of=source_addresses(report.week),
        saved=_saved(report.saved),
        recommendations=[
            stored.recommendation.as_row(StatedRecommendation, state=stored.state)
            for stored in report.recommendations
        ],
        plan=None if plan is None else row_of(PlanLine, plan, gap=plan.gap_ratio),
        **fields,
    )


def render_json(report: WeeklyReport) -> str:
    """Return the report as one JSON object; unknown is null."""
    text = json.dumps(
        asdict(weekly_document(report)),
        default=_plain, indent=2, allow_nan=False, ensure_ascii=False,
    )  # fmt: skip
    return f"{text}\n"


def source_addresses(week: Week) -> dict[str, str]:
    """Return by part of the report the address of the API that tells what it is made of.

    Under the parts stand the slots and readings of a board; {gpu_uuid} is one of `boards`. Slots at
    the ends of the week take from readings beyond these.
    """
    span = _span(week.start, week.end)
    around = _span(week.start - _CHART_MARGIN, week.end + _CHART_MARGIN)
    parts = {
        "energy": f"energy?by=tenant&{span}",
        "energy_by_job": f"energy?by=job&{span}",
        "energy_by_day": f"energy?by=day&{span}",
        "waste": f"energy?by=job&{span}",
        "rent": f"statement?by=model&{span}",
        "ahead": "forecasts?by=group&points=true",
        "recommendations": "findings?all=true",
        "saved": "savings",
        "run_rate": "savings/to-date",
        "decided": "audit",
        "plan": "plan",
        "boards": "gpus",
        "slots": f"slots?gpu={{gpu_uuid}}&{span}",
        "readings": f"samples?gpu={{gpu_uuid}}&{around}",
    }
    return {part: f"/api/v1/{address}" for part, address in parts.items()}


def _span(start: datetime, end: datetime) -> str:
    return urlencode({"from": start.isoformat(), "to": end.isoformat()})


def _saved(saved: WeeklySaved) -> SavedDocument:
    """Return the counts, the sums, and each change with what it promised and brought."""
    return row_of(
        SavedDocument,
        saved,
        energy_kwh=saved.energy,
        changes=[
            SavedChange(
                finding=row.reference,
                id=row.recommendation.recommendation_id,
                digest=row.recommendation.digest,
                action=str(row.recommendation.action),
                target=row.recommendation.target,
                state=row.state,
                applied_at=row.applied_at,
                measured_at=row.measured_at,
                measurement=row.measurement,
                unknown_because=row.reason,
            )
            for row in saved.rows
        ],
    )


def _plain(value: object) -> str:
    if isinstance(value, date):  # a datetime is one too
        return value.isoformat()
    raise TypeError(f"cannot write a {type(value).__name__} into the report")
