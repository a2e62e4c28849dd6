"""Pairs of jobs that could share one board, and their speeds on it.

A pair is proposed where both have little to do and together fit: P95 of utilization at most 100 %,
memory at most 0.8 of the board. Jobs that fit a MIG slice of half a board or less are left out,
since a slice keeps them apart.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from data.catalogue.gpu_catalogue import GpuCatalogue, GpuModel
from data.settings.all_settings import PlanningSettings
from planner.jobs.job_demand import JobDemand

MAX_UTILIZATION = 1.0
MAX_MEMORY_SHARE = 0.8
HALF = 0.5
SPEEDS = ((0.6, 0.74, 0.95, 1.00), (1.0, 0.60, 0.90, 0.97))
"""Up to a sum of solo utilizations: lowest, likely and highest speed of the slower job.

Likely is between the medians of Lucid's 1,388 pairs (0.97 and 0.94; ASPLOS 2023, small vision and
language models) and those of 22 pairs that take turns on an H200 (0.92 and 0.86); by MPS they were
0.99 and 0.94 there. The lowest is the worst of these, the highest Lucid's median of both jobs
(benchmarks/measured/shared_board_h200.json)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Partner:
    """The job on the other half of a board; speeds relative to a board alone."""

    job_id: str
    speed_low: float
    speed: float
    speed_high: float


def partners_of(
    candidates: Sequence[JobDemand],
    *,
    catalogue: GpuCatalogue,
    planning: PlanningSettings,
) -> Mapping[str, Partner]:
    """Return a partner to as many of the candidates as fit, by job id; pairs are mutual.

    Best fit: the busiest job first gets the busiest one that still fits beside it.
    """
    groups: dict[tuple[str, ...], list[tuple[float, float, JobDemand]]] = {}
    for candidate in candidates:
        needs = _needs(candidate, catalogue, planning)
        if needs is not None:
            room = candidate.job.namespace if planning.board_sharing == "namespace" else ""
            job = candidate.job
            runs_it = job.cluster if job.scheduler is None else job.source
            key = (candidate.job.gpu_model, room, runs_it)
            groups.setdefault(key, []).append((*needs, candidate))
    pairs: dict[str, Partner] = {}
    for group in groups.values():
        waiting = sorted(group, key=lambda pair: (-pair[0], pair[2].job.job_id))
        while waiting:
            used, memory, first = waiting.pop(0)
            other = next((pair for pair in waiting if _fit(used, memory, *pair[:2])), None)
            if other is not None:
                waiting.remove(other)
                pairs |= _pair((used, memory, first), other)
    return pairs


def _needs(
    demand: JobDemand, catalogue: GpuCatalogue, planning: PlanningSettings
) -> tuple[float, float] | None:
    """Return (utilization, share of the board's memory) of a job that could share, else None."""
    job, busy = demand.job, demand.utilization_p95_ratio
    model = catalogue.find(job.gpu_model)
    if planning.board_sharing == "none" or job.gpu_count != 1 or job.mig_profile:
        return None
    if model is None or busy is None or demand.demand_q90 is None or demand.memory_mib is None:
        return None
    if not demand.standing.may_restart or demand.may_stop(planning):
        return None
    if _fits_half_slice(model, demand.memory_mib * (1 + planning.memory_headroom_ratio)):
        return None
    return max(busy, float(demand.demand_q90.max())), demand.memory_mib / model.memory_mib


def _fits_half_slice(model: GpuModel, memory_mib: float) -> bool:
    return any(
        memory_mib <= profile.memory_mib and 2 * profile.memory_mib <= model.memory_mib
        for profile in model.mig_profiles
        if profile.compute_fraction <= HALF
    )


def _fit(used: float, memory: float, other_used: float, other_memory: float) -> bool:
    fits = memory + other_memory <= MAX_MEMORY_SHARE
    return used + other_used <= MAX_UTILIZATION and fits


def _pair(
    one: tuple[float, float, JobDemand], other: tuple[float, float, JobDemand]
) -> dict[str, Partner]:
    used = one[0] + other[0]
    _most, low, likely, high = next(row for row in SPEEDS if used <= row[0])
    return {
        demand.job.job_id: Partner(
            job_id=partner.job.job_id,
            speed_low=low,
            speed=likely,
            speed_high=high,
        )
        for demand, partner in ((one[2], other[2]), (other[2], one[2]))
    }
