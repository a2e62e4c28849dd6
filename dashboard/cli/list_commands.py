"""The commands that show what the store knows, and the settings in force."""

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import timedelta
from typing import Any

from dashboard.api.rows import (
    AuditRow,
    GpuRow,
    JobRow,
    NodeRow,
    SourceRow,
    UrgentRow,
    audit_row,
    columns_of,
    gpu_row,
    job_row,
    node_row,
    source_row,
    urgent_row,
)
from dashboard.applications import ApplicationRow, application_rows
from dashboard.capacity import CapacityRow, capacity_rows
from dashboard.cli.job_options import JOB_FIELDS, JOB_ORDERS
from dashboard.cli.output import print_rows, say
from dashboard.cli.world import open_for_reading, settings_of
from dashboard.figure_text import count_text
from dashboard.heat import HeatRow, heat_rows
from dashboard.queue_rows import QueueRow, queue_rows
from dashboard.recording import present
from dashboard.urgent import urgent_facts
from data.errors import SettingsError
from data.load_settings import setting_rows
from data.records.job_pages import JobFilter, JobUse
from data.records.jobs import Job
from data.records.quotas import Quota
from data.store import StoreReader

FINDINGS = 3
_EVERY = 1_000_000
REPORT_COLUMNS = ("source", "state", "samples", "completeness_ratio", "reason")
_NO_SAMPLES = "The store is empty: run `trimtab cycle` or `trimtab import`."


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedJobRow(JobRow):
    """A job as last known, and its last day: None what was never reported.

    `utilization_ratio` is the part of its GPU-hours in which they did work.
    """

    gpu_hours: float | None
    utilization_ratio: float | None
    energy_kwh: float | None


def _list(
    options: argparse.Namespace,
    kind: type[Any],
    read: Callable[[StoreReader], Iterable[Any]],
    *,
    empty: str = _NO_SAMPLES,
    columns: Sequence[str] = (),
) -> int:
    with open_for_reading(settings_of(options)) as store:
        rows = [asdict(row) for row in read(store.reader)]
    print_rows(rows, options.format, columns=columns or columns_of(kind), empty=empty)
    return 0


def jobs(options: argparse.Namespace) -> int:
    """List the jobs known now, or the applications that own them."""
    fields = tuple((name, word) for name in JOB_FIELDS if (word := getattr(options, name)))
    wanted = JobFilter(fields=fields, search=options.search, running=options.running)
    empty = _NO_SAMPLES if wanted == JobFilter() else "No job is like that."
    if options.by == "application":
        if options.use or options.sort:
            raise SettingsError(
                "applications have no --use and no order of their own",
                "Leave --use and --sort out, or list jobs.",
            )
        return _list(
            options,
            ApplicationRow,
            lambda reader: application_rows(_chosen(reader, wanted)),
            empty=empty,
        )
    if options.use or options.sort:
        row = _used_row if options.use else lambda used: job_row(used.job)
        order = JOB_ORDERS[options.sort or "name"]
        return _list(
            options,
            UsedJobRow if options.use else JobRow,
            lambda reader: map(row, _used_jobs(reader, wanted, order)),
            empty=empty,
        )
    return _list(options, JobRow, lambda reader: map(job_row, _chosen(reader, wanted)), empty=empty)


def _chosen(reader: StoreReader, wanted: JobFilter) -> Iterable[Job]:
    if wanted == JobFilter():
        return reader.jobs()
    return [used.job for used in _used_jobs(reader, wanted, JOB_ORDERS["name"])]


def _used_jobs(reader: StoreReader, wanted: JobFilter, order: str) -> Iterable[JobUse]:
    """Return these jobs with what they held in the day before the newest sample."""
    end = reader.latest_sample_at() or present(reader)
    return reader.job_page(
        wanted,
        start=end - timedelta(days=1),
        end=end,
        running_since=end - timedelta(hours=1),
        order=order,
        most=_EVERY,
    ).rows


def _used_row(used: JobUse) -> UsedJobRow:
    hours, idle = used.gpu_hours, used.idle_gpu_hours
    ratio = 1 - idle / hours if hours and idle is not None else None
    return UsedJobRow(
        **asdict(job_row(used.job)),
        gpu_hours=hours,
        utilization_ratio=ratio,
        energy_kwh=used.energy_kwh,
    )


def gpus(options: argparse.Namespace) -> int:
    """List the boards and MIG instances known now."""
    return _list(options, GpuRow, lambda reader: map(gpu_row, reader.gpus()))


def nodes(options: argparse.Namespace) -> int:
    """List the nodes as their schedulers describe them."""
    empty = "No scheduler has been asked yet: set slurm.mode or kubernetes.enabled."
    return _list(options, NodeRow, lambda reader: map(node_row, reader.nodes()), empty=empty)


def queue(options: argparse.Namespace) -> int:
    """List the jobs that wait for GPUs, queue by queue in order of submission."""
    empty = "No job waits for GPUs."
    return _list(options, QueueRow, lambda reader: queue_rows(reader), empty=empty)


def quotas(options: argparse.Namespace) -> int:
    """List what schedulers let their queues hold of GPUs, and its use."""
    empty = "No scheduler tells of a limit on GPUs."
    return _list(options, Quota, lambda reader: reader.quotas(), empty=empty)


def capacity(options: argparse.Namespace) -> int:
    """List how many boards of each model the demand of the last weeks asks to keep."""
    settings = settings_of(options).settings
    return _list(options, CapacityRow, lambda reader: capacity_rows(reader, settings))


def heat(options: argparse.Namespace) -> int:
    """List the heat of racks now, and ahead as the latest cycle foresaw it."""
    settings = settings_of(options).settings
    empty = "No rack is known: state power.domains, and the nodes that each feeds."
    return _list(options, HeatRow, lambda reader: heat_rows(reader, settings), empty=empty)


def sources(options: argparse.Namespace) -> int:
    """List the sources and how the latest collection fared with each."""
    return _list(
        options,
        SourceRow,
        lambda reader: map(source_row, reader.source_reports()),
        columns=REPORT_COLUMNS,
    )


def urgent(options: argparse.Namespace) -> int:
    """List what cannot wait, the soonest first; 3 when there is anything."""
    loaded = settings_of(options)
    with open_for_reading(loaded) as store:
        now = present(store.reader)
        facts = urgent_facts(store.reader, now=now, settings=loaded.settings)
    rows = [asdict(urgent_row(fact)) for fact in facts]
    print_rows(rows, options.format, columns=columns_of(UrgentRow), empty="Nothing is urgent.")
    return FINDINGS if rows else 0


def settings(options: argparse.Namespace) -> int:
    """List every setting in force and where it came from."""
    print_rows(
        setting_rows(settings_of(options)),
        options.format,
        columns=("name", "value", "origin", "meaning"),
        empty="",
    )
    return 0


def audit_list(options: argparse.Namespace) -> int:
    """List the append-only record."""
    empty = "Nothing has been decided yet."
    return _list(options, AuditRow, lambda reader: map(audit_row, reader.audit()), empty=empty)


def audit_verify(options: argparse.Namespace) -> int:
    """Check the chain and its rows; 3 when one was edited, removed or reordered.

    The head it prints, kept elsewhere, proves later that the end was not cut off.
    """
    with open_for_reading(settings_of(options)) as store:
        entries = store.reader.audit()
        problems = store.reader.verify_audit(head=options.head)
    for problem in problems:
        say(problem)
    if not problems:
        say(f"{count_text(len(entries), 'entry', 'entries')}, chain intact.")
        if entries:
            say(f"head {entries[-1].entry_hash}")
    return FINDINGS if problems else 0
