"""The store of the demo after one cycle, made once for many tests."""

import fcntl
import os
import time
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory

from dashboard.cli import main

_SECONDS_KEPT = 600


def demo_day(folder: Path) -> str:
    """Return the address of a store in the folder: a day of the simulated fleet and one cycle.

    Its day ended within the last ten minutes; one that takes 9 CPU s to make is copied till then,
    by all processes of the run. The folder is one of `tmp_path_factory`.
    """
    base = folder.parent.parent if "PYTEST_XDIST_WORKER" in os.environ else folder.parent
    made = base / f"demo-{int(time.monotonic() // _SECONDS_KEPT)}.duckdb"
    with (base / "demo.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            _make(made)
    return f"duckdb:///{copy(made, folder / 'demo.duckdb')}"


def _make(made: Path) -> None:
    with TemporaryDirectory(dir=made.parent) as folder:
        path = Path(folder) / "demo.duckdb"
        words = ["--quiet", "--store", f"duckdb:///{path}", "demo", "--once", "--days", "1"]
        assert main(words) == 0
        path.rename(made)
