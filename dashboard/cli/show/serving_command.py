"""`trimtab serving`: inference services, and the replicas that they need."""

import argparse
from dataclasses import asdict

from dashboard.cli.terminal.output import print_rows

_SERVICE_COLUMNS = (
    "job_id", "state", "engine", "model", "replicas", "required_replicas", "max_required_replicas",
    "requests_per_second", "carried_per_second", "waiting_requests", "wait_seconds", "late_minutes",
)  # fmt: skip


def services(options: argparse.Namespace) -> int:
    """List the services of the latest cycle: the table has what a person asks for first.

    All columns are in CSV and JSON, the slots ahead in the JSON alone.
    """
    from dashboard.cli.terminal.ask import rows_of, selection_of
    from dashboard.resources.rows import ServiceRow
    from data.base.rows import columns_of

    rows, _empty = rows_of(options, "serving", selection_of(options))
    columns: tuple[str, ...] = _SERVICE_COLUMNS
    if options.format != "table":
        columns = tuple(name for name in columns_of(ServiceRow) if name != "slots")
    empty = "No inference engine was read in the latest cycle: does prometheus.url scrape one?"
    documents = [asdict(row) for row in rows[: options.limit]]
    print_rows(documents, options.format, columns=columns, empty=empty)
    return 0


def replicas(options: argparse.Namespace) -> int:
    """Print the replicas needed, with one and two less and one more."""
    from dashboard.cli.terminal.context import settings_of
    from planner.serving.queueing import ServiceLoad, WaitObjective, outlook, replicas_needed

    promised = settings_of(options).settings.serving
    load = ServiceLoad(
        requests_per_second=options.rate,
        service_seconds=options.service_seconds,
        slots_per_replica=options.slots,
        arrival_scv=options.arrival_scv,
        service_scv=options.service_scv,
    )
    objective = WaitObjective(
        wait_seconds=promised.wait_seconds if options.wait is None else options.wait,
        share=promised.wait_ratio if options.share is None else options.share,
    )
    needed = replicas_needed(load, objective)
    sizes = [
        outlook(load, number, objective.wait_seconds)
        for number in range(max(1, needed - 2), needed + 2)
    ]
    rows = [
        {
            "replicas": each.replicas,
            "meets": "yes" if each.replicas >= needed else "no",
            "utilization_ratio": each.utilization_ratio,
            "late_ratio": each.late_ratio,
            "mean_wait_s": each.mean_wait_seconds,
        }
        for each in sizes
    ]
    print_rows(rows, options.format, columns=tuple(rows[0]), empty="")
    return 0
