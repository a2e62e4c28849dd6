"""A process that holds a DuckDB file and answers commands: `held_store.py URL SECONDS_AHEAD`.

It says `held` on stdout, and ends with SIGTERM. Its clock is ahead by so many seconds.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from beds.forked_trimtab import fork_trimtab

from dashboard.api.local_door import LocalDoor, local_app
from dashboard.decision_service import DecisionService
from data.clock import utc_now
from data.settings import Settings
from data.store import open_store

_PATIENCE = 60


@contextmanager
def held(url: str, *, ahead: timedelta = timedelta()) -> Iterator[int]:
    """Have another process hold the store for the block; its number."""
    with TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        log.touch()
        process = fork_trimtab(
            [url, str(ahead.total_seconds())],
            script=Path(__file__),
            folder=Path(folder),
            environ=dict(os.environ),
            log=log,
        )
        give_up_at = time.monotonic() + _PATIENCE
        while log.read_text(encoding="utf-8") != "held\n":
            assert process.poll() is None, log.read_text(encoding="utf-8")
            assert time.monotonic() < give_up_at
            time.sleep(0.01)
        yield process.pid
        process.terminate()
        code = process.wait(_PATIENCE)
        assert code == 0, f"{code}: {log.read_text(encoding='utf-8')}"


def _hold(url: str, ahead: timedelta) -> None:
    def clock() -> datetime:
        return utc_now() + ahead

    told_to_end = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_signal: told_to_end.set())
    with open_store(url) as store:
        service = DecisionService(store=store, settings=Settings, clock=clock)
        assert store.file
        door = LocalDoor(local_app(store, service, clock), store.file)
        with door.running():
            sys.stdout.write("held\n")
            sys.stdout.flush()
            while not told_to_end.wait(0.05):  # a signal to another thread does not end a wait
                pass


if __name__ == "__main__":
    _hold(sys.argv[1], timedelta(seconds=float(sys.argv[2])))
