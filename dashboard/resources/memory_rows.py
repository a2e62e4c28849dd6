"""Every running job's GPU memory against its limit, of the command line and the API."""

from typing import Any

from dashboard.cycle.memory_outlook import said_to_run_out, watched_jobs
from data.base.units import MIB_PER_GIB
from data.records.memory import MemoryFinding
from data.store import StoreReader
from planner.memory.watch.watch import WatchedJob, watch_memory

MEMORY_COLUMNS = (
    "job_id", "gpu_model", "used_gib", "limit_gib", "outlook", "probability", "at", "room_gib",
    "why", "advice",
)  # fmt: skip


def memory_rows(reader: StoreReader, *, slot_seconds: int) -> list[dict[str, Any]]:
    """Return a row per running job, what runs out first; `advice` are remedies, the mildest first.

    Memory is in GiB per GPU. `probability` is None where nothing runs out.
    """
    jobs = watched_jobs(reader, slot_seconds=slot_seconds)
    reported = said_to_run_out(reader)
    findings = {finding.job_id: finding for finding in watch_memory(jobs, reported=reported)}
    order = {name: place for place, name in enumerate(findings)}
    ordered = sorted(jobs, key=lambda job: (order.get(job.job_id, len(order)), job.job_id))
    return [_row(job, findings.get(job.job_id)) for job in ordered]


def _row(job: WatchedJob, finding: MemoryFinding | None) -> dict[str, Any]:
    measured = job.used_mib[job.used_mib == job.used_mib]
    row: dict[str, Any] = {
        "job_id": job.job_id,
        "gpu_model": job.gpu_model,
        "used_gib": round(float(measured[-1]) / MIB_PER_GIB, 2) if len(measured) else None,
        "limit_gib": round(job.limit_mib / MIB_PER_GIB, 2),
        "outlook": "" if finding is None else str(finding.outlook),
    }
    if finding is None:
        return row | {"probability": None, "at": None, "room_gib": None, "why": "", "advice": []}
    return row | {
        "probability": finding.probability,
        "at": finding.at,
        "room_gib": round(finding.room_mib / MIB_PER_GIB, 2) or None,
        "why": finding.why,
        "advice": [advice.text for advice in finding.advice],
    }
