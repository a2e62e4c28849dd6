"""Drawn layouts of jobs on boards, and what exporters and schedulers say of them.

The truth is who is on which board. What is written of it is what each way of sharing tells: labels
of the exporter (one series a replica, the name of one pod, or none), lists of a Kubernetes API,
answers of Slurm.
"""

import random
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

from beds.board_readings import END, FIRST, board_series, pod_labels, write_answer
from beds.kubernetes_lists import CLAIMS, GPU, NODES, PODS, SLICES, node, pod, served

from collectors.kubernetes.client import KubernetesClient
from collectors.kubernetes.jobs import KubernetesCollector
from collectors.readings.exposition_text import read_prometheus_json
from collectors.shared.collector import Window
from collectors.slurm.backend import SlurmAnswers
from collectors.slurm.jobs import SlurmCollector
from collectors.slurm.records import read_node, read_queue_job
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected

MODEL = "H100-SXM5-80GB"
NAMESPACE = "ml"
STARTED = "2026-02-28T11:00:00Z"
PROFILES = ("3g.40gb", "5g.55gb")
"""Halves of a board: the second is none of the catalogue's profiles."""
WAYS = {
    "none": ("whole", "replicas", "slices"),
    "kubernetes": ("whole", "replicas", "plugin", "hami", "kai", "claim", "slices"),
    "slurm": ("whole", "shard", "mps"),
}
"""How the boards of a node may be held, by scheduler."""


@dataclass(frozen=True)
class Scenario:
    """A fleet: a way of sharing for each node, and from which seed jobs are put on its boards."""

    scheduler: str = "none"
    ways: tuple[str, ...] = ("whole",)
    boards: int = 1
    most: int = 2
    percent: float = 40.0
    nameless: bool = False
    several: bool = False
    seed: int = 0
    profile: str = PROFILES[0]


def draw(source: random.Random) -> Scenario:
    """Return a scenario."""
    scheduler = source.choice(list(WAYS))
    return Scenario(
        scheduler=scheduler,
        ways=tuple(source.choice(WAYS[scheduler]) for _ in range(source.randint(1, 3))),
        boards=source.randint(1, 4),
        most=source.randint(2, 5),
        percent=source.choice((0.0, 3.0, 40.0, 97.0)),
        nameless=source.random() < 0.3,
        several=source.random() < 0.4,
        seed=source.randint(0, 999),
        profile=source.choice(PROFILES),
    )


@dataclass(slots=True)
class Board:
    """A board of a node: its jobs, of instances where it is cut; `works` for nobody known."""

    node: str
    way: str
    index: int
    uuid: str
    profile: str
    jobs: list[str] = field(default_factory=list)
    works: bool = False

    @property
    def is_cut(self) -> bool:
        """Whether it has MIG instances: the last board of a node with slices."""
        return self.way == "slices" and self.index > 0

    @property
    def is_sure(self) -> bool:
        """Whether anybody tells who is on it."""
        return self.way != "plugin"


def layout_of(scenario: Scenario) -> list[Board]:
    """Return the boards with the jobs on them: the truth."""
    source, found, number = random.Random(scenario.seed), [], 0  # noqa: S311 a draw, no secret
    for place, way in enumerate(scenario.ways):
        own: list[str] = []
        for index in range(max(scenario.boards, 2 if way == "slices" else 1)):
            uuid = f"GPU-{place:04x}{index:04x}-0000-4000-8000-0123456789ab"
            board = Board(f"n{place}", way, index, uuid, scenario.profile)
            most = 1 if way == "whole" or (way == "slices" and not board.is_cut) else scenario.most
            count = source.randint(0, 2 if board.is_cut else most)
            for _ in range(count):
                again = scenario.several and way in ("whole", "replicas", "slices") and own
                if again and own[-1] not in board.jobs and source.random() < 0.5:
                    board.jobs.append(own[-1])
                    continue
                number += 1
                own.append(f"j{number}")
                board.jobs.append(own[-1])
            board.works = scenario.nameless and not board.jobs and way == "whole"
            found.append(board)
    return found


def job_id(scenario: Scenario, name: str) -> str:
    """Return what the product calls a job."""
    if scenario.scheduler == "slurm":
        return f"slurm:{name[1:]}"
    kind = "pod/" if scenario.scheduler == "kubernetes" else ""
    return f"{NAMESPACE}/{kind}{name}"


