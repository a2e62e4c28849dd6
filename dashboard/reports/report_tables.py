"""The tables of a report as CSV, safe to open in a spreadsheet (see `csv_export`)."""

from dataclasses import asdict

from dashboard.csv_export import csv_text
from dashboard.reports.weekly_report import WeeklyReport
from data.records.decisions import Range

_WASTE = (
    "namespace",
    "owner",
    "gpu_hours",
    "idle_gpu_hours",
    "rent",
    "unpriced_hours",
    "largest_job",
)
_ADVICE = (
    "id",
    "state",
    "action",
    "job",
    "now",
    "proposed",
    "saves_low",
    "saves",
    "saves_high",
    "unit",
    "risk",
    "expires_at",
)


def csv_tables(report: WeeklyReport) -> dict[str, str]:
    """Give CSV text by file name: what was held and idle, and what waits for a decision."""
    waste = [asdict(row) for row in report.waste]
    advice = []
    for one in report.recommendations:
        said = one.recommendation
        saving: Range | None = said.savings.cost
        advice.append(
            {
                "id": said.recommendation_id,
                "state": one.state,
                "action": str(said.action),
                "job": said.job_id,
                "now": said.now.describe(),
                "proposed": said.proposed.describe(),
                "saves_low": saving and saving.low,
                "saves": saving and saving.central,
                "saves_high": saving and saving.high,
                "unit": saving.unit if saving else "",
                "risk": str(said.risk),
                "expires_at": said.expires_at.isoformat(),
            }
        )
    return {
        "held-and-idle.csv": csv_text(waste, _WASTE),
        "recommendations.csv": csv_text(advice, _ADVICE),
    }
