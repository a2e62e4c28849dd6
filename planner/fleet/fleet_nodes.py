"""The fleet of a plan: nodes with their boards, the homes of jobs, and their reach."""

from collections.abc import Mapping
from dataclasses import dataclass

from data.facts.fleet import MigManager
from data.facts.jobs import Platform


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetNode:
    """One node, or the part of one that has boards of this model.

    `allocated` boards belong to jobs now, `occupied` ones to work that is not planned. Not `open`:
    only jobs that are here may stay. `away` [slots] marks maintenance. CPUs and memory are what
    jobs can share, None where no scheduler said. `schedulers` are the sources that describe it,
    `platform` that of a node of one scheduler, `known_as` that scheduler's name for it: '' where
    nobody can be asked to change the node as a whole. `foreign`: something runs on it that none of
    them explains or that has no readings, or jobs that wait may start there. `mig_profiles` are the
    slices that can be asked for, `mig_manager` cuts its boards, each of which is
    offered in so many `shares`, 0 of whole ones. `nameable`: its schedulers know its
    model, so that a job can ask for it. Not `read`: nothing is known of what its boards do.
    """

    name: str
    gpu_model: str
    gpus: int
    cpus: float | None = None
    memory_mib: float | None = None
    partitions: tuple[str, ...] = ()
    open: bool = True
    allocated: int = 0
    occupied: int = 0
    away: tuple[bool, ...] = ()
    observed: bool = True
    schedulers: tuple[str, ...] = ()
    platform: Platform = Platform.UNKNOWN
    known_as: str = ""
    foreign: bool = False
    mig_profiles: frozenset[str] = frozenset()
    mig_manager: MigManager | None = None
    shares: int = 0
    nameable: bool = True
    read: bool = True

    @property
    def unsure(self) -> bool:
        """Return whether its free GPUs may be in use: it is on, and moving there has a price."""
        return self.foreign or not self.observed

    @property
    def usable(self) -> int:
        """Return the boards that plans may use outside maintenance."""
        return max(self.allocated, self.gpus - self.occupied) if self.open else self.allocated


@dataclass(frozen=True, slots=True, kw_only=True)
class Home:
    """The present place of a job: boards per node; of a MIG instance, its board and profile.

    `counted_by_others` are the boards of these that another job's home counts: a board that several
    jobs share is one.
    """

    boards: tuple[tuple[str, int], ...]
    mig_board: str = ""
    counted_by_others: tuple[tuple[str, int], ...] = ()

    @property
    def counted(self) -> tuple[tuple[str, int], ...]:
        """The boards per node that it counts for itself."""
        others = dict(self.counted_by_others)
        return tuple((name, count - others.get(name, 0)) for name, count in self.boards)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """Boards and MIG profiles by GPU model on the nodes that a job may be on.

    `models` are those that its scheduler has a word for, so that a job can ask for them.
    """

    boards: Mapping[str, int]
    slices: Mapping[str, frozenset[str]]
    models: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetFacts:
    """Nodes by name; the home of every job whose boards are known.

    By job: its scheduler ('' when none runs it, or none has nodes here), and what it can reach.
    `strays` are jobs that run where their scheduler has no node.
    """

    nodes: tuple[FleetNode, ...]
    homes: Mapping[str, Home]
    scheduler: Mapping[str, str]
    reach: Mapping[str, Reach]
    strays: frozenset[str]
