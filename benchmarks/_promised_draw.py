"""Draws fleets as `_promised_fleet.py` describes their truth."""

from datetime import timedelta

import numpy as np

from benchmarks._promised_fleet import (
    NOW,
    PER_DAY,
    PER_HOUR,
    RUN_SPREAD,
    SHAPES,
    STEP,
    DrawnFleet,
    DrawnJob,
    EndLaw,
    Site,
    Values,
    shape_of,
)
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.fleet import Node
from data.facts.jobs import Job, JobState, Platform, SchedulerFacts, WorkloadKind

_ROLES = {
    "services, H100 and A100": ("wide", "one", "peaky", "warm", "train", "train", "hot", "idle"),
    "services, boards of 75 W": ("wide", "one", "one", "peaky", "warm", "idle", "idle", "climbing"),
    "services, MIG": ("one", "one", "one", "one", "wide", "train", "idle", "warm"),
    "training, Slurm": ("train", "train", "train", "hot", "hot", "idle", "idle", "one"),
    "mixed, L40S and A100": ("wide", "one", "one", "warm", "train", "hot", "idle", "climbing"),
    "services near their limit": ("warm",) * 8,
}
_SERVING = ("wide", "one", "peaky", "warm", "climbing")


def split_normal(random: np.random.Generator, low: float, middle: float, high: float) -> float:
    """Return a number whose q10, q50 and q90 are these."""
    z = float(random.standard_normal()) / 1.2816
    return middle + z * (high - middle if z > 0 else middle - low)


def site_of(cooling: float, servers: float) -> Site:
    """Return the site of two standard normal numbers."""
    return Site(
        pue=max(1.0, 1.54 + 0.1 / 1.2816 * cooling),
        base_watts_share=max(0.0, 1 + 0.5 / 1.2816 * servers),
    )


def draw_fleet(
    seed: int, number: int, *, slot_minutes: int, past_days: int, hours: int
) -> DrawnFleet:
    """Return fleet `number` of a seed, with `past_days` of history and `hours` to come."""
    random = np.random.default_rng([seed, number])
    shape = shape_of(number)
    scheduler, models, per_node = SHAPES[shape]
    past, future = past_days * PER_DAY, hours * PER_HOUR
    source = f"{scheduler} drawn"
    catalogue = load_gpu_catalogue()
    idle = {}
    for name in models:
        model = catalogue.get(name)
        drawn = split_normal(random, model.idle_watts_low, model.idle_watts, model.idle_watts_high)
        idle[name] = max(drawn, 0.6 * model.idle_watts_low)
    free: dict[str, list[tuple[str, int]]] = {name: [] for name in models}
    nodes = []
    for position, name in enumerate((*models, *models, *models)[: max(4, len(models) + 1)]):
        model = catalogue.get(name)
        slices = tuple((profile.name, profile.max_instances) for profile in model.mig_profiles)
        nodes.append(
            Node(
                name=f"n{position}",
                gpu_model=name,
                gpu_count=per_node,
                mig_instances=slices if "MIG" in shape else (),
                state="idle" if scheduler == "slurm" else "",
                partitions=("main",) if scheduler == "slurm" else (),
                seen_at=NOW - timedelta(seconds=STEP),
                source=source,
            )
        )
        free[name] += [(f"n{position}", index) for index in range(per_node)]
    jobs: list[DrawnJob] = []
    runs: list[Job] = []
    roles = list(_ROLES[shape]) + list(random.choice(_ROLES[shape], 3))
    for index, role in enumerate(roles):
        wide = role in ("wide", "train", "peaky") or (role in ("hot", "idle") and index % 2)
        asked = int(random.choice((2, 4) if per_node == 4 else (2, 4, 4, 8))) if wide else 1
        name = max(models, key=lambda model: (len(free[model]) >= asked, random.random()))
        if len(free[name]) < asked:
            continue
        places, free[name] = tuple(free[name][:asked]), free[name][asked:]
        job, ended = _draw_job(random, role, index, scheduler, name, places, past, future)
        jobs.append(job)
        runs += ended
    return DrawnFleet(
        number=number,
        shape=shape,
        slot_minutes=slot_minutes,
        past=past,
        future=future,
        jobs=tuple(jobs),
        runs=tuple(runs),
        nodes=tuple(nodes),
        idle_watts=idle,
        site=site_of(float(random.standard_normal()), float(random.standard_normal())),
        noise_seed=int(random.integers(2**31)),
    )


