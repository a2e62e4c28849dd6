"""The XID errors of the simulated fleet's boards: a pure function of seed, board and time.

They have hashed streams of their own, so that no other reading depends on them. How often which
code comes is chosen to be plausible, not measured: faults of jobs every two months a board, faults
of memory a sixth as often, and in a large fleet a board that falls off the bus every two months.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from collectors.simulated.layout import BOARDS_PER_NODE
from collectors.simulated.signals import Times, Values, hashed_uniform
from data.catalogue.xid_table import NO_ERROR

Codes = npt.NDArray[np.int64]

DRIVER_LIFE_SECONDS = 3 * 86_400
_SHARES = {
    # Faults of jobs. 109 stands for the many codes that our table of meanings does not hold.
    1: (0.05, {31: 0.45, 13: 0.25, 43: 0.2, 45: 0.05, 109: 0.05}),
    # Faults of memory.
    2: (0.008, {63: 0.6, 94: 0.25, 48: 0.1, 64: 0.03, 95: 0.02}),
}
"""Stream to the chance of an error in the life of a board's driver, and the share of each code."""
_BUS_XID = 79
_LARGE = 512
"""Boards of a fleet in which one falls off the bus now and then, never two within 30 days."""
_PERIOD_SECONDS = 20 * DRIVER_LIFE_SECONDS
_EARLY_SHARE = 0.4
_UNTIL_RESTART_SECONDS = 1200
_PER_BOARD = 1_000_003
_BOARD = 2**40
"""More than any time in s since the epoch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class XidError:
    """One error of a board, `at` in s since the epoch."""

    board: int
    at: int
    xid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedXids:
    """The errors of a fleet with boards 0 to `boards` - 1.

    `works` tells whether something runs on a board at a time: only then a job can fault, or memory
    be found bad.
    """

    seed: int
    boards: int
    works: Callable[[int, int], bool]

    def last_codes(self, boards: Times, times: Times) -> Codes:
        """Return the code that each board shows at each time: of its last error, 0 before any.

        As the driver's gauge does, it starts at 0 when the driver is loaded, and keeps a code.
        """
        codes = np.full(len(times), NO_ERROR, dtype=np.int64)
        if not len(times):
            return codes
        errors = self.errors(np.unique(boards), int(times.min()), int(times.max()))
        if not errors:
            return codes
        at = np.array([error.board * _BOARD + error.at for error in errors], dtype=np.int64)
        last = np.searchsorted(at, boards * _BOARD + times, side="right") - 1
        visible = (last >= 0) & (at[last] >= boards * _BOARD + driver_loaded(boards, times))
        return np.where(visible, np.array([error.xid for error in errors])[last], codes)

    def errors(self, boards: Times, first: int, last: int) -> list[XidError]:
        """Return errors of these boards that one of them may show in [first, last], in order."""
        errors = [
            *self._at_work(boards, first, last),
            *self._fallen(set(boards.tolist()), first, last),
        ]
        return sorted(errors, key=lambda error: (error.board, error.at))

    def _at_work(self, boards: Times, first: int, last: int) -> Iterator[XidError]:
        lives = (last - first) // DRIVER_LIFE_SECONDS + 2
        loaded = driver_loaded(boards, np.full_like(boards, first))[:, None] + (
            np.arange(lives, dtype=np.int64) * DRIVER_LIFE_SECONDS
        )
        keys = boards[:, None] * _PER_BOARD + loaded // DRIVER_LIFE_SECONDS
        for stream, (chance, shares) in _SHARES.items():
            hit = self._uniform(stream, keys) < chance
            into = self._uniform(stream + 10, keys[hit]) * DRIVER_LIFE_SECONDS
            drawn = _drawn(shares, self._uniform(stream + 20, keys[hit]))
            where, times = boards[np.nonzero(hit)[0]], loaded[hit] + into.astype(np.int64)
            for board, at, xid in zip(where.tolist(), times.tolist(), drawn.tolist(), strict=True):
                if self.works(board, at):
                    yield XidError(board=board, at=at, xid=xid)

    def _fallen(self, boards: set[int], first: int, last: int) -> Iterator[XidError]:
        """Yield the errors after which a node is restarted, and its driver loaded again, soon."""
        if self.boards < _LARGE:
            return
        before, after = first - DRIVER_LIFE_SECONDS, last + DRIVER_LIFE_SECONDS
        for period in range(before // _PERIOD_SECONDS, after // _PERIOD_SECONDS + 1):
            which, when, early = (
                float(self._uniform(stream, np.array([period]))[0]) for stream in (31, 32, 33)
            )
            board = int(which * self.boards)
            inside = np.array([int((period + _EARLY_SHARE * when) * _PERIOD_SECONDS)])
            restart = int(driver_loaded(np.array([board]), inside)[0]) + DRIVER_LIFE_SECONDS
            at = restart - 1 - int(early * _UNTIL_RESTART_SECONDS)
            if board in boards:
                yield XidError(board=board, at=at, xid=_BUS_XID)

    def _uniform(self, stream: int, keys: Times) -> Values:
        return hashed_uniform(self.seed * 1_009 + stream + 900_000_011, keys)


def driver_loaded(boards: Times, times: Times) -> Times:
    """Return the last load of each board's driver, in s: once every three days a node."""
    offset = boards // BOARDS_PER_NODE * 7_919 % DRIVER_LIFE_SECONDS
    return np.asarray((times + offset) // DRIVER_LIFE_SECONDS * DRIVER_LIFE_SECONDS - offset)


def _drawn(shares: dict[int, float], uniform: Values) -> Codes:
    """Return the codes that uniform numbers 0..1 stand for."""
    bounds = np.cumsum(list(shares.values()))[:-1]
    return np.array(list(shares), dtype=np.int64)[np.searchsorted(bounds, uniform, side="right")]
