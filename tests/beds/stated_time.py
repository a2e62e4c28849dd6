"""A clock of the product that differs from the machine's, for the tests of one process."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from types import SimpleNamespace

import pytest

from data.base import clock


@contextmanager
def clock_ahead(by: timedelta) -> Iterator[None]:
    """Set the product's clock ahead of the machine's (behind it, if negative) for the block."""
    machine, seconds = clock.time, by.total_seconds()
    ahead = SimpleNamespace(time=lambda: machine.time() + seconds, monotonic=machine.monotonic)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(clock, "time", ahead)
        yield


def ahead_of_the_machine() -> timedelta:
    """Return how far the product's clock is ahead of the machine's."""
    return timedelta(seconds=clock.time.time() - time.time())


@contextmanager
def clock_at(moment: datetime) -> Iterator[None]:
    """Let the product's clock begin at a stated moment and run on for the block."""
    with clock_ahead(moment - clock.utc_now()):
        yield
