"""Language models on GPUs of 15 to 40 GiB: what a memory predictor saves.

Seeded jobs of public models, full or LoRA, under FSDP at micro-batch 1 with full recomputation. The
true peak of a GPU is MARP's estimate times a lognormal error of 6 %, the size of its error on runs
with a printed recipe; speed is the prior of the plan. A start that runs out of memory costs the
restart and is not tried there again. With the predictor a policy is told the estimate and a margin.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from benchmarks._sia_cluster import PAPER_CLUSTER
from benchmarks.simulation.application import Application, LearningCurve, MeasuredSpeed
from benchmarks.simulation.gavel_policy import GavelPolicy
from benchmarks.simulation.job_view import SchedulingPolicy
from benchmarks.simulation.rigid_policies import FirstInPolicy, LeastAttainedPolicy
from benchmarks.simulation.rounds.policy import HeterogeneousPolicy
from benchmarks.simulation.sia_policy import SiaPolicy
from benchmarks.simulation.simulator import SimulationRules, simulate
from benchmarks.simulation.step_fit import StepFits
from benchmarks.simulation.workload import SubmittedJob
from planner.memory.estimate.predictor import predict_peak
from planner.memory.estimate.training_plans import GpuType, prior_speed
from planner.memory.models.model_sizes import known_model
from planner.memory.step.training_job import (
    Adapter,
    Method,
    Parallelism,
    Recompute,
    Sharding,
    TrainingJob,
)

_GIB = 2**30
_SEED = 20261121
_SECONDS_BETWEEN = 240.0
_BATCH = 64
_SIZES = (1, 2, 4, 8, 12, 16, 20, 24)
_RATES = {"aws": 20e12, "dgx-ext": 120e12, "rtx": 26e12}
"""Achieved FLOP per second of one GPU in 16 bit: T4, A100, RTX 2080 Ti; stated, not fitted."""
_MARGIN = 1.1
_MAX_POOL = 16
"""GPUs of the type with most memory."""

_ERROR = 0.06
_MODELS = (
    ("tinyllama-1.1b", False), ("llama3.2-1b", False), ("llama3.2-3b", False),
    ("llama3.2-3b", True), ("llama2-7b", True), ("mistral-7b", True), ("gemma-2b", False),
    ("phi-2", True), ("llama2-13b", True),
)  # fmt: skip


def _job(name: str, *, adapter: bool, gpus: int) -> TrainingJob:
    sharding = Sharding.FSDP if gpus > 1 else Sharding.NONE
    return TrainingJob(
        shape=known_model(name),
        method=Method.ADAPTER if adapter else Method.FULL,
        adapter=Adapter(rank=16) if adapter else None,
        parallelism=Parallelism(data=gpus, sharding=sharding),
        micro_batch=1,
        sequence_length=2048,
        gradient_accumulation=max(1, _BATCH // gpus),
        precision="amp",
        optimizer="adamw",
        recompute=Recompute.FULL,
    )


def _application(name: str, *, adapter: bool) -> tuple[Application, dict[int, float]]:
    """Return the application and MARP's estimate in GiB by number of GPUs."""
    shape = known_model(name)
    flop = 6.0 * 12 * shape.layers * shape.hidden**2 * 2048
    speeds = {}
    for pool in PAPER_CLUSTER.pools:
        by_size = {}
        for gpus in _SIZES:
            nodes = -(-gpus // pool.gpus_per_node)
            gpu = GpuType(
                name=pool.gpu_type,
                memory_bytes=1.0,
                relative_speed=_RATES[pool.gpu_type] / flop,
                price_per_hour=1.0,
                gpus_per_node=pool.gpus_per_node,
            )
            rate = prior_speed(gpu, _job(name, adapter=adapter, gpus=gpus)) / gpus
            local = np.array([1.0, float(_BATCH)])
            by_size[nodes, gpus] = (local, local / rate, np.full(2, 0.02 * nodes))
        speeds[pool.gpu_type] = MeasuredSpeed(
            by_placement={}, by_size=by_size, least_local_batch=1, largest_local_batch=_BATCH
        )
    title = f"{name}{'+lora' if adapter else ''}"
    curve = LearningCurve(
        batch_sizes=(_BATCH,),
        progress=tuple(float(step) for step in np.linspace(0, 150, 11)),
        square=np.ones((1, 10)),
        variance=np.zeros((1, 10)),
    )
    application = Application(name=title, speeds=speeds, curve=curve, restart_seconds=120.0)
    need = {
        gpus: predict_peak(_job(name, adapter=adapter, gpus=gpus)).nvml_bytes / _GIB
        for gpus in _SIZES
    }
    return application, need


def _workload(count: int) -> tuple[list[SubmittedJob], dict[str, Application]]:
    rng = random.Random(_SEED)  # noqa: S311 - a seeded workload, no secret
    described = {}
    for name, adapter in _MODELS:
        application, need = _application(name, adapter=adapter)
        described[application.name] = (application, need)
    largest = max(pool.memory_gib or 0.0 for pool in PAPER_CLUSTER.pools)
    jobs = []
    for index in range(count):
        name = rng.choice(sorted(described))
        need = described[name][1]
        off = rng.lognormvariate(0.0, _ERROR)
        truth = {gpus: size * off for gpus, size in need.items()}
        guesses = [gpus for gpus in (1, 2, 4, 8, 16) if truth[gpus] <= largest]
        jobs.append(
            SubmittedJob(
                name=f"{name}-{index}",
                submitted_at=rng.uniform(0, count * _SECONDS_BETWEEN),
                application=name,
                gpus=rng.choice(guesses),
                batch_size=_BATCH,
                memory_gib=truth,
                predicted_gib={gpus: size * _MARGIN for gpus, size in need.items()},
            )
        )
    return jobs, {name: application for name, (application, _) in described.items()}


def _untold(job: SubmittedJob, *, rigid: bool) -> SubmittedJob:
    return replace(job, rigid=rigid, predicted_gib={})


def _told(job: SubmittedJob, *, rigid: bool) -> SubmittedJob:
    """Return the job with the estimate; a guess that it refuses grows until it does not."""
    largest = max(pool.memory_gib or 0.0 for pool in PAPER_CLUSTER.pools)
    fitting = [
        gpus
        for gpus, need in job.predicted_gib.items()
        if gpus >= job.gpus and need <= largest and gpus <= _MAX_POOL
    ]
    return replace(job, rigid=rigid, gpus=min(fitting, default=job.gpus))


Entries = Mapping[str, tuple[Callable[[], SchedulingPolicy], bool, bool]]

_ENTRIES: Entries = {
    "first in first out, rigid": (FirstInPolicy, True, False),
    "the same, with MARP": (lambda: FirstInPolicy(knows_memory=True), True, True),
    "least attained service, rigid": (LeastAttainedPolicy, True, False),
    "Gavel, rigid": (GavelPolicy, True, False),
    "Sia": (SiaPolicy, False, False),
    "Sia, with MARP": (SiaPolicy, False, True),
    "HAS, without MARP": (HeterogeneousPolicy, False, False),
    "HAS, with MARP": (HeterogeneousPolicy, False, True),
}


def llm_table(count: int) -> list[str]:
    """Return the table of so many jobs in Markdown."""
    jobs, applications = _workload(count)
    fits = StepFits()
    lines = [
        *(__doc__ or "").split("\n\n", 1)[1].strip().splitlines(),
        "",
        f"{count} jobs in {count * _SECONDS_BETWEEN / 3600:g} h, seed {_SEED}.",
        "",
        (
            "| policy | mean JCT (h) | p99 (h) | makespan (h) | GPU-h per job | restarts per job "
            "| starts out of memory |"
        ),
        "|---|---:|---:|---:|---:|---:|---:|",
    ]
    for name, (make, rigid, told) in _ENTRIES.items():
        given = [_told(job, rigid=rigid) if told else _untold(job, rigid=rigid) for job in jobs]
        one = simulate(
            given,
            PAPER_CLUSTER,
            applications,
            make(),
            rules=SimulationRules(declared_batch=True, most_rounds=20_000),
            fits=fits,
        )
        lines.append(
            f"| {name} | {one.mean_hours:.3f} | {one.p99_hours:.2f} | {one.makespan_hours:.1f} "
            f"| {one.gpu_hours / len(jobs):.2f} | {one.restarts_per_job:.2f} "
            f"| {one.out_of_memory} |"
        )
    return lines
