"""A Ray cluster of this machine, and what its workers are asked: they find functions by name."""

import os
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar
from unittest.mock import patch

from data.base.errors import SettingsError
from forecasting.distributed.ray_driver import LOCAL

_TESTS = Path(__file__).parents[1]
_ATTEMPTS = 4


_Answer = TypeVar("_Answer")


def on_a_cluster(work: Callable[[str], _Answer]) -> _Answer:
    """Return what work gives for the address of a cluster, which starts with it.

    On a busy machine Ray gives a start up after 30 s, and its workers, which it makes nice, starve.
    """
    found = os.pathsep.join(str(folder) for folder in (_TESTS.parent, _TESTS))
    with patch.dict(os.environ, PYTHONPATH=found, RAY_worker_niceness="0"):
        for _attempt in range(_ATTEMPTS):
            try:
                return work(LOCAL)
            except SettingsError as error:
                failed = error
    raise failed


@dataclass(frozen=True, slots=True, kw_only=True)
class Fate:
    """What to add, and what to kill first on a worker: nothing, the worker itself, or who."""

    home: int
    add: int = 0
    victim: str = ""


def tenfold(item: int) -> int:
    """Return the item, opened."""
    return 10 * item


def place(_thing: object, _argument: object) -> int:
    """Return the process that answers."""
    return os.getpid()


def added(thing: int, fate: Fate) -> int:
    """Return thing + add, unless this is a worker whose fate is a death."""
    if os.getpid() != fate.home and fate.victim:
        _kill(fate.victim)
    return thing + fate.add


def all_added(fates: list[Fate]) -> list[tuple[int, bool]]:
    """Return 1 more than each fate adds, as `added` does, and whether the asking process did it."""
    return [(added(1, fate), os.getpid() == fate.home) for fate in fates]


def _kill(victim: str) -> None:
    """Kill this worker, and first its `raylet`, the `gcs_server`, or the `driver` of these."""
    raylet = os.getppid()
    driver = _parent(raylet)
    doomed = {"worker": [], "raylet": [raylet], "driver": [driver]}
    for process in doomed[victim] if victim in doomed else _children(driver, victim):
        os.kill(process, signal.SIGKILL)
    os._exit(1)


def _parent(process: int) -> int:
    stat = Path(f"/proc/{process}/stat").read_text(encoding="utf-8")
    return int(stat.rpartition(")")[2].split()[1])


def _children(process: int, program: str) -> Iterator[int]:
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            name = (folder / "cmdline").read_bytes().split(b"\0")[0].decode()
            if name.endswith(program) and _parent(int(folder.name)) == process:
                yield int(folder.name)
        except OSError:
            continue  # it has ended
