"""Rows of what the policies came to, and a sentence of why."""

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, stdev
from typing import TYPE_CHECKING, TypeAlias

from dashboard.common.figures import figure_text
from data.base.counts import count_text

if TYPE_CHECKING:
    from benchmarks.simulation.outcome import SimulationOutcome

OWN_POLICY = "has"
COLUMNS = (
    "policy",
    "workloads",
    "jobs",
    "jct_mean_h",
    "jct_mean_sd_h",
    "jct_p99_h",
    "jct_p99_sd_h",
    "makespan_h",
    "gpu_h",
    "restarts_per_job",
    "out_of_memory",
    "decision_ms_median",
    "decision_ms_p95",
)

Outcomes: TypeAlias = "Mapping[str, Sequence[SimulationOutcome]]"
"""By policy: one outcome a workload, in the same order for all policies."""


def rows_of(outcomes: Outcomes) -> list[dict[str, object]]:
    """Return one row a policy: means over its workloads, sums of jobs and of starts out of memory.

    Times are in h, decisions in ms of CPU. `…_sd_h` is the standard deviation between workloads,
    None for one workload alone.
    """
    return [_row(policy, parts) for policy, parts in outcomes.items()]


def _row(policy: str, parts: Sequence["SimulationOutcome"]) -> dict[str, object]:
    def mean(of: "Callable[[SimulationOutcome], float]") -> float:
        return fmean(of(part) for part in parts)

    def spread(of: "Callable[[SimulationOutcome], float]") -> float | None:
        return stdev(of(part) for part in parts) if len(parts) > 1 else None

    return {
        "policy": policy,
        "workloads": len(parts),
        "jobs": sum(len(part.jobs) for part in parts),
        "jct_mean_h": mean(lambda part: part.mean_hours),
        "jct_mean_sd_h": spread(lambda part: part.mean_hours),
        "jct_p99_h": mean(lambda part: part.p99_hours),
        "jct_p99_sd_h": spread(lambda part: part.p99_hours),
        "makespan_h": mean(lambda part: part.makespan_hours),
        "gpu_h": mean(lambda part: part.gpu_hours),
        "restarts_per_job": mean(lambda part: part.restarts_per_job),
        "out_of_memory": sum(part.out_of_memory for part in parts),
        "decision_ms_median": mean(lambda part: part.decision_milliseconds(50)),
        "decision_ms_p95": mean(lambda part: part.decision_milliseconds(95)),
    }


def comparison(outcomes: Outcomes) -> str:
    """Return how HAS does beside the best other policy, where it loses, and what it does otherwise.

    Best is the smallest mean completion time over all workloads. Empty without HAS or a peer.
    """
    own = outcomes.get(OWN_POLICY)
    peers = {name: parts for name, parts in outcomes.items() if name != OWN_POLICY}
    if not own or not peers:
        return ""
    peer = min(peers, key=lambda name: fmean(part.mean_hours for part in peers[name]))
    measures: tuple[tuple[str, Callable[[SimulationOutcome], float]], ...] = (
        ("mean completion time", lambda part: part.mean_hours),
        ("p99", lambda part: part.p99_hours),
        ("makespan", lambda part: part.makespan_hours),
    )
    against = [_against(name, own, peers[peer], of) for name, of in measures]
    return (
        f"{OWN_POLICY} beside {peer}, the best of the others: {'; '.join(against)}.\n"
        f"Why: {_habits(OWN_POLICY, own)}; {_habits(peer, peers[peer])}."
    )


def _against(
    name: str,
    own: Sequence["SimulationOutcome"],
    peer: Sequence["SimulationOutcome"],
    of: "Callable[[SimulationOutcome], float]",
) -> str:
    ours, theirs = [of(part) for part in own], [of(part) for part in peer]
    change = fmean(ours) / fmean(theirs) - 1
    lost = sum(mine > other for mine, other in zip(ours, theirs, strict=True))
    return f"{name} {change:+.1%} (longer on {lost} of {count_text(len(ours), 'workload')})"


def _habits(policy: str, parts: Sequence["SimulationOutcome"]) -> str:
    """Return what a policy does to a job on average: waits, GPUs' time held and lost, restarts."""
    jobs = [job for part in parts for job in part.jobs]
    waited = fmean((job.started_at - job.submitted_at) / 60 for job in jobs)
    held = sum(job.gpu_seconds for job in jobs)
    lost = sum(job.wasted_gpu_seconds for job in jobs) / held if held else 0.0
    restarts = fmean(job.restarts for job in jobs)
    return (
        f"under {policy} a job waits {figure_text(waited)} min for its first GPU, holds "
        f"{figure_text(held / 3600 / len(jobs))} GPU-hours, loses {lost:.0%} of them to restarts "
        f"and starts again {figure_text(restarts)} times"
    )
