"""The GPUs that a job may be placed on: nodes with their type, and what of them is free."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from enum import IntEnum
from typing import TYPE_CHECKING

from data.boards.unplanned_jobs import SCHEDULER_LAG, occupied
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.facts.cluster_names import cluster_in
from data.facts.fleet import Gpu, Node
from planner.fleet.occupied_boards import is_unexplained_work, short_name, taken_boards
from planner.memory.estimate.training_plans import GpuType

if TYPE_CHECKING:
    from data.store import StoreReader

_RECENT = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Taint:
    """A mark of a Kubernetes node that keeps away pods which do not tolerate it."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionNode:
    """One node. `word` is what the cluster calls its GPUs: a gres type, a product label.

    `cpus` and `memory_mib` are what jobs with GPUs can share on the whole node, None when not
    known. A job that goes there must tolerate its `taints`.
    """

    name: str
    gpu_type: str
    word: str
    gpus: int
    free_gpus: int
    cpus: float | None = None
    memory_mib: float | None = None
    takes_jobs: bool = True
    taints: tuple[Taint, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmissionFleet:
    """The nodes with GPUs of known models, and where the knowledge is from.

    `unknown` are the GPU names that the catalogue does not know: nothing can be planned on them.
    `default_hours` is the time limit of a job that states none, `max_hours` the longest that one
    may state; None where there is none. `closed` says why the cluster starts no job on these nodes
    now, '' where it does. `default_memory` is the host memory of a job that asks for none, '' where
    nothing bounds it.
    """

    source: str
    nodes: tuple[SubmissionNode, ...]
    unknown: tuple[str, ...] = ()
    default_hours: float | None = None
    max_hours: float | None = None
    closed: str = ""
    default_memory: str = ""

    @property
    def usable(self) -> tuple[SubmissionNode, ...]:
        """The nodes that take jobs."""
        return tuple(node for node in self.nodes if node.takes_jobs and node.gpus)

    @property
    def gpus(self) -> int:
        """GPUs on nodes that take jobs."""
        return sum(entry.gpus for entry in self.usable)

    def gpu_types(self, catalogue: GpuCatalogue) -> tuple[GpuType, ...]:
        """Return the types on offer, each with the GPUs of its largest node."""
        largest: dict[str, int] = {}
        for node in self.usable:
            largest[node.gpu_type] = max(node.gpus, largest.get(node.gpu_type, 0))
        return tuple(
            GpuType.of(catalogue.get(name), gpus_per_node=count)
            for name, count in sorted(largest.items())
        )


class FleetRoom(IntEnum):
    """Room of a fleet for a plan, in the order in which plans are offered."""

    FREE = 0
    BUSY = 1
    NEVER = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class RoomAnswer:
    """Room of the fleet for a plan, also in words."""

    room: FleetRoom
    text: str


FLEET_UNKNOWN = RoomAnswer(room=FleetRoom.FREE, text="fleet unknown")


def catalogue_types(catalogue: GpuCatalogue) -> tuple[GpuType, ...]:
    """Return every type of the catalogue, as nodes of eight."""
    return tuple(GpuType.of(model) for model in catalogue)


def fleet_of_store(
    reader: "StoreReader", catalogue: GpuCatalogue, *, cluster: str = ""
) -> SubmissionFleet:
    """Return the fleet as the store knows it: boards that telemetry saw, else schedulers' nodes.

    Boards cut by MIG are left out: a training run takes whole ones. So are other clusters: jobs are
    submitted to the main one.
    """
    latest = reader.latest_sample_at()
    boards = reader.gpus(start=latest - _RECENT, end=latest) if latest is not None else ()
    boards = tuple(board for board in boards if cluster_in(board.node) == cluster)
    nodes = tuple(node for node in reader.nodes() if node.cluster == cluster)
    told_at = min((node.seen_at for node in nodes), default=None)
    jobs = () if told_at is None else reader.jobs(seen_since=told_at - SCHEDULER_LAG)
    allocated = occupied(jobs, (), nodes)
    described = {short_name(node.name): node for node in nodes}
    rows = list(_from_boards(boards, described, allocated))
    hosts = {short_name(node.name) for node in rows}
    rest = [node for host, node in described.items() if host not in hosts]
    return fleet_of([*rows, *_from_schedulers(rest, allocated)], catalogue, source="the store")


def fleet_of(
    nodes: Iterable[SubmissionNode], catalogue: GpuCatalogue, *, source: str
) -> SubmissionFleet:
    """Return the fleet of nodes whose GPU model the catalogue knows."""
    usable, unknown = [], set()
    for node in nodes:
        if catalogue.find(node.gpu_type) is not None:
            usable.append(node)
        elif node.gpus:
            unknown.add(node.word or node.gpu_type or "without a name")
    return SubmissionFleet(
        source=source,
        nodes=tuple(sorted(usable, key=lambda submission_node: submission_node.name)),
        unknown=tuple(sorted(unknown)),
    )


def _from_boards(
    boards: Iterable[Gpu], described: Mapping[str, Node], allocated: Mapping[tuple[str, str], int]
) -> Iterable[SubmissionNode]:
    uuids_by_place: dict[tuple[str, str], set[str]] = {}
    busy = []
    for board in boards:
        if not board.mig_instance:
            uuids_by_place.setdefault((board.node, board.gpu_model), set()).add(board.gpu_uuid)
            if board.job_id or is_unexplained_work(board):
                busy.append(board)
    places = [(*place, len(uuids)) for place, uuids in uuids_by_place.items()]
    occupied_by = taken_boards(places, busy, allocated)
    for (name, model), uuids in sorted(uuids_by_place.items()):
        node = described.get(short_name(name))
        yield SubmissionNode(
            name=name,
            gpu_type=model,
            word=model,
            gpus=len(uuids),
            free_gpus=len(uuids) - occupied_by[name, model],
            cpus=None if node is None else node.cpus,
            memory_mib=None if node is None else node.memory_mib,
            takes_jobs=node is None or node.schedulable,
        )


def _from_schedulers(
    nodes: Iterable[Node], allocated: Mapping[tuple[str, str], int]
) -> Iterable[SubmissionNode]:
    nodes = list(nodes)
    places = [(node.name, node.gpu_model, node.gpu_count) for node in nodes]
    occupied_by = taken_boards(places, (), allocated)
    for node in nodes:
        yield SubmissionNode(
            name=node.name,
            gpu_type=node.gpu_model,
            word=node.gpu_model,
            gpus=node.gpu_count,
            free_gpus=node.gpu_count - occupied_by[node.name, node.gpu_model],
            cpus=node.cpus,
            memory_mib=node.memory_mib,
            takes_jobs=node.schedulable,
        )
