"""Drawn jobs: what their boards truly do, and what a faulty exporter says of them.

The truth of work is drawn from programs measured on an H200 (benchmarks/measured), scaled to the
power of other boards. GPU_UTIL and power are of a moment, profiling counters means of 30 s, as
exporters have them. Of several holders each is a pod that has a time slice of every board.
"""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from benchmarks._exporter_faults import told_by_exporter

Values = npt.NDArray[np.float64]
HOURS = 30
TWINS = 1_000_000
"""Jobs whose numbers are so far apart do the same work."""
START = 1_764_000_000 // 3600 * 3600
_MEASURED = Path(__file__).parent / "measured" / "slow_programs_h200.json"
_REST_RATIO = 0.186
"""Of its limit, that the measured H200 draws with a program loaded and nothing to do."""

REST = ("idle", "loaded and idle")
WORK = ("steady", "bursts of minutes", "bursts of seconds", "turns of hours")
KINDS = (*REST, *WORK)
_TURNS = (360, 480, 720)
"""Minutes of a turn of hours: work, and a rest of up to ten hours after which it returns."""
STUCK = ("engine", "sm", "profiling", "gpu_util", "power")
OTHER_FAULTS = ("decayed", "spikes", "gaps", "labels missing", "two exporters")
FAULTS = ("", *(f"stuck {name}" for name in STUCK), *OTHER_FAULTS)
MODELS = {
    "NVIDIA H100 80GB HBM3": (81559, 700, 75),
    "NVIDIA H200": (143771, 700, 78),
    "NVIDIA A100-SXM4-80GB": (81920, 400, 62),
    "NVIDIA L40S": (46068, 350, 35),
    "Tesla V100-SXM2-32GB": (32768, 300, 42),
    "Tesla T4": (15360, 70, 10),
}
"""Memory in MiB, power limit and power at rest in W, as data sheets and NVML tell."""
_PROFILING = {
    "engine": "DCGM_FI_PROF_GR_ENGINE_ACTIVE",
    "sm": "DCGM_FI_PROF_SM_ACTIVE",
    "tensor": "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE",
    "dram": "DCGM_FI_PROF_DRAM_ACTIVE",
}
_COLUMNS = {
    "engine": "engine_active",
    "sm": "sm_active",
    "tensor": "tensor_active",
    "dram": "dram_active",
}
GPU_UTIL, _POWER = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE"
PREFERENCE = (_PROFILING["sm"], _PROFILING["engine"], GPU_UTIL)
FIELD_SETS = (
    ("gpu_util", "power"),
    ("gpu_util", "engine", "power"),
    ("gpu_util", "engine", "tensor", "dram", "power"),
    ("gpu_util", "engine", "sm", "tensor", "dram", "power"),
    ("engine", "sm", "power"),
)


@dataclass(frozen=True)
class DrawnJob:
    """A job of some boards: its truth and its fault. The defaults are the plainest case.

    `variant` says how an exporter is at fault (`_exporter_faults`), `changes_at` from which share
    of the time on.
    """

    number: int = 0
    kind: str = "idle"
    fault: str = ""
    level: float = 0.0
    faulty_boards: int = 1
    boards: int = 1
    model: str = "NVIDIA H100 80GB HBM3"
    fields: tuple[str, ...] = FIELD_SETS[3]
    program: int = 0
    duty: float = 0.3
    period_minutes: int = 60
    step_seconds: int = 300
    holders: int = 1
    variant: str = ""
    changes_at: float = 0.5

    @property
    def pods(self) -> tuple[str, ...]:
        """The names of the pods that hold its boards."""
        name = f"job-{self.number}"
        return (name,) if self.holders == 1 else tuple(f"{name}-{n}" for n in range(self.holders))

    @property
    def job_id(self) -> str:
        """What the product calls its first pod."""
        return f"drawn/{self.pods[0]}"

    @property
    def memory_mib(self) -> float:
        """The memory of a board."""
        return MODELS[self.model][0]

    @property
    def limit_watts(self) -> float:
        """The power limit of a board."""
        return MODELS[self.model][1]

    @property
    def idle_watts(self) -> float:
        """What a board draws at rest."""
        return MODELS[self.model][2]

    @property
    def works(self) -> bool:
        """Whether its boards are truly at work."""
        return self.kind in WORK

    @property
    def counters(self) -> frozenset[str]:
        """The counters that its fault makes wrong, as the product calls them."""
        named: dict[str, tuple[str, ...]] = {
            "engine": ("gr_engine_active",),
            "sm": ("sm_active",),
            "gpu_util": ("gpu_util",),
        }
        named |= {"power": ("power_watts",), "profiling": ("gr_engine_active", "sm_active")}
        if self.fault == "decayed":
            return frozenset(("gr_engine_active",))
        return frozenset(named.get(self.fault.removeprefix("stuck "), ()))