def _draw_job(
    random: np.random.Generator,
    role: str,
    index: int,
    scheduler: str,
    model: str,
    places: tuple[tuple[str, int], ...],
    past: int,
    future: int,
) -> tuple[DrawnJob, list[Job]]:
    count, steps = len(places), past + future
    serves = role in _SERVING and scheduler == "kubernetes"
    wanted = _demand(random, role, count, steps, serves=serves)
    started, ends, killed, law, lengths = 0, steps + 1, False, EndLaw(), np.zeros(0)
    if role == "idle":
        stopped = past - int(random.integers(6 * PER_HOUR, 30 * PER_HOUR))
        wanted[stopped:] = 0.0
    if not serves:
        started, ends, killed, law, lengths = _end(random, past, future)
    limit = float(past - started + law.left) * STEP if law.left else None
    memory_share = float(random.uniform(0.05, 0.22 if role == "one" else 0.35))
    memory = memory_share * (1 + 0.02 * random.standard_normal(steps))
    if role == "climbing":
        memory = 0.45 + 0.55 * np.arange(steps) / (past + future * random.uniform(0.3, 0.9))
        memory = np.minimum(memory + 0.003 * random.standard_normal(steps), 1.0)
    job = _record(role, index, scheduler, model, count, started, past, limit, serves=serves)
    runs = [_ended_run(job, number, float(length)) for number, length in enumerate(lengths)]
    return DrawnJob(
        job=job,
        role=role,
        boards=places,
        wanted=wanted,
        ends=ends,
        killed=killed,
        end_law=law,
        held_idle=1 + 0.25 * float(random.random()),
        top=float(random.uniform(0.9, 1.0) if role == "warm" else random.uniform(0.6, 0.95)),
        exponent=float(np.exp(0.15 * random.standard_normal())) * (0.4 if role == "warm" else 1),
        memory=memory,
        chance=random.random(12),
    ), runs


