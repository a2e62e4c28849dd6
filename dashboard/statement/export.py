"""The statement written down: flat rows, one object for JSON, and OpenCost's allocations."""

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from dashboard.csv_export import csv_text
from dashboard.statement.budgets import BudgetRow
from dashboard.statement.charges import NOBODYS
from dashboard.statement.statement import CostRow, CostStatement

COLUMNS = (
    "board_hours",
    "used_hours",
    "idle_hours",
    "shared_hours",
    "unclear_hours",
    "free_hours",
    "unattributed_hours",
    "gpu_kwh",
    "site_kwh",
    "gpu_cost",
    "electricity_cost",
    "cost",
    "unpriced_hours",
    "unmeasured_hours",
)
_OPENCOST_IDLE = {NOBODYS["free"]: "__idle__", NOBODYS["unattributed"]: "__unallocated__"}


def flat_row(row: CostRow, statement: CostStatement) -> dict[str, Any]:
    """Return one row by column; unknown is None."""
    return {
        "start": row.start.isoformat(),
        "end": row.end.isoformat(),
        "period": statement.calendar.name_of(row.start),
        **dict(zip(statement.by, row.names, strict=False)),
        **{name: getattr(row, name) for name in COLUMNS},
        "currency": statement.currency,
    }


def statement_csv(statement: CostStatement) -> str:
    """Return the rows as CSV that no spreadsheet runs, then a row for each invoice's residual."""
    columns = ["start", "end", "period", *statement.by, *COLUMNS, "currency"]
    rows = [flat_row(row, statement) for row in statement.rows]
    for one in statement.invoices:
        named = dict.fromkeys(statement.by[:1], f"(residual of invoice {one.invoice.name})")
        rows.append(
            {"start": one.invoice.start, "end": one.invoice.end, "currency": statement.currency}
            | named
            | {"cost": one.residual}
        )
    return csv_text(rows, columns)


def statement_document(
    statement: CostStatement, budgets: Sequence[BudgetRow] = ()
) -> dict[str, Any]:
    """Return the whole statement as one object that JSON can hold; unknown is None."""
    return {
        "start": statement.start.isoformat(),
        "end": statement.end.isoformat(),
        "as_of": statement.as_of and statement.as_of.isoformat(),
        "zone": statement.calendar.zone,
        "every": statement.calendar.every.value,
        "by": list(statement.by),
        "tenant_is": statement.tenant_is,
        "currency": statement.currency,
        "rows": [flat_row(row, statement) for row in statement.rows],
        "total": flat_row(statement.total, statement),
        "unobserved_hours": statement.unobserved_hours,
        "invoices": [
            {
                "name": one.invoice.name,
                "start": one.invoice.start.isoformat(),
                "end": one.invoice.end.isoformat(),
                "amount": one.invoice.amount,
                "charged": one.charged,
                "residual": one.residual,
                "unpriced_hours": one.unpriced_hours,
                "unmeasured_hours": one.unmeasured_hours,
                "unobserved_hours": one.unobserved_hours,
            }
            for one in statement.invoices
        ],
        "budgets": [asdict(row) for row in budgets],
        "unknown": list(statement.unknown),
    }


def allocation_document(statement: CostStatement) -> dict[str, Any]:
    """Return the rows as OpenCost's allocation API answers: a map of allocations per period.

    What Trimtab does not measure (CPU, memory, network) is left out rather than 0; electricity is
    `externalCost`. An allocation whose cost is unknown has none.
    """
    periods: dict[str, dict[str, Any]] = {}
    for row in statement.rows:
        name = "/".join(_OPENCOST_IDLE.get(one, one) for one in row.names) or "__all__"
        begin, end = (f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in (row.start, row.end))
        minutes = (row.end - row.start).total_seconds() / 60
        properties = {
            {"tenant": "namespace", "job": "controller"}.get(group, group): one
            for group, one in zip(statement.by, row.names, strict=True)
        }
        periods.setdefault(begin, {})[name] = {
            "name": name,
            "properties": properties,
            "window": {"start": begin, "end": end},
            "start": begin,
            "end": end,
            "minutes": minutes,
            "gpuHours": row.board_hours,
            "gpuCount": row.board_hours / (minutes / 60),
            "gpuCost": row.gpu_cost,
            "externalCost": row.electricity_cost,
            "totalCost": row.cost,
            "gpuEfficiency": row.used_hours / known if (known := _known_hours(row)) else None,
        }
    return {"code": 200, "status": "success", "data": list(periods.values())}


def _known_hours(row: CostRow) -> float:
    return row.used_hours + row.idle_hours
