"""Parts of the PDF: what was really saved, energy and emissions, and what these rest on."""

from reportlab.platypus import Flowable, Spacer

from dashboard.accounting.energy.statement import METHOD, NOT_INCLUDED
from dashboard.accounting.savings.ledger import LedgerRow
from dashboard.common.figures import range_text, target_text
from dashboard.reports.render.html_report import bare_text, number_text, percent_text
from dashboard.reports.render.pdf_style import BODY, HEADING, SOFTLY, paragraph, table
from dashboard.reports.week.weekly_energy import EnergyLine
from dashboard.reports.week.weekly_report import WeeklyReport
from data.base.counts import count_text
from data.records.recommendations import Range

_SAVED_HEADER = ("change", "GPU-hours saved", "kWh saved", "kgCO2e saved")
_ENERGY_HEADER = (
    "GPU-h",
    "measured",
    "GPU kWh",
    "location-based kgCO2e",
    "market-based kgCO2e",
    "embodied kgCO2e",
    "SCI g/GPU-h of work",
)


def saved_part(report: WeeklyReport) -> list[Flowable]:
    """Return the part on approved, applied and measured savings, and who decided."""
    saved = report.saved
    story: list[Flowable] = [
        paragraph("Approved, applied, really saved", HEADING),
        paragraph(saved.finding, BODY),
    ]
    if saved.run_rate is not None:
        story.append(paragraph(saved.run_rate.text, BODY))
    if saved.rows:
        changes = count_text(len(saved.rows), "change")
        total = (
            f"total of what is known, {saved.gpu_hours.measured} of {changes}",
            _savings(saved.gpu_hours.realised, saved.gpu_hours.predicted),
            _savings(saved.energy.realised, saved.energy.predicted),
            bare_text(saved.emissions_kgco2e),
        )
        story += [
            table(
                _SAVED_HEADER,
                [*map(_saved_row, saved.rows), total],
                widths=(6, 4, 4, 4),
                numbers=(1, 2, 3),
                notes=[row.reason and f"Unknown: {row.reason}" for row in saved.rows],
            ),
            paragraph(
                "Below each amount what was promised for the same hours. Site energy and "
                "location-based emissions, measured over the slots after a change against the job "
                "without it. A change counts in the week in which it was measured.",
                SOFTLY,
            ),
        ]
    if report.decided:
        rows: list[tuple[object, ...]] = [
            (
                report.week.text(entry.at),
                entry.actor,
                entry.event,
                report.name_of(entry.digest),
                entry.detail,
            )
            for entry in report.decided
        ]
        header = ("when", "who", "what", "finding", "remark")
        story += [Spacer(1, 6), table(header, rows, widths=(3, 2, 2, 2.2, 6))]
    return story


def _saved_row(row: LedgerRow) -> tuple[object, ...]:
    measurement, change = row.measurement, row.recommendation
    name = (f"{change.action.spec.title}, {row.state}", target_text(change), row.reference)
    if measurement is None:
        return (name, _savings(None, None), _savings(None, None), bare_text(None))
    return (
        name,
        _savings(measurement.realised_gpu_hours, measurement.predicted_gpu_hours),
        _savings(measurement.realised_energy_kwh, measurement.predicted_energy_kwh),
        bare_text(measurement.realised_emissions_kgco2e),
    )


def _savings(saved: Range | None, promised: Range | None) -> tuple[str, str]:
    """Return the savings, and below them the promise."""
    return bare_text(saved), f"of {bare_text(promised)}"


def energy_part(report: WeeklyReport) -> list[Flowable]:
    """Return the statement: its total, then by tenant, largest jobs and days."""
    statement = report.energy.statement
    total = statement.total
    story: list[Flowable] = [
        paragraph("Energy and emissions", HEADING),
        table(
            ("measured", "GPU boards", "site", "location-based", "market-based", "electricity"),
            [
                (
                    percent_text(statement.completeness_ratio),
                    range_text(total.gpu_energy_kwh),
                    range_text(total.site_energy_kwh),
                    range_text(total.location_kgco2e),
                    range_text(total.market_kgco2e),
                    range_text(total.electricity_cost),
                )
            ],
            widths=(1, 1.6, 1.6, 1.6, 1.6, 1.6),
        ),
    ]
    for title, rows in report.energy.tables:
        lines = [_amounts(line) for line in rows]
        widths = (3.4, 1.2, 1.6, 2.4, 2.4, 2.4, 2.4, 2.4)
        story += [
            Spacer(1, 8),
            table(
                (title, *_ENERGY_HEADER), lines, widths=widths, numbers=tuple(range(1, len(widths)))
            ),
        ]
    return story


def _amounts(line: EnergyLine) -> tuple[object, ...]:
    row = line.row
    return (
        line.name,
        number_text(row.gpu_hours),
        percent_text(line.measured_ratio),
        bare_text(row.gpu_energy_kwh),
        bare_text(row.location_kgco2e),
        bare_text(row.market_kgco2e),
        bare_text(row.embodied_kgco2e, row.embodied_ratio),
        bare_text(row.sci_gco2e, row.scored_ratio),
    )


def method_part(report: WeeklyReport) -> list[Flowable]:
    """Return the method, every factor with year and source, and what is not known."""
    statement = report.energy.statement
    factors: list[tuple[object, ...]] = [
        (entry.name, entry.value, entry.year or "", entry.source) for entry in statement.told
    ]
    lines = (
        *(f"{name}: {text}" for name, text in METHOD),
        *(f"Not included: {text}" for text in NOT_INCLUDED),
        *(f"Unknown: {text}" for text in statement.unknown),
    )
    return [
        paragraph("Method, factors and what is unknown", HEADING),
        table(("factor", "value", "year", "source"), factors, widths=(2.6, 3, 0.7, 7)),
        Spacer(1, 6),
        *(paragraph(line, BODY) for line in lines),
    ]
