"""A process that holds a DuckDB file and answers commands: `held_store.py URL SECONDS_AHEAD`.

It says `held` in its log, and ends at SIGTERM. Its clock is ahead of that of the tests by so many
seconds.
"""

import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from beds.forked_trimtab import fork_trimtab
from beds.stated_time import clock_ahead

from dashboard.api.unix_socket import LocalDoor, local_app
from dashboard.decisions.service import DecisionService
from data.base.clock import utc_now
from data.settings.all_settings import Settings
from data.store import open_store

_PATIENCE = 60.0


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
            assert time.monotonic() < give_up_at, log.read_text(encoding="utf-8")
            time.sleep(0.01)
        yield process.pid
        process.terminate()
        assert process.wait(timeout=_PATIENCE) == 0


def _hold(url: str) -> None:
    told_to_end = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_signal: told_to_end.set())
    with open_store(url) as store:
        service = DecisionService(store=store, settings=Settings, clock=utc_now)
        assert store.file
        door = LocalDoor(local_app(store, service, utc_now), store.file)
        with door.running():
            sys.stdout.write("held\n")
            sys.stdout.flush()
            # After a halt the signal may come just before an endless wait begins again.
            while not told_to_end.wait(0.1):
                pass


if __name__ == "__main__":
    with clock_ahead(timedelta(seconds=float(sys.argv[2]))):
        _hold(sys.argv[1])
