"""A process that holds a DuckDB file and answers commands: `held_store.py URL SECONDS_AHEAD`.

It says `held` on stdout, and ends on SIGTERM. Its clock is ahead by so many seconds.
"""

import os
import signal
import sys
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


@contextmanager
def held(url: str, *, ahead: timedelta = timedelta()) -> Iterator[int]:
    """Have another process hold the store for the block; its number."""
    with TemporaryDirectory() as folder:
        log = Path(folder) / "log"
        log.touch()
        process = fork_trimtab(
            [url, str(ahead.total_seconds())],
            script=Path(__file__),
            folder=Path(__file__).parents[2],
            environ=dict(os.environ),
            log=log,
        )
        try:
            while b"held\n" not in log.read_bytes():
                assert process.poll() is None, log.read_text(encoding="utf-8")
                time.sleep(0.02)
            yield process.pid
        finally:
            process.terminate()
            code = process.wait(timeout=60)
        assert code == 0, log.read_text(encoding="utf-8")


def _hold(url: str, ahead: timedelta) -> None:
    def clock() -> datetime:
        return utc_now() + ahead

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with open_store(url) as store:
        service = DecisionService(store=store, settings=Settings, clock=clock)
        assert store.file
        door = LocalDoor(local_app(store, service, clock), store.file)
        with door.running():
            sys.stdout.write("held\n")
            sys.stdout.flush()
            signal.sigwait({signal.SIGTERM})


if __name__ == "__main__":
    _hold(sys.argv[1], timedelta(seconds=float(sys.argv[2])))
