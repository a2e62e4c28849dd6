"""Runs of jobs on real nodes over time: on their present nodes if possible.

First every run on its current node, larger ones first; then the others in size order, first fit;
what finds no room enters by ejection search, which moves runs that have a current node last; then
runs go back to their current nodes where that has become possible.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from data.base.errors import ImpossibleProblemError
from planner.packing.ejection_kernel import Items, place_pool
from planner.packing.placement_kernel import place_at_home, place_first_fit, return_home
from planner.packing.random_kernel import random_state

Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

_UNLIMITED = 1 << 60
_STAY = 4
"""Ejecting a run from its current node counts as so many ejections."""
_NEVER_EJECTED = 1 << 61
_ITERATIONS = 20_000
_CHUNK = 200
_LARGE = 100
"""With more nodes an ejection looks at more of them, so that as many fewer are tried."""
_DEPTH, _SHAKES = 4, 0


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementNode:
    """A node: GPUs, their model, milli-CPU and memory (None: not checked).

    `total` is what the node has where `gpus` are those that are left of it: runs larger than a
    node are cut into whole ones. Not `open`: only runs that are on it now may be.
    """

    name: str
    gpus: int
    gpu_model: str = ""
    total: int | None = None
    open: bool = True
    cpu_milli: int | None = None
    memory_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A job with a constant number of GPUs in slots [start, end).

    A run of more GPUs than the largest node has takes whole nodes and a part of one more; one that
    is `apart` takes as many nodes, with equal parts on each. CPU and memory are of the whole run
    (None: not known, not checked). `current_nodes` are where it is now, with `current_gpus` on each
    (empty: parts as elsewhere); a run of fewer GPUs than that keeps the first of them. A `fixed`
    run goes there or nowhere, any other to one of `only` (None: any node). An empty `gpu_model`
    takes any.
    """

    run_id: str
    job_id: str
    start: int
    end: int
    gpus: int
    gpu_model: str = ""
    cpu_milli: int | None = None
    memory_bytes: int | None = None
    current_nodes: tuple[str, ...] = ()
    current_gpus: tuple[int, ...] = ()
    fixed: bool = False
    only: frozenset[str] | None = None
    apart: int = 1

    def __post_init__(self) -> None:
        """Refuse runs of no length or no GPU."""
        if self.end <= self.start or self.gpus < 1:
            raise ImpossibleProblemError(
                f"run {self.run_id} has {self.gpus} GPUs in slots [{self.start}, {self.end})",
                "Give at least one GPU and an end after the start",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """Parts of runs that take one node each: arrays [parts]; home -1 where there is none."""

    run: Ints
    gpus: Ints
    home: Ints
    items: Items
    room: Ints
    group: Ints
    fixed: Bools


def place_on_nodes(
    runs: Sequence[Run], nodes: Sequence[PlacementNode], *, budget_seconds: float, seed: int
) -> list[dict[int, int]]:
    """Return the GPUs of every run by the number of the node, largest part first; none: no room.

    No node is over its GPUs, CPU or memory in any slot. The same input and seed give the same
    answer as long as the budget is ample. Raises ImpossibleProblemError for two nodes of one name
    and for a current node that is not among them.
    """
    deadline = time.monotonic() + budget_seconds
    number = {node.name: index for index, node in enumerate(nodes)}
    if len(number) < len(nodes):
        raise ImpossibleProblemError(
            f"{len(nodes)} nodes have {len(number)} names", "Name every node once"
        )
    answers: list[dict[int, int]] = [{} for _ in runs]
    if runs:
        parts = _parts(runs, nodes, number)
        bin_of = _searched(parts, deadline=deadline, seed=seed)
        for run, node, gpus in zip(
            *(part.tolist() for part in (parts.run, bin_of, parts.gpus)), strict=True
        ):
            if node >= 0:
                answers[run][node] = answers[run].get(node, 0) + gpus
    return answers


def _sizes(run: Run, largest: int) -> list[int]:
    """Return the GPUs of the parts of a run: as it is now, equal, or whole nodes and the rest."""
    if sum(run.current_gpus) >= run.gpus:
        gpus, parts = run.gpus, []
        for count in run.current_gpus:
            parts.append(min(count, gpus))
            gpus -= parts[-1]
        return [part for part in parts if part]
    if run.apart > 1:
        parts = [(run.gpus + part) // run.apart for part in range(run.apart)]
        return [part for part in parts[::-1] if part]
    full, rest = divmod(run.gpus, largest)
    return [largest] * full + ([rest] if rest else [])


def _home(run: Run, part: int, number: dict[str, int]) -> int:
    """Return the number of the node where a part is now, or -1."""
    if part >= len(run.current_nodes):
        return -1
    name = run.current_nodes[part]
    if name not in number:
        raise ImpossibleProblemError(
            f"run {run.run_id} is on node {name!r}, which is not among the nodes",
            "Give the node, or no current node",
        )
    return number[name]


def _largest(nodes: Sequence[PlacementNode]) -> dict[str, int]:
    """Return the GPUs of the largest node of every model, and of any under the empty name."""
    largest: dict[str, int] = {}
    for node in nodes:
        for model in (node.gpu_model, ""):
            size = node.gpus if node.total is None else node.total
            largest[model] = max(largest.get(model, 0), size)
    return largest


def clique_slots(starts: Ints, ends: Ints) -> tuple[Ints, Ints, Ints]:
    """Return the first and last slot of each run, and the starts of slots: the maximal cliques.

    A set of runs fits into a node at all times iff it fits at these moments. The runs active at a
    start are all active at the next one too, unless one ends in between: only the starts before an
    end are kept.
    """
    points = np.unique(starts)
    over = np.searchsorted(np.sort(ends), points, side="right")
    edges = points[np.diff(over, append=len(ends) + 1) > 0]
    return np.searchsorted(edges, starts), np.searchsorted(edges, ends), edges


def _parts(runs: Sequence[Run], nodes: Sequence[PlacementNode], number: dict[str, int]) -> _Parts:
    largest = _largest(nodes)
    rows = [
        (index, size, _home(run, part, number))
        for index, run in enumerate(runs)
        for part, size in enumerate(_sizes(run, largest.get(run.gpu_model) or run.gpus))
    ]
    index = np.array([row[0] for row in rows], dtype=np.int64)
    sizes = np.array(
        [
            (gpus, *(_share(entry, gpus, runs[run].gpus) for entry in _host_need(runs[run])))
            for run, gpus, _ in rows
        ],
        dtype=np.int64,
    )
    starts = np.array([runs[entry].start for entry in index], dtype=np.int64)
    ends = np.array([runs[entry].end for entry in index], dtype=np.int64)
    first, last, edges = clique_slots(starts, ends)
    jobs = {run.job_id: position for position, run in enumerate(runs)}
    return _Parts(
        run=index,
        gpus=sizes[:, 0],
        home=np.array([row[2] for row in rows], dtype=np.int64),
        items=Items(
            first=first,
            last=last,
            sizes=sizes,
            weights=sizes[:, 0] * (ends - starts),
            allowed=_allowed(runs, nodes)[index],
            apart=np.where([runs[entry].apart > 1 for entry in index], index, -1),
            slots=len(edges),
        ),
        room=np.array(
            [
                (
                    node.gpus,
                    _UNLIMITED if node.cpu_milli is None else node.cpu_milli,
                    _UNLIMITED if node.memory_bytes is None else node.memory_bytes,
                )
                for node in nodes
            ],
            dtype=np.int64,
        ).reshape(-1, 3),
        group=np.array([jobs[runs[entry].job_id] for entry in index], dtype=np.int64),
        fixed=np.array([runs[entry].fixed for entry in index], dtype=np.bool_),
    )


def _host_need(run: Run) -> tuple[int | None, int | None]:
    """Return the need of a run beside GPUs."""
    return run.cpu_milli, run.memory_bytes


def _share(amount: int | None, gpus: int, all_gpus: int) -> int:
    """Return a part's CPU or memory, rounded up; what is not known is not checked."""
    return 0 if amount is None else -(-amount * gpus // all_gpus)


def _allowed(runs: Sequence[Run], nodes: Sequence[PlacementNode]) -> Bools:
    """Return a mask of allowed nodes [runs, nodes]: by model or as now, open, and required."""
    models = np.array([run.gpu_model for run in runs], dtype=np.str_)[:, None]
    allowed = np.asarray((models == "") | (models == _models(nodes)))
    number = {node.name: index for index, node in enumerate(nodes)}
    closed = np.array([not node.open for node in nodes], dtype=np.bool_)
    for index, run in enumerate(runs):
        home = np.zeros(len(nodes), dtype=np.bool_)
        home[[number[name] for name in run.current_nodes if name in number]] = True
        allowed[index] |= home
        if run.only is not None:
            allowed[index] &= [node.name in run.only for node in nodes]
        allowed[index] &= home if run.fixed else home | ~closed
    return allowed


def _models(nodes: Sequence[PlacementNode]) -> npt.NDArray[np.str_]:
    return np.array([node.gpu_model for node in nodes], dtype=np.str_)


def _searched(parts: _Parts, *, deadline: float, seed: int) -> Ints:
    """Return the node of every part, -1 where none was found or the rest of its run found none."""
    bin_of = np.full(len(parts.run), -1, dtype=np.int64)
    if not len(parts.room):
        return bin_of
    order = np.lexsort((parts.items.first, -parts.gpus, ~parts.fixed))
    place_at_home(parts.items, parts.room, bin_of, parts.home, order)
    place_first_fit(parts.items, parts.room, bin_of, parts.group, order)
    _eject(parts, bin_of, deadline=deadline, seed=seed)
    missing = np.isin(parts.run, parts.run[bin_of < 0])
    bin_of[missing] = -1
    single = np.flatnonzero(np.bincount(parts.run)[parts.run] == 1)
    place_first_fit(parts.items, parts.room, bin_of, parts.group, order[np.isin(order, single)])
    while return_home(parts.items, parts.room, bin_of, np.where(bin_of < 0, -1, parts.home)):
        if time.monotonic() > deadline:
            break
    return bin_of


def _eject(parts: _Parts, bin_of: Ints, *, deadline: float, seed: int) -> None:
    """Make room for the parts without a node that could fit an empty one."""
    possible = _possible(parts)
    fitting = np.flatnonzero(possible)
    items = Items(
        first=parts.items.first[fitting],
        last=parts.items.last[fitting],
        sizes=parts.items.sizes[fitting],
        weights=parts.items.weights[fitting],
        allowed=parts.items.allowed[fitting],
        apart=parts.items.apart[fitting],
        slots=parts.items.slots,
    )
    trial = bin_of[fitting]
    best = trial.copy()
    penalty = np.where(parts.home[fitting] >= 0, _STAY, 1).astype(np.int64)
    penalty[parts.fixed[fitting]] = _NEVER_EJECTED
    state = random_state(seed)
    weight = int(items.weights[best < 0].sum())
    chunk = max(1, _CHUNK * _LARGE // max(_LARGE, len(parts.room)))
    for _ in range(_ITERATIONS // _CHUNK):
        if weight == 0 or time.monotonic() > deadline:
            break
        weight = place_pool(items, parts.room, trial, best, penalty, _DEPTH, _SHAKES, chunk, state)
    bin_of[fitting] = best


def _possible(parts: _Parts) -> Bools:
    """Return a mask of the parts that fit some empty node, or each one of its own [parts]."""
    fits = parts.items.allowed.copy()
    for needs, room in zip(parts.items.sizes.T, parts.room.T, strict=True):
        fits &= needs[:, None] <= room
    each = np.where(parts.items.apart < 0, 1, np.bincount(parts.run)[parts.run])
    return np.asarray(fits.sum(axis=1) >= each)
