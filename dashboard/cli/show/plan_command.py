"""`trimtab plan`: the plan of the latest cycle, with its bounds, nodes and tenants."""

import argparse
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from dashboard.cli.terminal.ask import answer_of
from dashboard.cli.terminal.output import print_json, print_rows
from dashboard.common.what_if_document import difference_rows
from dashboard.resources.plan_documents import PLAN, WHAT_IF, PlanDocument
from dashboard.resources.plan_rows import (
    PlanBoundRow,
    PlanNodeRow,
    PlanTenantRow,
    stretch_row,
)
from data.base.errors import NotKnownError
from data.base.rows import columns_of

_NO_CYCLE = "No cycle has run yet: run `trimtab cycle`."
_COLUMNS = {
    "job": ("job_id", "from", "slots", "configuration", "nodes"),
    "node": columns_of(PlanNodeRow),
    "tenant": columns_of(PlanTenantRow),
    "bound": columns_of(PlanBoundRow),
}
_DIFFERENCES = ("figure", "unit", "plan in force", "what if", "difference")


def plan(options: argparse.Namespace) -> int:
    """Show the plan of the latest cycle: by job, node, tenant or bound; as JSON all of it."""
    if options.what_if:
        return _compare(options)
    document = None
    with suppress(NotKnownError):
        document = answer_of(options, PLAN)
    if options.format == "json":
        print_json(document)
        return 0
    rows = [] if document is None else _rows(document, options.by)
    print_rows(rows, options.format, columns=_COLUMNS[options.by], empty=_NO_CYCLE)
    return 0


def _rows(document: PlanDocument, by: str) -> list[dict[str, Any]]:
    if by == "job":
        return [
            {
                "job_id": job.job_id,
                **stretch_row(
                    document.slot_starts[step.start], (step.start, step.end), step.words, job.stays
                ),
            }
            for job in document.job_plans
            for step in job.steps
        ]
    rows: dict[str, Sequence[Any]] = {
        "node": document.nodes,
        "tenant": document.tenants,
        "bound": document.bounds,
    }
    return [asdict(row) for row in rows[by]]


def _compare(options: argparse.Namespace) -> int:
    """Show what the knobs would change; of a knob that is given twice the last value counts."""
    document = answer_of(options, WHAT_IF, **dict(options.what_if))
    if options.format == "json":
        print_json(document)
    else:
        rows = difference_rows(document.plan_in_force, document.what_if, document.currency)
        print_rows(rows, options.format, columns=_DIFFERENCES, empty="")
    return 0
