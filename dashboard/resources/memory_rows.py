"""Every running job's GPU memory against its limit, of the command line and the API."""

from dataclasses import dataclass
from datetime import datetime

from dashboard.cycle.memory_outlook import jobs_short_of_memory, watched_jobs
from dashboard.resources.resource import NoQuery, Resource, View
from data.base.units import MIB_PER_GIB
from data.records.memory import MemoryFinding
from data.store import StoreReader
from planner.memory.watch.watch import WatchedJob, watch_memory


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """GPU memory of a running job against its limit, in GiB per GPU.

    `advice` are remedies, the mildest first. `probability` is None where nothing runs out.
    """

    job_id: str
    gpu_model: str
    used_gib: float | None
    limit_gib: float
    outlook: str
    probability: float | None
    at: datetime | None
    room_gib: float | None
    why: str
    advice: list[str]


def memory_rows(reader: StoreReader, *, slot_seconds: int) -> list[MemoryRow]:
    """Return a row per running job, what runs out first."""
    jobs = watched_jobs(reader, slot_seconds=slot_seconds)
    reported = jobs_short_of_memory(reader)
    findings = {finding.job_id: finding for finding in watch_memory(jobs, reported=reported)}
    order = {name: place for place, name in enumerate(findings)}
    ordered = sorted(jobs, key=lambda job: (order.get(job.job_id, len(order)), job.job_id))
    return [_row(job, findings.get(job.job_id)) for job in ordered]


def _read(view: View, _query: NoQuery) -> list[MemoryRow]:
    return memory_rows(view.reader, slot_seconds=60 * view.settings.planning.slot_minutes)


MEMORY = Resource(
    name="memory",
    about="Every running job's GPU memory against its limit: what runs out, and where room is",
    kind=list[MemoryRow],
    query=NoQuery,
    read=_read,
)


def _row(job: WatchedJob, finding: MemoryFinding | None) -> MemoryRow:
    measured = job.used_mib[job.used_mib == job.used_mib]
    return MemoryRow(
        job_id=job.job_id,
        gpu_model=job.gpu_model,
        used_gib=round(float(measured[-1]) / MIB_PER_GIB, 2) if len(measured) else None,
        limit_gib=round(job.limit_mib / MIB_PER_GIB, 2),
        outlook="" if finding is None else str(finding.outlook),
        probability=None if finding is None else finding.probability,
        at=None if finding is None else finding.at,
        room_gib=None if finding is None else round(finding.room_mib / MIB_PER_GIB, 2) or None,
        why="" if finding is None else finding.why,
        advice=[] if finding is None else [advice.text for advice in finding.advice],
    )
