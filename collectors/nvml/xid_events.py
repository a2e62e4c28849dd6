"""XID errors of boards as NVML reports them: events of a set that stays open between readings.

The driver records the events of a board from the moment it is registered on; what happened before
is not told. So whoever keeps one session (`trimtab serve`) sees every error, also those between two
readings, and a single reading (`trimtab cycle`) only what happens while it is taken. An event has
no time of its own: it gets that of the reading that finds it.
"""

import ctypes
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import pynvml

from collectors.nvml.calls import DeviceLostError, NvmlCalls
from collectors.nvml.devices import Board
from data.base.errors import scrub
from data.catalogue.xid_table import NO_ERROR

_UNSUPPORTED_ERRORS = ("NotSupported", "FunctionNotFound")
"""So a board or a driver without events answers: no missing reading, its errors are unknown."""
_MAX_EVENTS = 1000
"""Events that one reading takes in, so that a board that floods the set cannot hold it up."""
_MAX_CODE = 10**6
_MAX_NAME = 100


@dataclass(slots=True)
class _XidState:
    """A board: the code that it shows, None until that is known, and from when to when it did.

    `since` is the last reading (s) up to which all its events are known.
    """

    uuid: str
    index: str
    since: float | None = None
    code: int | None = None
    times: dict[int, tuple[float, float]] = field(default_factory=dict)

    def show(self, xid: int, first: float, last: float) -> None:
        """Note that it showed a code."""
        self.code = xid
        self.times[xid] = (self.times.get(xid, (first, last))[0], last)


@dataclass(slots=True)
class XidEvents:
    """The XID errors of boards since they were registered; `refused` tells why a board is not.

    Lives as long as one NVML session; `close` frees what it holds.
    """

    refused: dict[str, str] = field(default_factory=dict)
    _set: Any = None
    _boards: dict[str, _XidState] = field(default_factory=dict)
    _registered: dict[int, _XidState] = field(default_factory=dict)

    def watch(self, calls: NvmlCalls, boards: Iterable[Board]) -> None:
        """Register those boards that are not yet: from now on their errors are recorded."""
        for board in boards:
            if board.uuid in self.refused or _address(board.handle) in self._registered:
                continue
            reason = self._register(calls, board)
            if not reason:
                name = scrub(board.uuid, limit=_MAX_NAME)
                watched = self._boards.setdefault(board.uuid, _XidState(name, board.index))
                self._registered[_address(board.handle)] = watched
            elif reason.endswith(_UNSUPPORTED_ERRORS):
                self.refused[board.uuid] = reason
            elif reason.endswith(": Unknown"):
                # The set itself is then in no defined state.
                self._give_up(calls, reason)
                return
            else:
                calls.missing[reason] += 1

    def rows(
        self, calls: NvmlCalls, boards: Iterable[Board], *, node: str, at: float
    ) -> tuple[dict[str, object], ...]:
        """Return the codes of each board so far, as rows of XIDS with times in s.

        A board shows the code of its last error, and 0 once it was watched from one reading to the
        next without one. A board that is not among `boards` may still have events: those of one
        that fell off the bus.
        """
        failed = set()
        for entry, xid in self._events(calls):
            entry.show(xid, at, at)
            failed.add(entry.uuid)
        for board in boards:
            state = self._registered.get(_address(board.handle))
            if state is None:
                continue
            if state.since is not None and state.uuid not in failed:
                state.show(NO_ERROR if state.code is None else state.code, state.since, at)
            state.since = at
        return tuple(
            {
                "gpu_uuid": watched.uuid,
                "xid": xid,
                "node": node,
                "gpu_index": watched.index,
                "first_seen_at": first,
                "last_seen_at": last,
            }
            for watched in self._boards.values()
            for xid, (first, last) in watched.times.items()
        )

    def close(self) -> None:
        """Free the set; one of a driver that went away is gone with it."""
        if self._set is not None:
            with suppress(pynvml.NVMLError):
                pynvml.nvmlEventSetFree(self._set)
        self._set = None
        for watched in self._registered.values():
            watched.since = None
        self._registered.clear()

    def _register(self, calls: NvmlCalls, board: Board) -> str:
        """Return '' when the board's errors are recorded from now on, else why not."""
        try:
            if self._set is None:
                self._set, reason = calls.attempt(pynvml.nvmlEventSetCreate)
                if self._set is None:
                    return reason
            _, reason = calls.attempt(
                pynvml.nvmlDeviceRegisterEvents,
                board.handle,
                pynvml.nvmlEventTypeXidCriticalError,
                self._set,
            )
        except DeviceLostError as lost:
            return lost.reason
        return reason

    def _events(self, calls: NvmlCalls) -> Iterator[tuple[_XidState, int]]:
        """Yield the errors since the last reading, the oldest first."""
        for _ in range(_MAX_EVENTS if self._registered else 0):
            try:
                event, reason = calls.attempt(pynvml.nvmlEventSetWait_v2, self._set, 0)
            except DeviceLostError as lost:
                event, reason = None, lost.reason
            if event is None:
                if not reason.endswith(": Timeout"):
                    self._give_up(calls, reason)
                return
            board = self._registered.get(_address(event.device))
            if board is None or event.eventType != pynvml.nvmlEventTypeXidCriticalError:
                continue
            if NO_ERROR < event.eventData < _MAX_CODE:
                yield board, int(event.eventData)
            else:
                calls.missing["XID event: no code"] += 1

    def _give_up(self, calls: NvmlCalls, reason: str) -> None:
        """Leave a set that cannot be read; the next reading makes a new one, unless none can be."""
        if reason.endswith(_UNSUPPORTED_ERRORS):
            self.refused.update(dict.fromkeys(self._boards, reason))
        else:
            calls.missing[reason] += 1
        self.close()


def _address(handle: Any) -> int:
    """Return the address behind a device's handle: the driver's own name for the board."""
    return ctypes.cast(handle, ctypes.c_void_p).value or 0
