"""Stores that take seconds to fill, made once for all processes of a run: that of the demo."""

import fcntl
import os
import time
from collections.abc import Callable
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
    return made_once(f"demo-{int(time.monotonic() // _SECONDS_KEPT)}", _make, folder)


def made_once(name: str, make: Callable[[str], object], folder: Path) -> str:
    """Return the address of a copy, in the folder, of the DuckDB store that `make` fills at one."""
    base = folder.parent.parent if "PYTEST_XDIST_WORKER" in os.environ else folder.parent
    made = base / f"{name}.duckdb"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            with TemporaryDirectory(dir=base) as empty:
                path = Path(empty) / made.name
                make(f"duckdb:///{path}")
                path.rename(made)
    return f"duckdb:///{copy(made, folder / made.name)}"


def _make(url: str) -> None:
    assert main(["--quiet", "--store", url, "demo", "--once", "--days", "1"]) == 0
