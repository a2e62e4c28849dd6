"""The agent on a node: holds the caps that a valid order wants, and puts every other limit back.

It listens to nobody: it reads an order, compares it with the boards, sets what differs and writes a
report. A cap lasts as long as orders renew it. On its end it restores; what it could not restore
before it was killed, the next start restores.
"""

import logging
import threading
import time
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from functools import partial

from collectors.nvml.library import nvml_session
from dashboard.apply.power.board_limits import BoardLimits, NotSetError, read_limits, set_limit
from dashboard.apply.power.orders import BoardReport, CapOrder, NodeReport
from dashboard.apply.power.saved_limits import HeldLimit, HeldLimits
from dashboard.apply.power.shared_folder import SignedFolder
from dashboard.apply.power.signed_file import NotTrustedError
from data.base.errors import ApplyError, CollectorError
from data.settings.sources import NvmlSettings

_log = logging.getLogger(__name__)
_CLOCKS_APART = timedelta(minutes=5)
"""An order from further in the future than this is not believed."""


class PowerAgent:
    """Holds and restores the limits of one node. Needs an open NVML session for every call."""

    def __init__(
        self,
        node: str,
        exchange: SignedFolder,
        limits: HeldLimits,
        *,
        clock: Callable[[], datetime],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._node = node
        self._exchange = exchange
        self._held = limits
        self._clock = clock
        self._monotonic = monotonic
        self._first_seen: tuple[int, float] = (0, 0.0)

    def step(self) -> NodeReport:
        """Read the order, bring the boards in line with it, and report. Errors: ApplyError."""
        targets, note = self._targets()
        boards = read_limits()
        errors = {
            board.gpu_uuid: _or_why_not(partial(self._settle, board, targets)) for board in boards
        }
        present = set(errors)
        missing = sorted((set(targets) | set(self._held.boards)) - present)
        if missing:
            note = "; ".join(filter(None, (note, f"not answering: {', '.join(missing)}")))
        return self._report(note, errors)

    def restore(self, only: Collection[str] = ()) -> NodeReport:
        """Put back every limit that is held, or those of boards by index or UUID, and report."""
        errors = {}
        for board in read_limits():
            selected = not only or {board.index, board.gpu_uuid} & set(only)
            errors[board.gpu_uuid] = _or_why_not(partial(self._put_back, board)) if selected else ""
        return self._report("restored", errors)

    @property
    def holds_any(self) -> bool:
        """Return whether a limit is still to be put back."""
        return bool(self._held.boards)

    def _targets(self) -> tuple[dict[str, int], str]:
        """Return the milliwatts wanted by UUID, or nothing and why."""
        try:
            order = self._exchange.order(self._node)
        except NotTrustedError as error:
            return {}, error.message
        if order is None:
            return {}, "no order"
        doubt = self._doubt(order)
        if doubt:
            return {}, doubt
        self._held.obey(order.sequence)
        return {uuid: watts * 1000 for uuid, watts in order.wanted().items()}, ""

    def _doubt(self, order: CapOrder) -> str:
        now = self._clock()
        if order.sequence < self._held.sequence:
            return f"order {order.sequence} is older than {self._held.sequence}"
        if order.issued_at > now + _CLOCKS_APART:
            return "the order comes from the future: are the clocks set?"
        if order.expires_at <= now:
            return "the lease has run out"
        if self._first_seen[0] != order.sequence:
            self._first_seen = (order.sequence, self._monotonic())
        # Should the clock be set back, the lease ends all the same.
        lease = (order.expires_at - order.issued_at).total_seconds()
        if self._monotonic() - self._first_seen[1] > lease:
            return "the lease has run out"
        return ""

    def _settle(self, board: BoardLimits, targets: dict[str, int]) -> str:
        """Bring one board in line; give why not."""
        if board.gpu_uuid not in targets:
            return self._put_back(board)
        cap = targets[board.gpu_uuid]
        if board.limit is None or board.least is None or board.most is None:
            return board.error or "the driver does not say its limits"
        if not board.least <= cap <= board.most:
            return (
                f"{cap / 1000:g} W is outside {board.least / 1000:g}-{board.most / 1000:g} W of "
                "this board"
            )
        return self._cap(board, board.limit, cap)

    def _cap(self, board: BoardLimits, limit: int, cap: int) -> str:
        saved = self._held.boards.get(board.gpu_uuid)
        if limit == cap:
            return ""
        if saved and limit not in (*saved.ours, saved.original, board.default):
            return f"somebody else set {limit / 1000:g} W: left alone"
        start = saved or HeldLimit(original=limit, ours=())
        return self._set(board, start.with_cap(cap), cap)

    def _set(self, board: BoardLimits, saved: HeldLimit, milliwatts: int) -> str:
        # On disk first: killed between the two, the next start still knows what to put back.
        self._held.hold(board.gpu_uuid, saved)
        try:
            set_limit(board, milliwatts)
        except NotSetError as error:
            return error.reason
        _log.info("%s: %g W", board.gpu_uuid, milliwatts / 1000)
        return ""

    def _put_back(self, board: BoardLimits) -> str:
        saved = self._held.boards.get(board.gpu_uuid)
        if saved is None:
            return ""
        if board.limit is None:
            return board.error or "the driver does not say its limit"
        if board.limit in saved.ours and board.limit != saved.original:
            try:
                set_limit(board, saved.original)
            except NotSetError as error:
                return error.reason
            _log.info("%s: back to %g W", board.gpu_uuid, saved.original / 1000)
        # Any other limit was set by somebody else since, or by a reboot: it is theirs.
        self._held.drop(board.gpu_uuid)
        return ""

    def _report(self, note: str, errors: dict[str, str]) -> NodeReport:
        boards = tuple(
            self._board(board, errors.get(board.gpu_uuid, "")) for board in read_limits()
        )
        # A board that was lost while its limit was set is in no list any more.
        lost = sorted(set(errors) - {board.gpu_uuid for board in boards})
        notes = [note, *(f"{uuid}: {errors[uuid] or 'not answering'}" for uuid in lost)]
        report = NodeReport(
            node=self._node,
            at=self._clock(),
            sequence=self._held.sequence,
            note="; ".join(filter(None, notes)),
            boards=boards,
        )
        self._exchange.write_report(report)
        return report

    def _board(self, board: BoardLimits, error: str) -> BoardReport:
        saved = self._held.boards.get(board.gpu_uuid)
        return BoardReport(
            gpu_uuid=board.gpu_uuid,
            index=board.index,
            limit_watts=_watts(board.limit),
            default_watts=_watts(board.default),
            least_watts=_watts(board.least),
            most_watts=_watts(board.most),
            held_watts=None if saved is None else round(saved.cap / 1000),
            error=error or board.error,
        )


def _or_why_not(settle: Callable[[], str]) -> str:
    """Return the result of settling a board; a full disk at one board keeps no other waiting."""
    try:
        return settle()
    except ApplyError as error:
        return error.message


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1000


def run_agent(
    agent: PowerAgent, nvml: NvmlSettings, *, stop: threading.Event, poll_seconds: float
) -> None:
    """Hold caps until `stop`, then restore. Errors: CollectorError when NVML is not there at all.

    A driver that goes away is asked for again; what could not be reported is reported next time.
    """
    while not stop.is_set():
        with nvml_session(nvml):
            _hold(agent, stop, poll_seconds)
            if stop.is_set():
                _restored(agent)


def _restored(agent: PowerAgent) -> None:
    try:
        agent.restore()
    except ApplyError as error:
        # The limits are back by now; only the report could not be written.
        _log.warning("%s", error)


def _hold(agent: PowerAgent, stop: threading.Event, poll_seconds: float) -> None:
    seen_boards = False
    while not stop.is_set():
        try:
            boards = agent.step().boards
        except (ApplyError, CollectorError) as error:
            _log.warning("%s", error)
            boards = ()
        if seen_boards and not boards:
            stop.wait(poll_seconds)
            return  # the driver was reloaded: open NVML anew
        seen_boards = bool(boards)
        stop.wait(poll_seconds)
