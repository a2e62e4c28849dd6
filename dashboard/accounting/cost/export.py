"""The statement written down: flat rows, one object for JSON, and OpenCost's allocations."""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from typing import Any

from dashboard.accounting.cost.budgets import BudgetRow
from dashboard.accounting.cost.charges import NAMES_OF_UNHELD
from dashboard.accounting.cost.statement import CostRow, CostStatement, Reconciliation
from dashboard.common.csv_cells import csv_text
from data.base.rows import row_of

COLUMNS = (*(field.name for field in fields(CostRow)[3:]), "cost")
"""The amounts of a row."""
_OPENCOST_IDLE = {
    NAMES_OF_UNHELD["free"]: "__idle__",
    NAMES_OF_UNHELD["unattributed"]: "__unallocated__",
}


def flat_row(row: CostRow, statement: CostStatement) -> dict[str, Any]:
    """Return one row by column; unknown is None."""
    return {
        "start": row.start,
        "end": row.end,
        "period": statement.calendar.name_of(row.start),
        **dict(zip(statement.by, row.names, strict=False)),
        **{name: getattr(row, name) for name in COLUMNS},
        "currency": statement.currency,
    }


def statement_csv(statement: CostStatement) -> str:
    """Return the rows as CSV that no spreadsheet runs, then a row for each invoice's residual."""
    columns = ["start", "end", "period", *statement.by, *COLUMNS, "currency"]
    rows = [flat_row(row, statement) for row in statement.rows]
    for invoice in statement.invoices:
        cells = dict.fromkeys(statement.by[:1], f"(residual of invoice {invoice.invoice.name})")
        rows.append(
            {
                "start": invoice.invoice.start,
                "end": invoice.invoice.end,
                "currency": statement.currency,
            }
            | cells
            | {"cost": invoice.residual}
        )
    return csv_text(rows, columns)


Cells = dict[str, str | float | datetime | None]
"""A row by column: its groups are columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostDocument:
    """A statement of cost as one object; unknown is None."""

    start: datetime
    end: datetime
    as_of: datetime | None
    zone: str
    every: str
    by: tuple[str, ...]
    tenant_is: str
    currency: str
    rows: list[Cells]
    total: Cells
    unobserved_hours: float
    invoices: list[Reconciliation]
    budgets: list[BudgetRow]
    unknown: tuple[str, ...]


def statement_document(statement: CostStatement, budgets: Sequence[BudgetRow] = ()) -> CostDocument:
    """Return the whole statement as one object."""
    return row_of(
        CostDocument,
        statement,
        zone=statement.calendar.zone,
        every=statement.calendar.every.value,
        rows=[flat_row(row, statement) for row in statement.rows],
        total=flat_row(statement.total, statement),
        invoices=list(statement.invoices),
        budgets=list(budgets),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationDocument:
    """An answer of OpenCost's allocation API, whose names are its own."""

    code: int
    status: str
    data: list[dict[str, dict[str, str | float | dict[str, str] | None]]]


def allocation_document(statement: CostStatement) -> AllocationDocument:
    """Return the rows as OpenCost's allocation API answers: a map of allocations per period.

    What Trimtab does not measure (CPU, memory, network) is left out rather than 0; electricity is
    `externalCost`. An allocation whose cost is unknown has none.
    """
    periods: dict[str, dict[str, Any]] = {}
    for row in statement.rows:
        name = "/".join(_OPENCOST_IDLE.get(entry, entry) for entry in row.names) or "__all__"
        begin, end = (f"{at:%Y-%m-%dT%H:%M:%SZ}" for at in (row.start, row.end))
        minutes = (row.end - row.start).total_seconds() / 60
        properties = {
            {"tenant": "namespace", "job": "controller"}.get(group, group): entry
            for group, entry in zip(statement.by, row.names, strict=True)
        }
        known_hours = row.used_hours + row.idle_hours
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
            "gpuEfficiency": row.used_hours / known_hours if known_hours else None,
        }
    return AllocationDocument(code=200, status="success", data=list(periods.values()))
