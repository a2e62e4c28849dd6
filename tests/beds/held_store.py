"""A process that holds a DuckDB file and answers commands: `held_store.py URL SECONDS_AHEAD`.

It says `held` on stdout, and ends when its stdin does. Its clock is ahead by so many seconds.
"""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path

from dashboard.api.local_door import LocalDoor, local_app
from dashboard.decision_service import DecisionService
from data.clock import utc_now
from data.settings import Settings
from data.store import open_store


@contextmanager
def held(url: str, *, ahead: timedelta = timedelta()) -> Iterator[int]:
    """Have another process hold the store for the block; its number."""
    words = [sys.executable, __file__, url, str(ahead.total_seconds())]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"held\n"
        yield process.pid
        assert process.stdin
        process.stdin.close()
        assert process.wait(timeout=60) == 0


def _hold(url: str, ahead: timedelta) -> None:
    def clock() -> datetime:
        return utc_now() + ahead

    with open_store(url) as store:
        service = DecisionService(store=store, settings=Settings, clock=clock)
        assert store.file
        door = LocalDoor(local_app(store, service, clock), store.file)
        with door.running():
            sys.stdout.write("held\n")
            sys.stdout.flush()
            sys.stdin.read()


if __name__ == "__main__":
    _hold(sys.argv[1], timedelta(seconds=float(sys.argv[2])))
