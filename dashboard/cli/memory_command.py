"""`trimtab memory`: which job runs out of GPU memory, and where room has become free."""

import argparse
from typing import Any

from dashboard.cli.output import print_rows
from dashboard.cli.world import open_for_reading, settings_of
from dashboard.submission.memory_outlook import said_to_run_out, watched_jobs
from data.records.memory import MemoryFinding
from data.units import MIB_PER_GIB
from planner.memory.watch import WatchedJob, watch_memory

FINDINGS = 3
_COLUMNS = (
    "job_id", "gpu_model", "used_gib", "limit_gib", "outlook", "probability", "at", "room_gib",
    "why", "advice",
)  # fmt: skip


def memory(options: argparse.Namespace) -> int:
    """List the memory of every running job; 3 when one is likely to run out."""
    loaded = settings_of(options)
    with open_for_reading(loaded) as store:
        jobs = watched_jobs(store.reader, slot_seconds=loaded.settings.planning.slot_minutes * 60)
        told = said_to_run_out(store.reader)
    findings = {finding.job_id: finding for finding in watch_memory(jobs, told=told)}
    order = {name: place for place, name in enumerate(findings)}
    ordered = sorted(jobs, key=lambda one: (order.get(one.job_id, len(order)), one.job_id))
    rows = [_row(job, findings.get(job.job_id), options.format) for job in ordered]
    empty = "No running job has a memory forecast yet: run `trimtab cycle`."
    print_rows(rows, options.format, columns=_COLUMNS, empty=empty)
    return FINDINGS if any(finding.probability is not None for finding in findings.values()) else 0


def _row(job: WatchedJob, finding: MemoryFinding | None, form: str) -> dict[str, Any]:
    known = job.used_mib[job.used_mib == job.used_mib]
    row: dict[str, Any] = {
        "job_id": job.job_id,
        "gpu_model": job.gpu_model,
        "used_gib": round(float(known[-1]) / MIB_PER_GIB, 2) if len(known) else None,
        "limit_gib": round(job.limit_mib / MIB_PER_GIB, 2),
        "outlook": "" if finding is None else str(finding.outlook),
    }
    if finding is None:
        return row | {"probability": None, "at": None, "room_gib": None, "why": "", "advice": ""}
    texts = [one.text for one in finding.advice]
    return row | {
        "probability": finding.probability,
        "at": finding.at,
        "room_gib": round(finding.room_mib / MIB_PER_GIB, 2) or None,
        "why": finding.why,
        "advice": texts if form == "json" else "; ".join(texts),
    }
