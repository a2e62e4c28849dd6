"""Query and result of a page of many jobs."""

from dataclasses import dataclass

from data.facts.jobs import Job


@dataclass(frozen=True, slots=True, kw_only=True)
class JobFilter:
    """A filter of jobs: `fields` by name (namespace, application, user and others), '' is none.

    `search` is a part of id, name or owner, in any case; `running`: only those seen lately that
    neither wait nor are suspended or over.
    """

    fields: tuple[tuple[str, str], ...] = ()
    search: str = ""
    running: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JobUse:
    """A job and what it held in the time asked for; None what was never reported.

    `utilization_ratio` is of the GPU-hours whose utilization is known. `memory_mib` is the largest
    reading of one of its GPUs or MIG instances, `memory_total_mib` what the largest of them has.
    """

    job: Job
    gpu_hours: float | None
    idle_gpu_hours: float | None
    energy_kwh: float | None
    utilization_ratio: float | None
    memory_mib: float | None
    memory_total_mib: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class JobPage:
    """Some jobs of all `found`, and the sums over all of these."""

    rows: tuple[JobUse, ...]
    found: int
    running: int
    gpu_hours: float | None
    idle_gpu_hours: float | None
    energy_kwh: float | None
