"""`trimtab statement`: what the fleet costs, by whom."""

import argparse
import io
import sys
from contextlib import redirect_stdout
from dataclasses import fields
from pathlib import Path
from typing import Any

from dashboard.accounting.cost.budgets import BudgetRow, budget_rows
from dashboard.accounting.cost.export import (
    COLUMNS,
    allocation_document,
    flat_row,
    statement_csv,
    statement_document,
)
from dashboard.accounting.cost.focus import COLUMNS as FOCUS_COLUMNS
from dashboard.accounting.cost.focus import (
    FORECAST_BY,
    FORECAST_COLUMNS,
    focus_csv,
    focus_parquet,
    focus_rows,
    forecast_rows,
)
from dashboard.accounting.cost.groups import BOARD_GROUPS
from dashboard.accounting.cost.statement import CostStatement, asked_cost_statement
from dashboard.cli.show.report_command import write_whole
from dashboard.cli.terminal.ask import print_document
from dashboard.cli.terminal.context import asks_a_server, open_for_reading, settings_of
from dashboard.cli.terminal.output import (
    NOT_OBSERVED,
    PARTIAL,
    print_json,
    print_rows,
    range_text,
    say,
)
from dashboard.cli.terminal.remote_server import refuse_with_server
from data.base.errors import SettingsError
from data.records.recommendations import Range
from data.settings.all_settings import Settings


def statement(options: argparse.Namespace) -> int:
    """Print the statement; what is unknown goes to stderr. 3 where no cost is known at all."""
    if asks_a_server(options):
        refuse_with_server(options, "out")
        return print_document(
            options, "statement", by=",".join(options.by), every=options.every,
            start=options.since, end=options.until, budgets=options.budgets,
        )  # fmt: skip
    loaded = settings_of(options)
    focus = options.format.startswith("focus")
    every = options.every or ("day" if focus else "total")
    if focus and (every not in ("hour", "day") or set(BOARD_GROUPS).intersection(options.by)):
        raise SettingsError(
            f"FOCUS charges by {every} of {','.join(options.by)} are not to be had",
            "Give --every hour or day, and no --by board or cluster.",
        )
    with open_for_reading(loaded) as store:
        bill = asked_cost_statement(
            store.reader,
            loaded.settings,
            by=options.by,
            every=every,
            start=options.since,
            end=options.until,
        )
        budgets = (
            budget_rows(
                store.reader, loaded.settings, at=bill.end, by=FORECAST_BY if focus else bill.by
            )
            if options.budgets
            else ()
        )
    body = _body(options, bill, budgets, loaded.settings)
    if options.out is None:
        sys.stdout.buffer.write(body)
    else:
        write_whole(body, Path(options.out))
    for line in bill.unknown:
        say(f"unknown: {line}", file=sys.stderr)
    return PARTIAL if bill.total.cost is None else 0


def _body(
    options: argparse.Namespace,
    bill: CostStatement,
    budgets: tuple[BudgetRow, ...],
    settings: Settings,
) -> bytes:
    form = options.format
    if form.startswith("focus"):
        columns, rows = FOCUS_COLUMNS, focus_rows(bill, settings)
        if options.budgets:
            columns, rows = FORECAST_COLUMNS, forecast_rows(budgets, settings, at=bill.end)
        is_csv = form == "focus-csv"
        return focus_csv(rows, columns).encode() if is_csv else focus_parquet(rows, columns)
    if form == "csv" and not options.budgets:
        return statement_csv(bill).encode()
    with redirect_stdout(io.StringIO()) as text:
        if form == "json":
            print_json(statement_document(bill, budgets))
        elif form == "opencost":
            print_json(allocation_document(bill))
        elif options.budgets:
            _print_budgets(budgets, form)
        else:
            _print_table(bill)
    return text.getvalue().encode()


def _print_table(bill: CostStatement) -> None:
    rows = [flat_row(row, bill) for row in bill.rows]
    if rows:
        rows.append(flat_row(bill.total, bill) | {"period": "total"})
    for invoice in bill.invoices:
        cells: dict[str, Any] = {"period": f"residual of invoice {invoice.invoice.name}"}
        rows.append(cells | {"cost": invoice.residual, "currency": bill.currency})
    print_rows(
        rows,
        "table",
        columns=("period", *bill.by, *COLUMNS, "currency"),
        empty=NOT_OBSERVED,
    )


def _print_budgets(budgets: tuple[BudgetRow, ...], form: str) -> None:
    columns = [field.name for field in fields(BudgetRow)]
    rows = [
        {
            name: range_text(value) if isinstance(value, Range) else value
            for name in columns
            for value in [getattr(row, name)]
        }
        for row in budgets
    ]
    print_rows(rows, form, columns=columns, empty="No tenant was seen, and no budget is stated.")
