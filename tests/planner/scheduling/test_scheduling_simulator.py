"""The simulator and its policies on the seeded workload."""

from dataclasses import replace
from functools import cache

import pytest

from benchmarks.simulation.entries import ENTRIES, entry_of
from benchmarks.simulation.outcome import SimulationOutcome
from benchmarks.simulation.simulator import SimulationRules, simulate
from benchmarks.simulation.step_fit import StepFits
from benchmarks.simulation.synthetic import synthetic_applications, synthetic_jobs
from benchmarks.simulation.workload import GpuPool, SubmittedJob, WorkloadCluster, in_order
from data.base.errors import ImpossibleProblemError

CLUSTER = WorkloadCluster(
    pools=(
        GpuPool(gpu_type="fast", nodes=1, gpus_per_node=8, memory_gib=40.0),
        GpuPool(gpu_type="slow", nodes=2, gpus_per_node=4, memory_gib=16.0),
    )
)
APPLICATIONS = synthetic_applications(CLUSTER, {"fast": 1.0, "slow": 0.3})
JOBS = tuple(
    job
    for job in synthetic_jobs(14, hours=0.5, max_gpus=4, seed=3)
    if job.application != "large_image"
)
FITS = StepFits()


def run(name: str, jobs: tuple[SubmittedJob, ...] = JOBS) -> SimulationOutcome:
    """A policy on the jobs."""
    entry = entry_of(name)
    return simulate(
        [replace(job, rigid=entry.rigid) for job in jobs],
        CLUSTER,
        APPLICATIONS,
        entry.make(),
        fits=FITS,
    )


@cache
def made(name: str) -> SimulationOutcome:
    """A policy on the workload, simulated once for all that look at it."""
    return run(name)


@pytest.mark.parametrize("name", list(ENTRIES))
def test_every_policy_finishes_every_job(name: str) -> None:
    """Ends come after starts, starts after submissions; GPU time was spent by all."""
    found = made(name)
    assert [job.name for job in found.jobs] == [job.name for job in JOBS]
    assert all(job.submitted_at <= job.started_at <= job.finished_at for job in found.jobs)
    assert all(0 <= job.wasted_gpu_seconds < job.gpu_seconds for job in found.jobs)


def test_the_same_input_gives_the_same_outcome() -> None:
    """Decision times apart."""
    assert run("has").jobs == made("has").jobs


def test_elastic_policies_beat_the_guesses_of_users() -> None:
    """Mean completion time of HAS and of the Sia-like program against first in first out."""
    first_in = made("first-in").mean_hours
    assert made("has").mean_hours < first_in
    assert made("sia").mean_hours < first_in


def test_a_start_out_of_memory_is_counted_and_tried_elsewhere() -> None:
    """24 GiB need the 40 GiB cards: without a predictor the small ones fail once each size."""
    job = replace(
        JOBS[0], gpus=1, memory_gib={1: 24.0, 2: 24.0, 4: 24.0, 8: 24.0}, predicted_gib={}
    )
    crowd = tuple(replace(job, name=f"{job.name}-{index}") for index in range(12))
    assert run("first-in", crowd).out_of_memory > 0
    told = tuple(replace(entry, predicted_gib=entry.memory_gib) for entry in crowd)
    assert run("has", told).out_of_memory == 0


def test_a_job_that_never_fits_ends_in_an_error_and_not_in_a_loop() -> None:
    """The number of rounds is bounded."""
    with pytest.raises(ImpossibleProblemError, match="not done after 3 rounds"):
        simulate(
            JOBS[:1],
            CLUSTER,
            APPLICATIONS,
            entry_of("has").make(),
            rules=SimulationRules(most_rounds=3),
        )


def test_an_unknown_application_is_named() -> None:
    """With those that are known."""
    job = replace(JOBS[0], application="fusion")
    with pytest.raises(ImpossibleProblemError, match=r"fusion.*small_image"):
        simulate([job], CLUSTER, APPLICATIONS, entry_of("has").make())


def test_two_jobs_of_one_name_are_refused() -> None:
    """Policies know jobs by name."""
    with pytest.raises(ImpossibleProblemError, match="two jobs are called"):
        in_order([JOBS[0], JOBS[0]])


def test_a_policy_that_overfills_a_node_is_refused() -> None:
    """The simulator checks what it is given."""

    class Greedy:
        def optimize(self, jobs, nodes, prev_allocations):  # type: ignore[no-untyped-def]
            return dict.fromkeys(jobs, ("fast", (0,) * 9))

    with pytest.raises(ImpossibleProblemError, match="node 0 of fast"):
        simulate(JOBS[:1], CLUSTER, APPLICATIONS, Greedy())


def test_an_unknown_policy_is_named() -> None:
    """With those there are."""
    with pytest.raises(ImpossibleProblemError, match="first-in"):
        entry_of("best")
