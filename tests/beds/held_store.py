"""A process that holds a DuckDB file and answers commands: `held_store.py URL SECONDS_AHEAD`.

It says `held` on stdout, and ends when its stdin does. Its clock is ahead of the machine's by so
many seconds.
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from beds.stated_time import ahead_of_the_machine, clock_ahead

from dashboard.api.unix_socket import LocalDoor, local_app
from dashboard.decisions.service import DecisionService
from data.base.clock import utc_now
from data.settings.all_settings import Settings
from data.store import open_store


@contextmanager
def held(url: str, *, ahead: timedelta = timedelta()) -> Iterator[int]:
    """Have another process hold the store for the block; its number."""
    seconds = (ahead + ahead_of_the_machine()).total_seconds()
    paths = os.pathsep.join(str(path) for path in Path(__file__).parents[1:3])
    with subprocess.Popen(
        [sys.executable, "-m", "beds.held_store", url, str(seconds)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": paths},
    ) as process:
        assert process.stdout
        assert process.stdout.readline() == b"held\n"
        yield process.pid
        assert process.stdin
        process.stdin.close()
        assert process.wait(timeout=60) == 0


def _hold(url: str) -> None:
    with open_store(url) as store:
        service = DecisionService(store=store, settings=Settings, clock=utc_now)
        assert store.file
        door = LocalDoor(local_app(store, service, utc_now), store.file)
        with door.running():
            sys.stdout.write("held\n")
            sys.stdout.flush()
            sys.stdin.read()


if __name__ == "__main__":
    with clock_ahead(timedelta(seconds=float(sys.argv[2]))):
        _hold(sys.argv[1])
