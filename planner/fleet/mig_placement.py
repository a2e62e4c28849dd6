"""Slices on boards: the places where MIG instances may begin, and the instances of each board.

A board has eight memory slices (four on an A30) and an instance begins only where the driver lets
it, so that 3g and 3g fill a board of seven compute slices. Slices that are there now stay on their
board; the others fill these boards up, then new ones, large before small, early before late.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from data.catalogue.gpu_catalogue import MigPlacement

_POSITIONS = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """An instance in slots [start, end) on a board of the pool; `board` is where it is now."""

    pool: int
    start: int
    end: int
    placement: MigPlacement
    board: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CutBoard:
    """A board with slices in [start, end); `name` of one that is cut now, '' of a new one."""

    pool: int
    name: str
    start: int
    end: int


def pack_slices(
    slices: Sequence[Slice], slots: int
) -> tuple[tuple[CutBoard, ...], tuple[tuple[int, int], ...]]:
    """Return boards, and for every slice its board's number and its first memory slice there."""
    order = sorted(
        range(len(slices)),
        key=lambda n: (not slices[n].board, -slices[n].placement.memory_slices, slices[n].start, n),
    )
    names = {entry.board: entry.pool for entry in slices if entry.board}
    pools, titles = list(names.values()), list(names)
    used = np.zeros((len(pools) + len(slices), _POSITIONS, slots), dtype=np.bool_)
    places: dict[int, tuple[int, int]] = {}
    for number in order:
        mig_slice = slices[number]
        place = _first_place(mig_slice, pools, titles, used)
        if place is None:
            pools.append(mig_slice.pool)
            titles.append("")
            place = len(pools) - 1, mig_slice.placement.starts[0]
        board, position = place
        width = mig_slice.placement.memory_slices
        used[board, position : position + width, mig_slice.start : mig_slice.end] = True
        places[number] = place
    boards = tuple(
        CutBoard(
            pool=pool,
            name=title,
            start=0 if title else min(_used(places, slices, board, "start")),
            end=slots if title else max(_used(places, slices, board, "end")),
        )
        for board, (pool, title) in enumerate(zip(pools, titles, strict=True))
    )
    return boards, tuple(places[number] for number in range(len(slices)))


def _used(
    places: dict[int, tuple[int, int]], slices: Sequence[Slice], board: int, what: str
) -> list[int]:
    return [getattr(slices[n], what) for n, (other, _at) in places.items() if other == board]


def _first_place(
    mig_slice: Slice, pools: Sequence[int], titles: Sequence[str], used: np.ndarray
) -> tuple[int, int] | None:
    """Return the first board and position with room: its own board first."""
    width = mig_slice.placement.memory_slices
    ranked = sorted(range(len(pools)), key=lambda board: titles[board] != mig_slice.board)
    for board in ranked:
        if pools[board] != mig_slice.pool:
            continue
        for position in mig_slice.placement.starts:
            if not used[board, position : position + width, mig_slice.start : mig_slice.end].any():
                return board, position
    return None
