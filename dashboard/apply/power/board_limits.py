"""The power limits of the boards of this machine, read and set through NVML."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pynvml

from collectors.nvml.calls import DeviceLostError, NvmlCalls
from collectors.nvml.devices import Board, find_boards

_BLANK_MILLIWATTS = 10_000_000
"""From here up a limit is the driver's way of saying none; no board takes 10 kW."""


class NotSetError(Exception):
    """The driver did not take a limit; `reason` is `CALL: error`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class BoardLimits:
    """A board's limits in mW as the driver says them; None where it does not, `error` says why."""

    gpu_uuid: str
    index: str
    handle: Any
    limit: int | None
    default: int | None
    least: int | None
    most: int | None
    error: str


def read_limits() -> tuple[BoardLimits, ...]:
    """Return the limits of every board that answers. Needs an open NVML session."""
    _count, boards = find_boards(NvmlCalls())
    return tuple(_limits(board) for board in boards)


def _limits(board: Board) -> BoardLimits:
    errors: list[str] = []
    limit = _reply(pynvml.nvmlDeviceGetPowerManagementLimit, board, errors)
    default = _reply(pynvml.nvmlDeviceGetPowerManagementDefaultLimit, board, errors)
    both = _reply(pynvml.nvmlDeviceGetPowerManagementLimitConstraints, board, errors) or (
        None,
        None,
    )
    return BoardLimits(
        gpu_uuid=board.uuid,
        index=board.index,
        handle=board.handle,
        limit=_real(limit),
        default=_real(default),
        least=_real(both[0]),
        most=_real(both[1]),
        error="; ".join(dict.fromkeys(errors)),
    )


def _reply(call: Callable[..., Any], board: Board, errors: list[str]) -> Any:
    try:
        answer, reason = NvmlCalls().attempt(call, board.handle)
    except DeviceLostError as lost:
        answer, reason = None, lost.reason
    if reason:
        errors.append(reason)
    return answer


def _real(milliwatts: int | None) -> int | None:
    if milliwatts is None or not 0 < milliwatts < _BLANK_MILLIWATTS:
        return None
    return int(milliwatts)


def set_limit(board: BoardLimits, milliwatts: int) -> None:
    """Set the limit of a board and see that it is set. Errors: NotSetError."""
    calls = NvmlCalls()
    try:
        _answer, reason = calls.attempt(
            pynvml.nvmlDeviceSetPowerManagementLimit, board.handle, milliwatts
        )
        if reason:
            raise NotSetError(reason)
        now, reason = calls.attempt(pynvml.nvmlDeviceGetPowerManagementLimit, board.handle)
    except DeviceLostError as lost:
        raise NotSetError(lost.reason) from lost
    if now != milliwatts:
        raise NotSetError(reason or f"the driver took {milliwatts} mW and holds {now} mW")
