"""The fleet: GPUs on nodes, and the completeness of each source."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from data.base.clock import require_utc
from data.facts.cluster_names import cluster_in, name_in_cluster
from data.facts.gpu_resources import REPLICAS_LABEL, SHARING_LABEL
from data.facts.jobs import Platform


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One board or one MIG instance (`mig_instance` != '') as last seen.

    `co_holders` are the jobs that held it at its newest reading beside `job_id`.
    `unexplained_at`: when an unidentified holder last used it, or may have.
    """

    gpu_uuid: str
    mig_instance: str
    mig_profile: str
    node: str
    gpu_model: str
    memory_total_mib: float | None
    job_id: str
    last_seen_at: datetime
    unexplained_at: datetime | None = None
    co_holders: tuple[str, ...] = ()

    @property
    def holders(self) -> tuple[str, ...]:
        """All jobs that held it at its newest reading."""
        return (self.job_id, *self.co_holders) if self.job_id else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardShare:
    """Boards that a job's devices amount to, and the other jobs on the same ones.

    A device of n jobs is 1/n of each, as in the statement of cost. `others` are these jobs by id.
    `why` says in words why the job's own change is not its own alone.
    """

    boards: float
    others: tuple[str, ...] = ()
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class MigLayout:
    """A MIG partitioning of all boards of a node, by the name that its MIG manager knows.

    `boards` are (number of boards, slices of each), the slices as (profile, count) pairs; boards
    without slices stay whole.
    """

    name: str
    boards: tuple[tuple[int, tuple[tuple[str, int], ...]], ...]

    @property
    def whole(self) -> int:
        """The number of boards that stay whole."""
        return sum(number for number, slices in self.boards if not slices)

    @property
    def cut(self) -> int:
        """The number of boards that are cut."""
        return sum(number for number, slices in self.boards if slices)

    @property
    def slices(self) -> dict[str, int]:
        """The number of slices of each profile on the whole node."""
        count_by_profile: dict[str, int] = {}
        for number, slices in self.boards:
            for profile, count in slices:
                count_by_profile[profile] = count_by_profile.get(profile, 0) + number * count
        return count_by_profile

    def describe(self) -> str:
        """Return its name and its slices in words."""
        slices = ", ".join(f"{count} × {profile}" for profile, count in sorted(self.slices.items()))
        return f"{self.name}: {slices}"


@dataclass(frozen=True, slots=True, kw_only=True)
class MigManager:
    """The manager that cuts a node's boards: it obeys the layout named by a label.

    `layout` is that name, `state` what the manager says of its work and `strategy` how slices are
    offered, each '' where nobody says. `layouts` are those that `source` (a ConfigMap,
    namespace/name) offers for the node's boards; empty where they are not known.
    """

    layout: str
    state: str
    strategy: str
    source: str = ""
    layouts: tuple[MigLayout, ...] = ()

    def offered(self, name: str) -> MigLayout | None:
        """Return the layout of that name, None where it is not offered."""
        return next((layout for layout in self.layouts if layout.name == name), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One node as its scheduler describes it.

    `gpu_model` is the catalogue's name, or the scheduler's own word (a Slurm gres type) when the
    catalogue does not know it. `mig_instances` are (profile, count) pairs that can be asked for.
    `mig_manager` is None where none is known. `free_cpus` and `free_memory_mib` are what it has
    left beside all that runs there, None where nobody says.
    """

    name: str
    gpu_model: str
    gpu_count: int
    mig_instances: tuple[tuple[str, int], ...] = ()
    mig_manager: MigManager | None = None
    cpus: int | None = None
    memory_mib: float | None = None
    free_cpus: float | None = None
    free_memory_mib: float | None = None
    partitions: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    state: str = ""
    reason: str = ""
    schedulable: bool = True
    seen_at: datetime
    source: str

    @property
    def cluster(self) -> str:
        """The cluster that it belongs to, '' for the store's own."""
        return cluster_in(self.name)

    @property
    def board_shares(self) -> int:
        """The shares in which each of its boards is offered by time slicing, 0 of whole boards."""
        labels = dict(feature.split("=", 1) for feature in self.features if "=" in feature)
        count = labels.get(REPLICAS_LABEL, "")
        slices = labels.get(SHARING_LABEL) == "time-slicing"
        return int(count) if slices and count.isdecimal() and len(count) < 4 else 0

    @property
    def platform(self) -> Platform:
        """Return kind of its scheduler: sources are called `kubernetes NAME` and `slurm URL`."""
        word = name_in_cluster(self.source).partition(" ")[0]
        return Platform(word) if word in set(Platform) else Platform.UNKNOWN


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The fleet as the store knows it at `as_of`.

    `kept_on` are the nodes that a scheduler needs on for jobs that are not planned, `occupied` the
    boards by (node, GPU model or '') that such jobs hold. `shares` are the jobs that hold shares of
    boards, by id.
    """

    as_of: datetime
    gpus: tuple[Gpu, ...]
    nodes: tuple[Node, ...] = ()
    kept_on: frozenset[str] = frozenset()
    occupied: Mapping[tuple[str, str], int] = field(default_factory=dict)
    shares: Mapping[str, BoardShare] = field(default_factory=dict)

    def __post_init__(self) -> None:
        require_utc("as_of", self.as_of)

    def boards_by_model(self) -> dict[str, int]:
        """Return the number of distinct boards per GPU model."""
        boards: dict[str, set[str]] = {}
        for gpu in self.gpus:
            boards.setdefault(gpu.gpu_model, set()).add(gpu.gpu_uuid)
        return {model: len(uuids) for model, uuids in sorted(boards.items())}


class SourceState(StrEnum):
    """The outcome of one source in one cycle."""

    RAN = "ran"
    SKIPPED = "skipped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceReport:
    """The yield of one source in one cycle, and its gaps.

    `complete_until`: everything up to then was asked for and answered; the next collection starts
    there. None: all of the window, when the source ran. `recorded`: a file that was imported.
    `holds_from` is when the readings of a source began that was asked for its past, `read_from`
    how far back they were read; None of other sources.
    """

    source: str
    state: SourceState
    reason: str = ""
    samples: int = 0
    dropped: tuple[tuple[str, int], ...] = ()
    completeness_ratio: float | None = None
    warnings: tuple[str, ...] = ()
    window_start: datetime | None
    window_end: datetime | None
    complete_until: datetime | None = None
    recorded: bool = False
    holds_from: datetime | None = None
    read_from: datetime | None = None

    @property
    def past(self) -> str:
        """The days read of those that the source holds, in words; '' where nobody asked."""
        if self.read_from is None or self.holds_from is None or self.window_end is None:
            return ""
        read = self.window_end - max(self.read_from, self.holds_from)
        days = [part / timedelta(days=1) for part in (read, self.window_end - self.holds_from)]
        return f"{days[0]:.1f} of {days[1]:.1f} d"


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """The content of a store without any live source: its imported sources, its newest sample.

    `sequence` counts what was imported: it grows by an import that leaves the end where it is.
    """

    names: tuple[str, ...]
    end: datetime
    sequence: int
