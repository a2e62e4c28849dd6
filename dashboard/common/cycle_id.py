"""Cycle that a thread is at, for its lines in the log."""

from contextvars import ContextVar
from datetime import datetime

from data.facts.identifiers import SHORT_ID_LENGTH, digest_of

_MARK: ContextVar[str] = ContextVar("cycle_mark", default="")


def begin_cycle(now: datetime) -> str:
    """Mark what this thread logs from here on; return the mark, with which the cycle's id begins.

    It stays until the next cycle: what is said of one after its end belongs to it too.
    """
    mark = digest_of([now])[: SHORT_ID_LENGTH // 2]
    _MARK.set(mark)
    return mark


def cycle_mark() -> str:
    """Return the mark of this thread's cycle, '' where there was none."""
    return _MARK.get()
