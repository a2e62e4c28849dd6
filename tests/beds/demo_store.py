"""Stores that take seconds to fill, made once for all processes of a run: that of the demo."""

import fcntl
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from shutil import copy
from tempfile import TemporaryDirectory

from beds.stated_time import clock_at

from dashboard.cli import main

DEMO_END = datetime(2026, 3, 4, 14, tzinfo=UTC)
"""A Wednesday afternoon: what a test says of the demo then, it says in every run."""


def demo_day(folder: Path) -> str:
    """Return the address of a store in the folder: a day of the simulated fleet and one cycle.

    The day ends at `DEMO_END`; a test that asks the product about it runs at that time too (the
    fixture `demo_time`). One that takes 9 CPU s to make is copied by all processes of the run. The
    folder is one of `tmp_path_factory`.
    """
    return made_once("demo-day", lambda url: make_demo(url, DEMO_END), folder)


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


def make_demo(url: str, end: datetime) -> None:
    """Fill a store with a day of the demo that ends at a time, and run one cycle then."""
    with clock_at(end):
        assert main(["--quiet", "--store", url, "demo", "--once", "--days", "1"]) == 0
