"""Layout of the simulated fleet: nodes, boards, MIG instances and their tenants.

Everything follows from the seed. A tenant is a recurring job on a fixed set of devices: training
runs come and go, inference and held-but-idle jobs stay.
"""

from dataclasses import dataclass

import numpy as np

from data.facts.identifiers import digest_of
from data.facts.jobs import Platform, WorkloadKind

BOARDS_PER_NODE = 8
_NODE_MODELS = ("H100-SXM5-80GB", "A100-SXM4-80GB", "A100-SXM4-80GB", "L40S-48GB")
_MEMORY_MIB = {"H100-SXM5-80GB": 81_559, "A100-SXM4-80GB": 81_920, "L40S-48GB": 46_068}
POWER_WATTS = {
    "H100-SXM5-80GB": (75.0, 700.0),
    "A100-SXM4-80GB": (62.0, 400.0),
    "L40S-48GB": (35.0, 350.0),
}
"""Idle and largest board power in W (see the catalogue's README)."""
_MIG_MODELS = ("H100-SXM5-80GB", "A100-SXM4-80GB")
_MIG_LAYOUT = (("1", "3g.40gb", 40_192, 3 / 7), ("2", "2g.20gb", 19_968, 2 / 7))
_MIG_LAST = ("3", "1g.10gb", 9_728, 1 / 7)
_TEAMS = ("vision", "search", "speech", "ranking", "foundation", "robotics")
_TRAINING = ("pretrain", "finetune", "distill", "reward-model")
_INFERENCE = ("chat", "embedder", "ranker", "captioner", "moderation")


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedDevice:
    """A board, or a MIG instance of one; `fraction` is its share of the board's compute."""

    gpu_uuid: str
    board: int
    node: str
    index: int
    gpu_model: str
    memory_total_mib: float
    mig_instance: str = ""
    mig_profile: str = ""
    fraction: float = 1.0

    @property
    def key(self) -> str:
        """The name of the device: the board's UUID, with its instance where it is one."""
        return f"{self.gpu_uuid}/{self.mig_instance}" if self.mig_instance else self.gpu_uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A recurring job. Times in s; `level` is its utilization when it works, 0..1.

    `period_seconds` 0 means that it never stops; otherwise a run lasts `run_seconds` of a period.
    One that runs `once` was submitted: it has no devices before and after its only run.
    """

    number: int
    name: str
    team: str
    platform: Platform
    kind: WorkloadKind
    devices: tuple[SimulatedDevice, ...]
    level: float
    memory_ratio: float
    idle: bool = False
    period_seconds: int = 0
    run_seconds: int = 0
    offset_seconds: int = 0
    epoch_seconds: int = 3600
    once: bool = False

    def job_id(self, run: int) -> str:
        """Return the job id of one run."""
        if self.platform is Platform.SLURM:
            return f"slurm:{100_000 + self.number * 1000 + run % 1000}"
        return f"{self.team}/{self.name}-{run}"


def lay_out_devices(seed: int, nodes: int) -> tuple[SimulatedDevice, ...]:
    """Return every device of the fleet; two boards of every eighth node are cut by MIG."""
    devices: list[SimulatedDevice] = []
    for node in range(nodes):
        model = _NODE_MODELS[node % len(_NODE_MODELS)]
        name = f"{model.partition('-')[0].lower()}-{node:04d}"
        for index in range(BOARDS_PER_NODE):
            text = digest_of(["board", seed, node, index])
            uuid = f"GPU-{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:32]}"
            board = SimulatedDevice(
                gpu_uuid=uuid,
                board=node * BOARDS_PER_NODE + index,
                node=name,
                index=index,
                gpu_model=model,
                memory_total_mib=float(_MEMORY_MIB[model]),
            )
            cut = node % 8 == 1 and index >= BOARDS_PER_NODE - 2
            devices.extend(slices_of(board) if cut else [board])
    return tuple(devices)


def slices_of(board: SimulatedDevice) -> list[SimulatedDevice]:
    """Return the instances that a board is cut into; none where its model cannot be cut."""
    if board.gpu_model not in _MIG_MODELS:
        return []
    return [
        SimulatedDevice(
            gpu_uuid=board.gpu_uuid,
            board=board.board,
            node=board.node,
            index=board.index,
            gpu_model=board.gpu_model,
            memory_total_mib=float(memory),
            mig_instance=instance,
            mig_profile=profile,
            fraction=fraction,
        )
        for instance, profile, memory, fraction in (*_MIG_LAYOUT, _MIG_LAST)
    ]


def settle_tenants(seed: int, devices: tuple[SimulatedDevice, ...]) -> tuple[Tenant, ...]:
    """Return tenants: about half of the boards train, a fifth serve, some idle, some are free."""
    rng = np.random.default_rng([seed, 1])
    tenants: list[Tenant] = []
    by_node: dict[str, list[SimulatedDevice]] = {}
    for device in devices:
        by_node.setdefault(device.node, []).append(device)
    for node_devices in by_node.values():
        boards = [device for device in node_devices if not device.mig_instance]
        for device in node_devices:
            if device.mig_instance and rng.random() < 0.7:
                tenants.append(_serving(len(tenants), (device,), rng, oversized=False))
        while boards:
            draw = rng.random()
            if draw < 0.38:
                size = min(len(boards), int(rng.choice([1, 2, 4, 8], p=[0.25, 0.33, 0.3, 0.12])))
                tenants.append(_training(len(tenants), tuple(boards[:size]), rng))
            elif draw < 0.68:
                size = min(len(boards), int(rng.choice([1, 2], p=[0.8, 0.2])))
                oversized = bool(rng.random() < 0.65)
                tenants.append(
                    _serving(len(tenants), tuple(boards[:size]), rng, oversized=oversized)
                )
            elif draw < 0.82:
                size = 1
                tenants.append(_idle(len(tenants), (boards[0],), rng))
            else:
                size = min(len(boards), 2)
            boards = boards[size:]
    return tuple(tenants)


def _training(
    number: int, devices: tuple[SimulatedDevice, ...], rng: np.random.Generator
) -> Tenant:
    period = int(rng.integers(20, 90)) * 3600
    return Tenant(
        number=number,
        name=f"{rng.choice(_TRAINING)}-{number}",
        team=str(rng.choice(_TEAMS)),
        platform=Platform.SLURM if rng.random() < 0.7 else Platform.KUBERNETES,
        kind=WorkloadKind.TRAINING,
        devices=devices,
        level=float(rng.uniform(0.62, 0.93)),
        memory_ratio=float(rng.uniform(0.35, 0.92)),
        period_seconds=period,
        run_seconds=int(period * rng.uniform(0.85, 0.97)),
        offset_seconds=int(rng.integers(0, period)),
        epoch_seconds=int(rng.integers(40, 150)) * 60,
    )


def _serving(
    number: int, devices: tuple[SimulatedDevice, ...], rng: np.random.Generator, *, oversized: bool
) -> Tenant:
    return Tenant(
        number=number,
        name=f"{rng.choice(_INFERENCE)}-{number}",
        team=str(rng.choice(_TEAMS)),
        platform=Platform.KUBERNETES,
        kind=WorkloadKind.INFERENCE,
        devices=devices,
        level=float(rng.uniform(0.08, 0.22) if oversized else rng.uniform(0.45, 0.8)),
        memory_ratio=float(rng.uniform(0.05, 0.2) if oversized else rng.uniform(0.4, 0.8)),
        offset_seconds=int(rng.integers(0, 6 * 3600)),
    )


def _idle(number: int, devices: tuple[SimulatedDevice, ...], rng: np.random.Generator) -> Tenant:
    return Tenant(
        number=number,
        name=f"notebook-{number}",
        team=str(rng.choice(_TEAMS)),
        platform=Platform.KUBERNETES,
        kind=WorkloadKind.UNKNOWN,
        devices=devices,
        level=0.0,
        memory_ratio=float(rng.uniform(0.02, 0.25)),
        idle=True,
    )
