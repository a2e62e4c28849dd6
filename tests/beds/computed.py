"""Functions for a child process, each with the progress as its last argument."""

import logging
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

from data.base.errors import StoreBusyError

Progress = Callable[[str, int, int], None]


def process_of(_progress: Progress) -> int:
    """Return the id of the process, with a line in the log."""
    logging.getLogger("dashboard.computed").warning("computed by %s", "the child")
    return os.getpid()


def niceness(_progress: Progress) -> int:
    """Return by how much the process gives way to others."""
    return os.getpriority(os.PRIO_PROCESS, 0)


def killed(_progress: Progress) -> None:
    """End as by the kernel that lacks memory."""
    os.kill(os.getpid(), signal.SIGKILL)


def refused(_progress: Progress) -> None:
    """Fail with an error of ours."""
    raise StoreBusyError("the store is held", "Wait.")


def broken(_progress: Progress) -> None:
    """Fail with a defect that no pickle holds."""
    raise ValueError(lambda: None)


def allocated(mebibytes: int, _progress: Progress) -> int:
    """Keep memory of the process."""
    _KEPT.append(b"x" * (mebibytes << 20))
    return os.getpid()


def endless(file: Path, progress: Progress) -> None:
    """Write the process into a file, and compute for ever."""
    progress("plan", 0, 1)
    file.with_suffix(".new").write_text(str(os.getpid()), encoding="ascii")
    file.with_suffix(".new").rename(file)
    while True:
        time.sleep(0.1)


_KEPT: list[bytes] = []