def programs() -> list[dict[str, Any]]:
    """Return the measured programs that do some work."""
    rows = json.loads(_MEASURED.read_text(encoding="utf-8"))["rows"]
    return [row for row in rows if row["engine_active"] > 0.1]


def draw(source: random.Random, number: int = 0) -> DrawnJob:
    """Return a drawn job; half have no fault, and a fault hits a counter that there is."""
    fields, fault = source.choice(FIELD_SETS), ""
    model = source.choice([*MODELS]) if fields == FIELD_SETS[0] else source.choice([*MODELS][:4])
    if source.random() < 0.5:
        known = [
            f"stuck {name}"
            for name in STUCK
            if name in fields or (name == "profiling" and "engine" in fields)
        ]
        known += [name for name in OTHER_FAULTS if name != "decayed" or "engine" in fields]
        fault = source.choice(known)
    boards, kind = source.choice((1, 1, 1, 2, 4)), source.choice(KINDS)
    return DrawnJob(
        number=number,
        kind=kind,
        fault=fault,
        level=source.choice((0.0, 0.0, 0.03, 0.2, source.random(), 1.0, 1.0)),
        faulty_boards=source.randint(1, boards),
        boards=boards,
        model=model,
        fields=fields,
        program=source.randrange(len(programs())),
        duty=source.uniform(0.2, 0.7),
        period_minutes=source.choice(_TURNS if kind == "turns of hours" else (30, 60, 120)),
        holders=source.choice((1,) * 8 + (2, 3)),
        step_seconds=source.choice((300, 900)),
    )  # fmt: skip


@dataclass(frozen=True)
class Truth:
    """What a board does: `means` of 30 s by counter, GPU_UTIL of a moment, power in W, MiB used."""

    times: Values
    means: dict[str, Values]
    util: Values
    power: Values
    used: float


def truth_of(job: DrawnJob, board: int) -> Truth:
    """Return the truth of one board of a job."""
    noise = np.random.default_rng([job.number % TWINS, board, 7])
    times = START + np.arange(0.0, HOURS * 3600, job.step_seconds)
    memory, limit, idle = MODELS[job.model]
    loaded = min(idle * noise.uniform(1.2, 1.75), 0.43 * limit)
    shape = np.zeros(len(times))
    moment = shape
    if job.kind == "steady":
        shape = moment = np.ones(len(times))
    elif job.kind in ("bursts of minutes", "turns of hours"):
        period = 60.0 * job.period_minutes
        shape = moment = ((times - START) % period < job.duty * period).astype(float)
    elif job.kind == "bursts of seconds":
        shape = np.clip(noise.normal(job.duty, 0.1, len(times)), 0.05, 1.0)
        moment = (noise.random(len(times)) < shape).astype(float)
    program = programs()[job.program]
    # Between two kernels GPU_UTIL sees work: it lies between engine activity and 1.
    coarse = program["engine_active"] ** noise.uniform(0.2, 1.0)
    wobble = noise.normal(1.0, 0.02, (3, len(times)))
    at_work = max(0.0, (program["power_ratio"] - _REST_RATIO) / (1 - _REST_RATIO))
    work = loaded + at_work * (limit - loaded)
    rest = loaded if job.kind != "idle" else idle * noise.uniform(0.9, 1.1)
    power = np.minimum((rest + moment * (work - rest)) * wobble[2], limit)
    return Truth(
        times=times,
        means={
            name: np.clip(shape * program[column] * wobble[0], 0, 1)
            for name, column in _COLUMNS.items()
        },
        util=np.clip(np.round(100 * moment * coarse * wobble[1]), 0, 100),
        power=power,
        used=4.0 if job.kind == "idle" else memory * noise.uniform(0.3, 0.9),
    )


def twin_of(job: DrawnJob) -> DrawnJob:
    """Return the job that does the same work and is told without a fault."""
    if job.fault == "board replaced":
        # What the board before did is part of what the job did.
        return replace(job, number=job.number + TWINS, variant=f"{job.variant}, on one board")
    return replace(job, number=job.number + TWINS, fault="", variant="")


def is_visible(job: DrawnJob, board: int) -> bool:
    """Return whether what else the board shows rules out what its faulty counters show.

    They show something far from the truth, for long, and another source tells it.
    """
    if not job.counters:
        return False
    truth, (_memory, limit, idle) = truth_of(job, board), MODELS[job.model]
    shown, counter = (
        0.03 * truth.means["engine"]
        if job.fault == "decayed"
        else np.full(len(truth.times), job.level),
        "engine",
    )
    if job.fault.startswith("stuck "):
        counter = job.fault.removeprefix("stuck ")
    if counter == "power":
        real = truth.power / limit
        told = job.level < 0.15 or job.level > 0.9
        far = (np.abs(np.maximum(shown, idle / limit) - real) > 0.6) & told
        far &= np.abs(job.level - truth.util / 100) > 0.6
        return {"engine", "gpu_util"} <= {*job.fields} and float(far.mean()) > 0.3
    real = (
        truth.util / 100
        if counter == "gpu_util"
        else truth.means["engine" if counter != "sm" else "sm"]
    )
    low, high = real - shown > 0.6, shown - real > 0.6
    low &= (truth.power > 0.6 * limit) | (
        "gpu_util" in job.fields and counter != "gpu_util" and job.level < 0.05
    )
    high &= (truth.power < 1.15 * idle) | ("gpu_util" in job.fields and counter != "gpu_util")
    return float((low | high).mean()) > 0.3


