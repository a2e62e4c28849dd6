"""The commands that show what the store knows, and the settings in force."""

import argparse
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
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
from dashboard.cli.output import print_rows, say
from dashboard.cli.world import open_for_reading, settings_of
from dashboard.figure_text import count_text
from dashboard.recording import present
from dashboard.urgent import urgent_facts
from data.load_settings import setting_rows
from data.store import StoreReader

FINDINGS = 3
REPORT_COLUMNS = ("source", "state", "samples", "completeness_ratio", "reason")
_NO_SAMPLES = "The store is empty: run `trimtab cycle` or `trimtab import`."


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
    if options.by == "application":
        return _list(options, ApplicationRow, lambda reader: application_rows(reader.jobs()))
    return _list(options, JobRow, lambda reader: map(job_row, reader.jobs()))


def gpus(options: argparse.Namespace) -> int:
    """List the boards and MIG instances known now."""
    return _list(options, GpuRow, lambda reader: map(gpu_row, reader.gpus()))


def nodes(options: argparse.Namespace) -> int:
    """List the nodes as their schedulers describe them."""
    empty = "No scheduler has been asked yet: set slurm.mode or kubernetes.enabled."
    return _list(options, NodeRow, lambda reader: map(node_row, reader.nodes()), empty=empty)


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
