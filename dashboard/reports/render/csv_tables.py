"""The tables of a report as CSV, safe to open in a spreadsheet (see `csv_export`)."""

from dataclasses import asdict

from dashboard.accounting.energy.export import ranged, row_fields
from dashboard.accounting.energy.periods import WHOLE_RANGE
from dashboard.accounting.savings.ledger import LedgerRow
from dashboard.common.csv_cells import csv_text
from dashboard.reports.week.weekly_report import WeeklyReport
from data.records.recommendations import Range

_WASTE = (
    "namespace", "owner", "gpu_hours", "idle_gpu_hours", "rent", "unpriced_hours", "largest_job",
)  # fmt: skip
_ADVICE = (
    "finding", "id", "state", "action", "job", "now", "proposed", "saves_low", "saves",
    "saves_high", "unit", "risk", "expires_at",
)  # fmt: skip
_ENERGY = (
    "group", "holder", "gpu_hours", "measured_ratio", *ranged("gpu_energy_kwh"),
    *ranged("location_based_kgco2e"), *ranged("market_based_kgco2e"), *ranged("embodied_kgco2e"),
    "embodied_ratio", *ranged("sci_gco2e_per_gpu_hour_of_work"), "scored_ratio",
)  # fmt: skip
_MEASURED = (
    "predicted_gpu_hours", "realised_gpu_hours", "predicted_energy_kwh", "realised_energy_kwh",
    "realised_emissions_kgco2e",
)  # fmt: skip
_SAVED = (
    "finding", "id", "state", "action", "job", "applied_at", "measured_at", "hours",
    *(column for name in _MEASURED for column in ranged(name)), "unknown_because",
)  # fmt: skip


def csv_tables(report: WeeklyReport) -> dict[str, str]:
    """Return CSV text by file name: what was idle, is proposed, was used and was saved."""
    waste = [asdict(row) for row in report.waste]
    advice = []
    for stored in report.recommendations:
        revision = stored.recommendation
        saving: Range | None = revision.savings.cost
        advice.append(
            {
                "finding": stored.reference,
                "id": revision.recommendation_id,
                "state": stored.state,
                "action": str(revision.action),
                "job": revision.job_id,
                "now": revision.now.describe(),
                "proposed": revision.proposed.describe(),
                "saves_low": saving and saving.low,
                "saves": saving and saving.central,
                "saves_high": saving and saving.high,
                "unit": saving.unit if saving else "",
                "risk": str(revision.risk),
                "expires_at": revision.expires_at.isoformat(),
            }
        )
    energy = [row_fields(row, WHOLE_RANGE) for row in report.energy.statement.rows]
    saved = [_saved_row(row) for row in report.saved.rows]
    tables = {
        "held-and-idle.csv": csv_text(waste, _WASTE),
        "recommendations.csv": csv_text(advice, _ADVICE),
        "energy.csv": csv_text(energy, _ENERGY),
    }
    return tables | ({"savings.csv": csv_text(saved, _SAVED)} if saved else {})


def _saved_row(row: LedgerRow) -> dict[str, object]:
    """Return one applied change: what it promised and brought, unknown empty with the reason."""
    change, measurement = row.recommendation, row.measurement
    fields: dict[str, object] = {
        "finding": row.reference,
        "id": change.recommendation_id,
        "state": row.state,
        "action": str(change.action),
        "job": change.target,
        "applied_at": row.applied_at.isoformat(),
        "measured_at": row.measured_at and row.measured_at.isoformat(),
        "hours": measurement and measurement.hours,
        "unknown_because": row.reason,
    }
    for name in _MEASURED:
        value: Range | None = getattr(measurement, name) if measurement else None
        fields[f"{name}_low"] = value and value.low
        fields[name] = value and value.central
        fields[f"{name}_high"] = value and value.high
    return fields
