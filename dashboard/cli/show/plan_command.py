"""`trimtab plan`: the plan of the latest cycle, with its bounds, nodes and tenants."""

import argparse
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

from dashboard.cli.terminal.context import open_for_reading, settings_of
from dashboard.cli.terminal.output import print_json, print_rows
from dashboard.resources.plan_documents import plan_document
from dashboard.resources.plan_rows import (
    PlanBoundRow,
    PlanNodeRow,
    PlanTenantRow,
    bound_rows,
    job_rows,
    node_rows,
    tenant_rows,
)
from dashboard.resources.rows import columns_of
from data.records.plans import Plan

_NO_CYCLE = "No cycle has run yet: run `trimtab cycle`."


def plan(options: argparse.Namespace) -> int:
    """Show the plan of the latest cycle: by job, node, tenant or bound; as JSON all of it."""
    if options.what_if:
        from dashboard.cli.show.what_if_command import compare

        return compare(options)
    with open_for_reading(settings_of(options)) as store:
        latest = store.reader.latest_plan()
    if options.format == "json":
        print_json(None if latest is None else plan_document(latest))
        return 0
    rows_of, columns = _ROWS[options.by]
    rows = [] if latest is None else rows_of(latest)
    print_rows(rows, options.format, columns=columns, empty=_NO_CYCLE)
    return 0


def _flat(rows_of: Callable[[Plan], list[Any]]) -> Callable[[Plan], list[dict[str, Any]]]:
    return lambda plan: [asdict(row) for row in rows_of(plan)]


_Rows = Callable[[Plan], list[dict[str, Any]]]
_ROWS: dict[str, tuple[_Rows, tuple[str, ...]]] = {
    "job": (job_rows, ("job_id", "from", "slots", "configuration", "nodes")),
    "node": (_flat(node_rows), columns_of(PlanNodeRow)),
    "tenant": (_flat(tenant_rows), columns_of(PlanTenantRow)),
    "bound": (_flat(bound_rows), columns_of(PlanBoundRow)),
}
