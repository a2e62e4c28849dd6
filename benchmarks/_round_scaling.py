"""Decision time and quality of a round from 64 to 2,048 GPUs, beside the exact program."""

import random
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from benchmarks._sia_cluster import PAPER_CLUSTER
from benchmarks.simulation.application import Application
from benchmarks.simulation.rounds.policy import HeterogeneousPolicy
from benchmarks.simulation.sia_policy import SiaPolicy, solve_exactly
from benchmarks.simulation.simulator import SimulationRules, simulate
from benchmarks.simulation.step_fit import StepFits
from benchmarks.simulation.workload import SubmittedJob

_SKIPPED_ROUNDS = 60
_MILP_SECONDS = 20.0


class _EnoughError(Exception):
    """All rounds that are wanted have been seen."""


@dataclass(slots=True, kw_only=True)
class ScaledRounds:
    """What the rounds of one size took: CPU ms of each, excess over the exact program in percent.

    `whole_ms` is the policy's whole call, `solve_ms` of HiGHS the program alone, `sia_ms` the
    Sia-like policy's whole call on the same jobs.
    """

    gpus: int
    jobs: list[int] = field(default_factory=list)
    whole_ms: list[float] = field(default_factory=list)
    exact_ms: list[float] = field(default_factory=list)
    sia_ms: list[float] = field(default_factory=list)
    excess_percent: list[float] = field(default_factory=list)

    def row(self) -> str:
        """Return a line of the table."""
        ours, exact, sia = (
            float(np.median(times)) for times in (self.whole_ms, self.exact_ms, self.sia_ms)
        )
        return (
            f"| {self.gpus:,} | {np.mean(self.jobs):.0f} | {ours:.2f} "
            f"| {np.percentile(self.whole_ms, 95):.2f} | {exact:.0f} | {sia:.0f} "
            f"| {sia / ours:.0f} x | {np.mean(self.excess_percent):.3f} % "
            f"| {np.max(self.excess_percent):.3f} % |"
        )


class _Watched:
    """Our policy, with every so manyth round solved exactly and asked of the Sia-like policy."""

    def __init__(self, found: ScaledRounds, rounds: int, every: int) -> None:
        self._ours, self._sia = HeterogeneousPolicy(), SiaPolicy()
        self._found, self._left, self._every, self._seen = found, rounds, every, 0

    def optimize(self, jobs: Mapping[str, Any], nodes: Any, before: Any) -> Any:
        began = time.process_time()
        given = self._ours.optimize(jobs, nodes, before)
        took = time.process_time() - began
        self._seen += 1
        if self._seen <= _SKIPPED_ROUNDS:
            return given
        self._found.whole_ms.append(1000 * took)
        self._found.jobs.append(len(jobs))
        if self._seen % self._every == 0:
            self._compare(jobs, nodes, before)
            self._left -= 1
            if not self._left:
                raise _EnoughError
        return given

    def _compare(self, jobs: Mapping[str, Any], nodes: Any, before: Any) -> None:
        problem, solution = self._ours.last_problem, self._ours.last_solution
        if problem is None or solution is None:
            return
        began = time.process_time()
        exact = solve_exactly(problem, seconds=_MILP_SECONDS)
        self._found.exact_ms.append(1000 * (time.process_time() - began))
        excess = 100 * (solution.cost - exact.cost) / max(abs(exact.cost), 1e-9)
        self._found.excess_percent.append(excess)
        began = time.process_time()
        self._sia.optimize(jobs, nodes, before)
        self._found.sia_ms.append(1000 * (time.process_time() - began))


def repeated(jobs: Sequence[SubmittedJob], factor: int) -> list[SubmittedJob]:
    """Return every job so many times, the copies up to 10 min earlier or later."""
    rng = random.Random(factor)  # noqa: S311 - a seeded workload, no secret
    return [
        replace(
            job,
            name=f"{job.name}-{copy}",
            submitted_at=max(0.0, job.submitted_at + rng.uniform(-600, 600)),
        )
        for copy in range(factor)
        for job in jobs
    ]


def scaled_rounds(
    jobs: Sequence[SubmittedJob],
    applications: Mapping[str, Application],
    *,
    factor: int,
    rounds: int = 8,
    every: int = 15,
) -> ScaledRounds:
    """Return the figures of rounds on so many times the paper's cluster and workload."""
    cluster = PAPER_CLUSTER.scaled(factor)
    found = ScaledRounds(gpus=cluster.gpus)
    try:
        simulate(
            repeated(jobs, factor),
            cluster,
            applications,
            _Watched(found, rounds, every),
            rules=SimulationRules(declared_batch=True),
            fits=StepFits(),
        )
    except _EnoughError:
        return found
    return found