def _demand(
    random: np.random.Generator, role: str, count: int, steps: int, *, serves: bool
) -> Values:
    """Return the work in boards [steps]."""
    low, high = {
        "wide": (0.1, 0.35),
        "one": (0.04, 0.3),
        "peaky": (0.7, 0.95),
        "warm": (0.5, 0.7),
        "train": (0.15, 0.45),
        "hot": (0.8, 0.97),
        "idle": (0.2, 0.7),
        "climbing": (0.3, 0.6),
    }[role]
    level = float(random.uniform(low, high)) * count
    at = np.arange(steps)
    noise = _autoregressive(random, steps, 0.98, 0.12 if serves else 0.03)
    if not serves:
        dips = np.where(at % int(random.integers(2, 9) * PER_HOUR) < 1, 0.3, 1.0)
        return np.minimum(level * dips * np.exp(noise), count)
    phase, depth = random.uniform(0, 2 * np.pi), random.uniform(0.1, 0.3 if role == "warm" else 0.6)
    day = 1 + depth * np.sin(2 * np.pi * at / PER_DAY + phase)
    week = np.where(at // PER_DAY % 7 < 5, 1.0, random.uniform(0.6, 1.0))
    trend = 1 + random.normal(0, 0.02) * (at - steps) / PER_DAY
    bursts = np.ones(steps)
    for begin in np.flatnonzero(random.random(steps) < random.uniform(0, 2) / PER_DAY):
        bursts[begin : begin + int(random.integers(2, 12))] *= random.uniform(1.3, 2.0)
    cap = count * (1.6 if role == "peaky" else 1.0)
    return np.asarray(np.clip(level * day * week * trend * bursts * np.exp(noise), 0.0, cap))


def _autoregressive(random: np.random.Generator, steps: int, keep: float, spread: float) -> Values:
    found = random.standard_normal(steps) * spread * np.sqrt(1 - keep**2)
    for step in range(1, steps):
        found[step] += keep * found[step - 1]
    return found


def _end(
    random: np.random.Generator, past: int, future: int
) -> tuple[int, int, bool, EndLaw, Values]:
    """Return the first step, step of the end, whether a limit ends it, its law, past runs in s."""
    never = past + future + 1
    match int(random.integers(4)):
        case 0:
            return 0, never, False, EndLaw(), np.zeros(0)
        case 1 | 2:  # a run like those before it, seen at any time of it: the longer, the likelier
            typical = random.uniform(0.6, 2.0) * past
            lengths = typical * np.exp(RUN_SPREAD * random.standard_normal(12))
            length = typical * np.exp(RUN_SPREAD * random.standard_normal() + RUN_SPREAD**2)
            so_far = int(length * random.uniform(0.02, 1.0))
            law = EndLaw(so_far=so_far, typical=typical)
            ends = max(past - so_far + int(length), past + 1)
            return past - so_far, ends, False, law, lengths * STEP
        case _:
            started = past - int(random.uniform(0.3, 1.0) * past)
            law = EndLaw(left=int(random.uniform(2 * PER_HOUR, 1.5 * future)))
            after, killed = law.drawn(random) or (1, False)
            return started, past + after, killed, law, np.zeros(0)


def _record(
    role: str,
    index: int,
    scheduler: str,
    model: str,
    count: int,
    started: int,
    past: int,
    limit: float | None,
    *,
    serves: bool,
) -> Job:
    began = NOW - timedelta(seconds=(past - started) * STEP)
    seen = NOW - timedelta(seconds=STEP)
    slurm = scheduler == "slurm"
    kind = "deployment" if serves else "job" if role != "hot" else "pod"
    extra: tuple[tuple[str, str], ...] = (("gpus_per_pod", "1"), ("gpu_containers", "1"))
    if slurm:
        extra = (
            ("requeue", "yes"), ("batch", "yes"), ("gres_per", "node"), ("nodes_requested", "1"),
            ("requested_gpu_type", model), ("requested_gpus", str(count)),
            ("slurm_release", "24.11"),
        )  # fmt: skip
    elif limit is not None:
        extra += (("deadline_at", (began + timedelta(seconds=limit)).isoformat()),)
    name = f"{role}-{'abcdefghijkl'[index]}"
    return Job(
        job_id=f"slurm:{1000 + index}" if slurm else f"team/{kind}/{name}",
        name=name,
        namespace="main" if slurm else "team",
        owner="team",
        platform=Platform.SLURM if slurm else Platform.KUBERNETES,
        kind=WorkloadKind.INFERENCE if serves else WorkloadKind.TRAINING,
        gpu_model=model,
        gpu_count=count,
        mig_profile="",
        gpu_memory_mib=float(load_gpu_catalogue().get(model).memory_mib),
        first_seen_at=began,
        last_seen_at=seen,
        source=f"{scheduler} drawn",
        scheduler=SchedulerFacts(
            state=JobState.RUNNING,
            workload="" if slurm else f"{kind}/{name}",
            started_at=began,
            time_limit_seconds=limit if slurm else None,
            extra=extra,
        ),
    )


def _ended_run(job: Job, number: int, seconds: float) -> Job:
    """Return an ended run of the same job, days ago."""
    ended = job.first_seen_at - timedelta(hours=3 + number)
    began = ended - timedelta(seconds=seconds)
    slurm = job.platform is Platform.SLURM
    return Job(
        job_id=f"{job.job_id}{number:02d}" if slurm else f"{job.job_id}-{number + 1}",
        name=f"{job.name}-{number + 1}",
        namespace=job.namespace,
        owner=job.owner,
        platform=job.platform,
        kind=job.kind,
        gpu_model=job.gpu_model,
        gpu_count=job.gpu_count,
        mig_profile="",
        gpu_memory_mib=job.gpu_memory_mib,
        first_seen_at=began,
        last_seen_at=ended,
        source=job.source,
        scheduler=SchedulerFacts(state=JobState.FINISHED, started_at=began, ended_at=ended),
    )