def shares_of(scenario: Scenario, boards: list[Board]) -> dict[str, float]:
    """Return the boards that each job has by the truth: 1/n of a board of n, half of one cut."""
    found: Counter[str] = Counter()
    for board in boards:
        for name in board.jobs:
            found[job_id(scenario, name)] += 0.5 if board.is_cut else 1 / len(board.jobs)  # type: ignore[assignment]
    return dict(found)


def facts_of(scenario: Scenario, boards: list[Board], folder: Path) -> Iterator[Collected]:
    """Yield what telemetry and the scheduler tell of the boards."""
    series = [entry for board in boards for entry in _readings(scenario, board)]
    path = write_answer(folder / "readings.json", series)
    yield read_prometheus_json(path, load_gpu_catalogue())
    window = Window(start=END - timedelta(hours=25), end=END)
    if scenario.scheduler == "kubernetes":
        with served(_lists(boards), folder) as settings:
            client = KubernetesClient(settings)
            yield KubernetesCollector(client, load_gpu_catalogue()).collect(window)
    if scenario.scheduler == "slurm":
        answers = _Saying(_slurm(boards))
        models = {"h100": MODEL}
        yield SlurmCollector(answers, models, load_gpu_catalogue()).collect(window)


def _readings(scenario: Scenario, board: Board) -> Iterator[dict[str, Any]]:
    """Yield the series of a board with the labels that its way of sharing gives them."""
    percent = scenario.percent if board.jobs else 80.0 if board.works else 0.0
    labels: list[dict[str, str]] = [{}]
    if board.is_cut:
        labels = [
            {"GPU_I_ID": str(number + 1), "GPU_I_PROFILE": board.profile}
            | pod_labels(name, NAMESPACE)
            for number, name in enumerate(board.jobs)
        ]
        labels += [
            {"GPU_I_ID": str(number + 1), "GPU_I_PROFILE": board.profile}
            for number in range(len(board.jobs), 2)
        ]
    elif board.way == "replicas":
        labels = [
            {"vgpu": str(number)} | pod_labels(name, NAMESPACE)
            for number, name in enumerate(board.jobs)
        ] + [{"vgpu": str(len(board.jobs))}]
    elif board.way == "kai" and board.jobs:
        labels = [pod_labels(f"reserve-{board.node}-{board.index}", "reservations")]
    elif board.jobs and scenario.scheduler != "slurm" and board.way != "hami":
        labels = [pod_labels(board.jobs[-1], NAMESPACE)]
    for own in labels:
        used = percent if not board.is_cut or "pod" in own else 0.0
        yield from board_series(
            board.uuid, board.node, MODEL, index=board.index, percent=used, labels=own
        )


def _lists(boards: list[Board]) -> dict[str, list[Any]]:
    """Return the lists of a Kubernetes API."""
    nodes, pods, claims, slices = [], [], [], []
    for name in dict.fromkeys(board.node for board in boards):
        here = [board for board in boards if board.node == name]
        nodes.append(_node(name, here))
        held: dict[str, list[Board]] = {}
        for board in here:
            for job in board.jobs:
                held.setdefault(job, []).append(board)
        for job, own in held.items():
            pods.append(_pod(job, own))
        pods += [_reservation(board) for board in here if board.way == "kai" and board.jobs]
        if here[0].way == "claim":
            slices.append(_slice(name, here))
            claims += [_claim(board) for board in here if board.jobs]
    return {NODES: nodes, PODS: pods, CLAIMS: claims, SLICES: slices}


def _node(name: str, boards: list[Board]) -> Any:
    way, whole = boards[0].way, sum(not board.is_cut for board in boards)
    made = node(name, str(whole * 8 if way in ("replicas", "plugin") else whole))
    if way in ("replicas", "plugin"):
        made["metadata"]["labels"] |= {
            "nvidia.com/gpu.sharing-strategy": "time-slicing",
            "nvidia.com/gpu.count": str(whole),
        }
    cut = len(boards) - whole
    if cut:
        made["status"]["allocatable"] |= {f"nvidia.com/mig-{boards[0].profile}": str(2 * cut)}
    return made


