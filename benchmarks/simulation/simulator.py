"""A cluster in rounds: jobs arrive, a policy decides, jobs restart, learn and finish."""

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.simulation.application import Application, throughput_ratios
from benchmarks.simulation.job_view import Allocation, NodeView, SchedulingPolicy
from benchmarks.simulation.outcome import FinishedJob, SimulationOutcome
from benchmarks.simulation.running_job import RunningJob
from benchmarks.simulation.step_fit import StepFits
from benchmarks.simulation.workload import SubmittedJob, WorkloadCluster, in_order
from data.base.errors import ImpossibleProblemError
from data.facts.gpu_resources import WHOLE_GPU


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationRules:
    """The same for all policies: seconds of a round, how many at most, what models may assume.

    `declared_batch` gives every policy the application's largest batch size as the limit of its
    goodput models, as a job specification states it; otherwise the batch its user submitted, as in
    Sia's simulator. The job itself always tunes up to the application's largest. `told_restarts`
    tells every policy the seconds of a restart; otherwise it may learn them.
    """

    round_seconds: float = 60.0
    most_rounds: int = 100_000
    declared_batch: bool = False
    told_restarts: bool = True


def simulate(
    jobs: Sequence[SubmittedJob],
    cluster: WorkloadCluster,
    applications: Mapping[str, Application],
    policy: SchedulingPolicy,
    *,
    rules: SimulationRules | None = None,
    progress: Callable[[int, int], None] | None = None,
    fits: StepFits | None = None,
) -> SimulationOutcome:
    """Return what became of the jobs under a policy. The same input gives the same outcome.

    Decision times are CPU seconds of the policy's call alone. `progress` is called with (finished,
    all) jobs; `fits` may be shared by simulations of the same applications.
    Errors: ImpossibleProblemError for an unknown application, a policy that hands out more GPUs
    than a node has, or jobs that are not done after the most rounds.
    """
    rules = rules or SimulationRules()
    fits = fits or StepFits()
    waiting = [_start(job, cluster, applications, fits) for job in in_order(jobs)]
    everyone, active = tuple(waiting), list[RunningJob]()
    gpu_types = tuple(pool.gpu_type for pool in cluster.pools)
    ratios = {
        name: throughput_ratios(application, gpu_types)
        for name, application in applications.items()
    }
    nodes = _nodes(cluster)
    held: dict[str, Allocation] = {}
    decisions: list[float] = []
    now = math.floor(everyone[0].job.submitted_at / rules.round_seconds) * rules.round_seconds
    for _ in range(rules.most_rounds):
        while waiting and waiting[0].job.submitted_at <= now:
            active.append(waiting.pop(0))
        views = {
            entry.job.name: entry.view(
                now,
                gpu_types,
                ratios[entry.application.name],
                declared_batch=rules.declared_batch,
                told_restarts=rules.told_restarts,
            )
            for entry in active
        }
        held = {name: given for name, given in held.items() if name in views}
        if active:
            began = time.process_time()
            held = dict(policy.optimize(views, nodes, held))
            decisions.append(time.process_time() - began)
            _check(held, cluster)
            for entry in active:
                gpu_type, given = held.get(entry.job.name, (None, ()))
                entry.hold(gpu_type, _shape(given))
        for entry in active:
            entry.advance(now, rules.round_seconds)
            if not entry.placement:
                held.pop(entry.job.name, None)
        now += rules.round_seconds
        if any(entry.finished_at is not None for entry in active):
            active = [entry for entry in active if entry.finished_at is None]
            if progress is not None:
                progress(len(everyone) - len(active) - len(waiting), len(everyone))
        if not active and not waiting:
            return SimulationOutcome(
                jobs=tuple(_finished(entry) for entry in everyone),
                decision_seconds=tuple(decisions),
            )
    raise ImpossibleProblemError(
        f"{len(active) + len(waiting)} of {len(everyone)} jobs are not done after "
        f"{rules.most_rounds} rounds",
        "give more rounds, more GPUs, or fewer jobs",
    )


def _start(
    job: SubmittedJob,
    cluster: WorkloadCluster,
    applications: Mapping[str, Application],
    fits: StepFits,
) -> RunningJob:
    if job.application not in applications:
        raise ImpossibleProblemError(
            f"job {job.name} runs {job.application}, of which nothing is known",
            f"use one of {', '.join(sorted(applications))}",
        )
    memory = {
        pool.gpu_type: pool.memory_gib for pool in cluster.pools if pool.memory_gib is not None
    }
    return RunningJob(job, applications[job.application], fits, gpu_memory_gib=memory)


def _nodes(cluster: WorkloadCluster) -> dict[str, dict[int, NodeView]]:
    return {
        pool.gpu_type: {
            index: NodeView(resources={WHOLE_GPU: pool.gpus_per_node})
            for index in range(pool.nodes)
        }
        for pool in cluster.pools
    }


def _shape(nodes: tuple[int, ...]) -> tuple[int, ...]:
    """Return the GPUs on each node, most first: where they are does not matter for speed."""
    return tuple(sorted((nodes.count(node) for node in set(nodes)), reverse=True))


def _check(held: Mapping[str, Allocation], cluster: WorkloadCluster) -> None:
    used: dict[tuple[str, int], int] = {}
    for gpu_type, given in held.values():
        for node in given:
            key = (gpu_type or "", node)
            used[key] = used.get(key, 0) + 1
    room = {pool.gpu_type: (pool.nodes, pool.gpus_per_node) for pool in cluster.pools}
    for (gpu_type, node), count in used.items():
        nodes, per_node = room.get(gpu_type, (0, 0))
        if node >= nodes or count > per_node:
            raise ImpossibleProblemError(
                f"the policy put {count} jobs' GPUs on node {node} of {gpu_type or 'no type'}",
                f"that type has {nodes} nodes of {per_node} GPUs: correct the policy",
            )


def _finished(running: RunningJob) -> FinishedJob:
    assert running.finished_at is not None  # noqa: S101 - the simulation ends when all are finished
    return FinishedJob(
        name=running.job.name,
        application=running.application.name,
        submitted_at=running.job.submitted_at,
        finished_at=running.finished_at,
        started_at=running.started_at or running.finished_at,
        gpu_seconds=running.gpu_seconds,
        wasted_gpu_seconds=running.gpu_seconds - running.used_gpu_seconds,
        restarts=running.restarts or 0,
        out_of_memory=running.out_of_memory,
    )