def is_hidden(job: DrawnJob) -> bool:
    """Return whether nothing that the exporter says of a board at work shows the work.

    Its activity counters are all stuck at rest, and it draws no more than a board without work may.
    """
    counters = {*job.fields} & {"engine", "sm", "gpu_util"}
    wrong = {"profiling": {"engine", "sm"}, "decayed": {"engine"}}
    stuck = wrong.get(job.fault.removeprefix("stuck "), {job.fault.removeprefix("stuck ")})
    if not job.works or not counters <= stuck or (job.level > 0.1 and job.fault != "decayed"):
        return False
    limit = MODELS[job.model][1]
    return float((truth_of(job, 0).power > 0.5 * limit).mean()) < 0.1


def series_of(job: DrawnJob) -> Iterator[dict[str, Any]]:
    """Yield the series of a job as entries of a range answer."""
    for board in range(job.boards):
        faulty = job.fault if board < job.faulty_boards else ""
        entries = _of_board(job, board, truth_of(job, board), faulty)
        yield from told_by_exporter(job, board, entries) if faulty else entries


def _of_board(job: DrawnJob, board: int, truth: Truth, fault: str) -> Iterator[dict[str, Any]]:
    labels = {
        "gpu": str(board),
        "UUID": uuid_of(job, board),
        "device": f"nvidia{board}",
        "modelName": job.model,
        "Hostname": f"node-{job.number}",
    }
    holders: list[dict[str, str]] = [
        {"namespace": "drawn", "pod": pod, "container": "main"}
        | ({"vgpu": str(number)} if job.holders > 1 else {})
        for number, pod in enumerate(job.pods)
    ]
    places = np.arange(len(truth.times))
    if fault == "gaps":
        noise = np.random.default_rng([job.number, board, 9])
        places = places[noise.random(len(places)) > 0.15]
    bare = {"labels missing": places[::3], "two exporters": places}.get(fault, places[:0])
    named = np.setdiff1d(places, bare) if fault == "labels missing" else places
    for name, values in readings_of(job, board, truth, fault).items():
        for more, where in (*((holder, named) for holder in holders), ({}, bare)):
            if len(where):
                metric = {"__name__": name, **labels, **more}
                pairs = zip(truth.times[where], values[where], strict=True)
                yield {"metric": metric, "values": [[at, f"{value:.6f}"] for at, value in pairs]}


def uuid_of(job: DrawnJob, board: int) -> str:
    """Return the UUID of a board of a job."""
    return f"GPU-{job.number:08x}-0000-4000-8000-{board:012x}"


def readings_of(job: DrawnJob, board: int, truth: Truth, fault: str) -> dict[str, Values]:
    """Return what the exporter shows of a board by metric, with the fault in it."""
    memory, limit, idle = MODELS[job.model]
    length = len(truth.times)
    readings = {_PROFILING[name]: truth.means[name] for name in _PROFILING if name in job.fields}
    if "gpu_util" in job.fields:
        readings[GPU_UTIL] = truth.util
    if "power" in job.fields:
        readings[_POWER] = truth.power
    readings["DCGM_FI_DEV_FB_USED"] = np.full(length, truth.used)
    readings["DCGM_FI_DEV_FB_FREE"] = np.full(length, memory - truth.used)
    what = fault.removeprefix("stuck ")
    if fault == "decayed":
        readings[_PROFILING["engine"]] = 0.03 * truth.means["engine"]
    elif fault == "spikes":
        name = GPU_UTIL if "gpu_util" in job.fields else _PROFILING["engine"]
        noise = np.random.default_rng([job.number, board, 8])
        wrong = noise.random(length) < 0.02
        readings[name] = np.where(wrong, noise.choice([127, 4294967295, 808334905]), readings[name])
    elif fault.startswith("stuck "):
        stuck = {"profiling": [*_PROFILING.values()], "gpu_util": [GPU_UTIL], "power": [_POWER]}
        level = {"gpu_util": round(100 * job.level), "power": max(idle, job.level * limit)}
        for name in stuck.get(what, [_PROFILING.get(what, "")]):
            if name in readings:
                readings[name] = np.full(length, level.get(what, job.level), dtype=float)
    return readings


def write_answer(jobs: Sequence[DrawnJob], path: Path) -> None:
    """Write what a Prometheus answers of these jobs."""
    result = [entry for job in jobs for entry in series_of(job)]
    answer = {"status": "success", "data": {"resultType": "matrix", "result": result}}
    path.write_text(json.dumps([answer]), encoding="utf-8")