def _pod(job: str, boards: list[Board]) -> Any:
    way, name = boards[0].way, boards[0].node
    whole = sum(not board.is_cut for board in boards)
    limits = ({GPU: str(whole)} if whole else {}) | (
        {f"nvidia.com/mig-{boards[0].profile}": str(len(boards) - whole)}
        if len(boards) > whole
        else {}
    )
    if way == "hami":
        limits |= {"nvidia.com/gpumem-percentage": "20"}
    made = pod(job, at=name, limits={} if way in ("kai", "claim") else limits, startTime=STARTED)
    if way == "hami":
        made["metadata"]["annotations"] = {
            "hami.io/vgpu-devices-allocated": ":".join(
                f"{board.uuid},NVIDIA,16000,20" for board in boards
            )
        }
    if way == "kai":
        made["metadata"]["annotations"] = {"gpu-fraction": "0.2"}
        made["metadata"]["labels"] = {"runai-gpu-group": boards[0].uuid}
        made["spec"]["schedulerName"] = "kai-scheduler"
    if way == "claim":
        claim = f"{name}-{boards[0].index}"
        made["spec"]["resourceClaims"] = [{"name": "g", "resourceClaimName": claim}]
    return made


def _reservation(board: Board) -> Any:
    made = pod(
        f"reserve-{board.node}-{board.index}", at=board.node, limits={GPU: "1"}, startTime=STARTED
    )
    made["metadata"] |= {
        "namespace": "reservations",
        "annotations": {"run.ai/reserve_for_gpu_index": board.uuid},
        "labels": {"runai-gpu-group": board.uuid},
    }
    return made


def _claim(board: Board) -> Any:
    result = {"driver": "gpu.nvidia.com", "pool": board.node, "device": f"gpu-{board.index}"}
    return {
        "metadata": {"name": f"{board.node}-{board.index}", "namespace": NAMESPACE},
        "spec": {},
        "status": {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": name} for name in board.jobs],
        },
    }


def _slice(name: str, boards: list[Board]) -> Any:
    devices = [
        {"name": f"gpu-{board.index}", "attributes": {"uuid": {"string": board.uuid}}}
        for board in boards
    ]
    spec = {"driver": "gpu.nvidia.com", "nodeName": name, "pool": {"name": name}}
    return {"metadata": {"name": f"slice-{name}"}, "spec": spec | {"devices": devices}}


@dataclass(frozen=True, slots=True)
class _Saying:
    """A Slurm that has these answers."""

    said: SlurmAnswers
    name: str = "slurm"

    def answers(self, _window: Window) -> SlurmAnswers:
        """The answers."""
        return self.said


def _slurm(boards: list[Board]) -> SlurmAnswers:
    """Return the answers of a Slurm: 22.05 names indices, later releases parts of each board."""
    nodes, queue = [], []
    for name in dict.fromkeys(board.node for board in boards):
        here = [board for board in boards if board.node == name]
        way = here[0].way
        each = {"shard": 8, "mps": 100}.get(way, 0)
        gres = f"gpu:h100:{len(here)}" + (f",{way}:h100:{each * len(here)}" if each else "")
        held: dict[str, list[Board]] = {}
        for board in here:
            for job in board.jobs:
                held.setdefault(job, []).append(board)
        nodes.append({"name": name, "state": "mixed", "gres": gres, "partitions": ["gpu"]})
        queue += [_slurm_job(job, own, way, each, len(here)) for job, own in held.items()]
    return SlurmAnswers(
        queue=tuple(read_queue_job(entry) for entry in queue),
        nodes=tuple(read_node(entry) for entry in nodes),
        past=None,
        warnings=(),
        dropped=Counter(),
    )


def _slurm_job(job: str, boards: list[Board], way: str, each: int, count: int) -> Mapping[str, Any]:
    indices = ",".join(str(board.index) for board in boards)
    detail = f"gpu:h100:{len(boards)}(IDX:{indices})"
    if each and int(job[1:]) % 2:
        detail = f"{way}:1(IDX:{indices})"
    elif each:
        mine = {board.index for board in boards}
        parts = ",".join(f"{int(index in mine)}/{each}" for index in range(count))
        detail = f"{way}:h100:1({parts})"
    return {
        "job_id": int(job[1:]),
        "job_state": "RUNNING",
        "name": job,
        "user_name": "u",
        "partition": "gpu",
        "nodes": boards[0].node,
        "gres_detail": [detail],
        "tres_per_node": f"gres/{way}:1" if each else f"gres/gpu:{len(boards)}",
        "start_time": FIRST - 3600,
    }
