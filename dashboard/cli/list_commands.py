"""The commands that show what the store knows, and the settings in force."""

import argparse
from typing import Any

from dashboard.cli.output import print_rows, say
from dashboard.cli.world import open_for_reading, settings_of
from data.load_settings import setting_rows
from data.records.cluster import SourceReport
from data.records.jobs import SchedulerFacts

FINDINGS = 3
REPORT_COLUMNS = ("source", "state", "samples", "completeness_ratio", "reason")
_NO_SAMPLES = "The store is empty: run `trimtab cycle` or `trimtab import`."


def report_row(report: SourceReport) -> dict[str, Any]:
    """Return one source report as the command line prints it."""
    return {
        "source": report.source,
        "state": str(report.state),
        "reason": report.reason,
        "samples": report.samples,
        "dropped": dict(report.dropped),
        "completeness_ratio": report.completeness_ratio,
        "warnings": list(report.warnings),
        "window_start": report.window_start,
        "window_end": report.window_end,
    }


def jobs(options: argparse.Namespace) -> int:
    """List the jobs known now."""
    with open_for_reading(settings_of(options)) as store:
        rows = [
            {
                "job_id": job.job_id,
                "name": job.name,
                "namespace": job.namespace,
                "owner": job.owner,
                "platform": str(job.platform),
                "kind": str(job.kind),
                "state": str(facts.state),
                "workload": facts.workload,
                "user": facts.user,
                "reason": facts.reason,
                "gpu_model": job.gpu_model,
                "gpu_count": job.gpu_count,
                "mig_profile": job.mig_profile,
                "last_seen_at": job.last_seen_at,
                "source": job.source,
                "assumed": "; ".join(f"{name}={value}" for name, value in job.assumed),
            }
            for job in store.reader.jobs()
            for facts in (job.scheduler or SchedulerFacts(),)
        ]
    columns = tuple(rows[0]) if rows else ("job_id",)
    print_rows(rows, options.format, columns=columns, empty=_NO_SAMPLES)
    return 0


def gpus(options: argparse.Namespace) -> int:
    """List the boards and MIG instances known now."""
    columns = (
        "gpu_uuid",
        "mig_instance",
        "mig_profile",
        "node",
        "gpu_model",
        "memory_total_mib",
        "job_id",
        "last_seen_at",
    )
    with open_for_reading(settings_of(options)) as store:
        rows = [{column: getattr(gpu, column) for column in columns} for gpu in store.reader.gpus()]
    print_rows(rows, options.format, columns=columns, empty=_NO_SAMPLES)
    return 0


def nodes(options: argparse.Namespace) -> int:
    """List the nodes as their schedulers describe them."""
    columns = (
        "name",
        "gpu_model",
        "gpu_count",
        "mig_instances",
        "cpus",
        "memory_mib",
        "partitions",
        "state",
        "schedulable",
        "reason",
        "seen_at",
        "source",
    )
    with open_for_reading(settings_of(options)) as store:
        rows = [
            {column: _plain(getattr(node, column)) for column in columns}
            for node in store.reader.nodes()
        ]
    empty = "No scheduler has been asked yet: set slurm.mode or kubernetes.enabled."
    print_rows(rows, options.format, columns=columns, empty=empty)
    return 0


def _plain(value: Any) -> Any:
    """Return a tuple as text: names, or `2 x 3g.40gb` for pairs of a profile and a count."""
    if not isinstance(value, tuple):
        return value
    return ", ".join(f"{one[1]} x {one[0]}" if isinstance(one, tuple) else one for one in value)


def sources(options: argparse.Namespace) -> int:
    """List the sources and how the latest collection fared with each."""
    with open_for_reading(settings_of(options)) as store:
        rows = [report_row(report) for report in store.reader.source_reports()]
    print_rows(rows, options.format, columns=REPORT_COLUMNS, empty=_NO_SAMPLES)
    return 0


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
    columns = ("sequence", "at", "actor", "event", "digest", "detail", "entry_hash")
    with open_for_reading(settings_of(options)) as store:
        rows = [
            {column: getattr(entry, column) for column in columns} for entry in store.reader.audit()
        ]
    print_rows(rows, options.format, columns=columns, empty="Nothing has been decided yet.")
    return 0


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
        say(f"{len(entries)} entries, chain intact.")
        if entries:
            say(f"head {entries[-1].entry_hash}")
    return FINDINGS if problems else 0
