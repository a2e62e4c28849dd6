"""`trimtab forecast`: the forecasts of the latest cycle."""

import argparse
from collections.abc import Sequence
from typing import Any

from dashboard.cli.terminal.ask import answer_of
from dashboard.cli.terminal.output import print_json, print_rows
from dashboard.resources.forecast_rows import summary_lines
from dashboard.resources.workload_rows import FORECASTS, SUMMARY, total_lines
from data.base.errors import SettingsError

_NO_CYCLE = "No cycle has run yet: run `trimtab cycle`."
_NO_WORKLOAD = (
    "No service and no recurring job (five runs or more) is known, or no cycle has run: "
    "run `trimtab cycle`."
)
_SUMMARY = ("unit", "model", "slots", "q10_mean", "q50_mean", "q90_mean")


def forecast(options: argparse.Namespace) -> int:
    """Print the forecasts by job, group or workload."""
    if options.points and options.format != "json":
        raise SettingsError("--points has no table", "Give --format json.")
    rows: Any = answer_of(options, FORECASTS, by=options.by, points=options.points)
    if options.format == "json":
        print_json(rows)
        return 0
    if options.by == "workload":
        columns: Sequence[str] = ("name", "kind", "runs", *SUMMARY)
        print_rows(total_lines(rows), options.format, columns=columns, empty=_NO_WORKLOAD)
        return 0
    keys = ("job_id",) if options.by == "job" else ("kind", "name")
    last = "skipped" if options.by == "job" else "first_slot"
    columns = (*keys, "quantity", *_SUMMARY, last)
    print_rows(summary_lines(rows, keys), options.format, columns=columns, empty=_NO_CYCLE)
    return 0
