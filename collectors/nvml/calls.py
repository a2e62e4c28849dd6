"""One NVML call at a time: what it refuses is counted by call and error, never guessed.

Any call may fail on any board: NotSupported (older boards, MIG), NoPermission (processes of
others), FunctionNotFound (older drivers), Unknown (a sick board), GpuIsLost (fallen off the bus).
"""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

import pynvml

Answer = TypeVar("Answer")

_LOST_BOARD_ERRORS = {"GpuIsLost", "ResetRequired", "Uninitialized", "DriverNotLoaded"}
"""After these no further call on the same board answers."""


class DeviceLostError(Exception):
    """A board that stopped answering in the middle; `reason` is `CALL: error`."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def error_name(error: Exception) -> str:
    """Return the short name of an NVML error such as NotSupported, or `code 77`.

    Not `str(error)`: for a code that pynvml does not know that calls the library again.
    """
    name = type(error).__name__.removeprefix("NVMLError_")
    return f"code {getattr(error, 'value', '?')}" if name == "NVMLError" else name


@dataclass(slots=True)
class NvmlCalls:
    """Makes calls and counts what is missing, by `CALL: error`."""

    missing: Counter[str] = field(default_factory=Counter)

    def attempt(
        self, call: Callable[..., Answer], *arguments: object, name: str = ""
    ) -> tuple[Answer | None, str]:
        """Return (answer, '') or (None, `CALL: error`), uncounted. Errors: DeviceLostError."""
        called = name or call.__name__
        try:
            return call(*arguments), ""
        except pynvml.NVMLError as error:
            reason = f"{called}: {error_name(error)}"
            if error_name(error) in _LOST_BOARD_ERRORS:
                raise DeviceLostError(reason) from error
            return None, reason
        except UnicodeDecodeError:
            # pynvml decodes names as strict UTF-8
            return None, f"{called}: not text"

    def read(
        self, call: Callable[..., Answer], *arguments: object, name: str = ""
    ) -> Answer | None:
        """Return the answer, or None after counting why not. Errors: DeviceLostError."""
        answer, reason = self.attempt(call, *arguments, name=name)
        if reason:
            self.missing[reason] += 1
        return answer

    def number(
        self,
        what: str,
        raw: float | None,
        *,
        blank: float,
        scale: float = 1.0,
        zero_is_unknown: bool = False,
    ) -> float:
        """Return raw / scale, or NaN after counting a blank, negative or non-finite reading.

        From `blank` up a value is the driver's way of saying none.
        """
        if raw is None:
            return math.nan
        if not math.isfinite(raw) or raw < 0:
            self.missing[f"{what}: no number"] += 1
            return math.nan
        if raw == 0 and zero_is_unknown:
            self.missing[f"{what}: zero"] += 1
            return math.nan
        if raw >= blank:
            self.missing[f"{what}: blank"] += 1
            return math.nan
        return raw / scale
