"""Slices on boards: the places where MIG instances may begin, and the instances of each board.

A board has eight memory slices (four on an A30) and an instance begins only where the driver lets
it, so that 3g and 3g fill a board of seven compute slices. Slices that are there now stay on their
board; the others fill these boards up, then new ones, large before small, early before late.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

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
    slices: Sequence[Slice], slots: int, *, early_first: bool = False
) -> tuple[tuple[CutBoard, ...], tuple[tuple[int, int], ...]]:
    """Return boards, and for every slice its board's number and its first memory slice there.

    Large before small, or with `early_first` early before late.
    """

    def rank(number: int) -> tuple[bool, int, int, int]:
        entry = slices[number]
        size, start = -entry.placement.memory_slices, entry.start
        return (not entry.board, *((start, size) if early_first else (size, start)), number)

    order = sorted(range(len(slices)), key=rank)
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
    boards: list[CutBoard] = []
    numbers: dict[int, int] = {}
    for board, (pool, title) in enumerate(zip(pools, titles, strict=True)):
        end = -1
        if title:
            boards.append(CutBoard(pool=pool, name=title, start=0, end=slots))
            end = slots
        on_board = (number for number, (other, _at) in places.items() if other == board)
        for number in sorted(on_board, key=lambda n: slices[n].start):
            if slices[number].start > end:
                # Whole again where none of its slices is in use.
                start = slices[number].start
                boards.append(CutBoard(pool=pool, name="", start=start, end=start))
            end = max(end, slices[number].end)
            boards[-1] = replace(boards[-1], end=end)
            numbers[number] = len(boards) - 1
    at = tuple((numbers[number], places[number][1]) for number in range(len(slices)))
    return tuple(boards), at


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
