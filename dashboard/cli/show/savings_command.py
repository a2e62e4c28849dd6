"""`trimtab savings`: predicted against realised, per applied recommendation and in total."""

import argparse
from dataclasses import asdict
from typing import TYPE_CHECKING

from dashboard.accounting.savings.ledger import (
    LedgerRow,
    Total,
    ledger,
    total_energy,
    total_gpu_hours,
)
from dashboard.cli.terminal.ask import answer_of
from dashboard.cli.terminal.context import asks_a_server, open_for_reading, settings_of
from dashboard.cli.terminal.output import print_json, print_rows, range_text
from dashboard.cli.terminal.remote_server import refuse_remote
from dashboard.resources.rows import saving_row
from data.base.clock import utc_now

if TYPE_CHECKING:
    from dashboard.accounting.savings.daily_savings import RunRate

_COLUMNS = (
    "finding",
    "id",
    "state",
    "job",
    "applied",
    "hours",
    "predicted",
    "realised",
    "predicted energy",
    "realised energy",
    "throughput",
    "unknown because",
)
_SUM_COLUMNS = (
    "days", "GPU-hours saved", "promised", "energy saved", "energy promised", "emissions saved",
    "money saved", "days in part unknown", "changes now", "of these in part unknown",
    "GPU-hours a day", "energy a day", "emissions a day", "money a day", "money a year",
)  # fmt: skip


def savings(options: argparse.Namespace) -> int:
    """List what applied changes promised and brought; the last row is the total."""
    if options.by != "change":
        return _to_date(options)
    if asks_a_server(options):
        refuse_remote("--by change", "by finding, day or namespace")
    with open_for_reading(settings_of(options)) as store:
        rows = ledger(store.reader, now=utc_now())
    gpu_hours, energy = total_gpu_hours(rows), total_energy(rows)
    if options.format == "json":
        print_json(
            {
                "recommendations": [asdict(saving_row(row)) for row in rows],
                "total": {"gpu_hours": gpu_hours, "energy_kwh": energy},
            }
        )
        return 0
    documents = [_row(row) for row in rows]
    if rows:
        documents.append(_total_row(gpu_hours, energy))
    print_rows(documents, options.format, columns=_COLUMNS, empty="Nothing has been applied yet.")
    return 0


def _to_date(options: argparse.Namespace) -> int:
    """List what was saved so far, by finding, day or namespace; the last row is the total."""
    from dashboard.resources.documents import SAVED

    sums = answer_of(options, SAVED, by=options.by)
    if options.format == "json":
        print_json([asdict(total) for total in sums])
        return 0
    print_rows(
        [
            {
                options.by: total.name,
                "days": total.days,
                "GPU-hours saved": range_text(total.gpu_hours),
                "promised": range_text(total.promised_gpu_hours),
                "energy saved": range_text(total.energy_kwh),
                "energy promised": range_text(total.promised_energy_kwh),
                "emissions saved": range_text(total.emissions_kgco2e),
                "money saved": range_text(total.money),
                "days in part unknown": total.unknown_days,
                **_rate_cells(total.run_rate),
            }
            for total in sums
        ],
        options.format,
        columns=(options.by, *_SUM_COLUMNS),
        empty="No applied change has been measured yet; trimtab savings lists them.",
    )
    return 0


def _rate_cells(rate: "RunRate | None") -> dict[str, object]:
    """Return the present savings a day; empty where a group is a day, and where it is unknown."""
    if rate is None:
        return {}
    day, year = rate.per_day, rate.per_year
    return {
        "changes now": rate.changes,
        "of these in part unknown": rate.unknown_changes,
        "GPU-hours a day": range_text(day.gpu_hours),
        "energy a day": range_text(day.energy_kwh),
        "emissions a day": range_text(day.emissions_kgco2e),
        "money a day": range_text(day.money),
        "money a year": range_text(year.money),
    }


def _row(row: LedgerRow) -> dict[str, object]:
    measurement = row.measurement
    return {
        "finding": row.reference,
        "id": row.recommendation.recommendation_id,
        "state": row.state,
        "job": row.recommendation.job_id,
        "applied": row.applied_at,
        "hours": measurement.hours if measurement else None,
        "predicted": range_text(measurement.predicted_gpu_hours) if measurement else "",
        "realised": range_text(measurement.realised_gpu_hours) if measurement else "",
        "predicted energy": range_text(measurement.predicted_energy_kwh) if measurement else "",
        "realised energy": range_text(measurement.realised_energy_kwh) if measurement else "",
        "throughput": measurement.throughput_ratio if measurement else None,
        "unknown because": row.reason,
    }


def _total_row(gpu_hours: Total, energy: Total) -> dict[str, object]:
    return {
        "id": "total",
        "state": f"{gpu_hours.measured} measured, {gpu_hours.unknown} unknown",
        "predicted": range_text(gpu_hours.predicted),
        "realised": range_text(gpu_hours.realised),
        "predicted energy": range_text(energy.predicted),
        "realised energy": range_text(energy.realised),
    }
