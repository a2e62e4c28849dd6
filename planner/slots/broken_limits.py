"""Texts of soft limits that a plan breaks: the limit, the excess, and the time."""

from collections.abc import Callable, Iterator, Sequence
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt

SLACK = 1e-6
"""What is above a limit by less counts as rounding."""
WhenText = Callable[[int, int], str]
"""Names the slots [start, end)."""


def slot_text(start: int, end: int) -> str:
    """Name slots [start, end) by their numbers."""
    return f"in slot {start}" if end - start == 1 else f"in slots {start} to {end - 1}"


def clock_text(slot_starts: Sequence[datetime], slot: timedelta) -> WhenText:
    """Return a function that names slots by their times, in UTC."""

    def named(start: int, end: int) -> str:
        until = slot_starts[end - 1] + slot
        return f"from {slot_starts[start]:%Y-%m-%d %H:%M} to {until:%Y-%m-%d %H:%M} UTC"

    return named


def broken(name: str, excess: npt.NDArray[np.float64], words: str, when: WhenText) -> Iterator[str]:
    """Yield a line for every stretch of slots in which `excess` [H] is above 0.

    `words` follow the amount, such as "kW over its limit".
    """
    above = np.concatenate(([False], excess > SLACK, [False]))
    for start, end in np.flatnonzero(np.diff(above)).reshape(-1, 2).tolist():
        amounts = {f"{amount:.3g}" for amount in excess[start:end]}
        most = "up to " if len(amounts) > 1 else ""
        yield f"{name}: {most}{excess[start:end].max():.3g} {words}, {when(start, end)}"
