"""The store of the demo after one cycle, made once for many tests."""

import time
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from dashboard.cli import main

_SECONDS_KEPT = 600


def demo_day(folder: Path) -> str:
    """Return the address of a store in the folder: a day of the simulated fleet and one cycle.

    Its day ended within the last ten minutes; one that takes 9 CPU s to make is copied till then.
    """
    path = folder / "demo.duckdb"
    path.write_bytes(_demo_day(int(time.monotonic() // _SECONDS_KEPT)))
    return f"duckdb:///{path}"


@lru_cache(maxsize=1)
def _demo_day(_period: int) -> bytes:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "demo.duckdb"
        words = ["--quiet", "--store", f"duckdb:///{path}", "demo", "--once", "--days", "1"]
        assert main(words) == 0
        return path.read_bytes()
