"""Status of the kill switch: the applying process writes it to a file beside its DuckDB store.

The file names the process, the stop file that it obeys, and whether it has seen it. A lock on it
dies with the process, so what a dead one left is never believed. On PostgreSQL the wish is in the
record, and the claim on the part `apply` tells whether anybody obeys it.
"""

import fcntl
import json
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from dashboard.apply.contract.kill_switch import stopped
from dashboard.common.threads import Loop
from data.settings.all_settings import Settings
from data.settings.store import is_postgres_url, store_path

_TICK = timedelta(milliseconds=250)
_STATUS_TIMEOUT_SECONDS = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyingProcess:
    """The process that applies, the stop file it obeys, and whether it has seen it."""

    process: int
    stop_file: Path
    has_stopped: bool


def stop_file_of(settings: Settings) -> Path:
    """Return the stop file of the settings, as a path that means the same everywhere."""
    return Path(settings.apply.stop_file).absolute()


def _status_path(url: str) -> Path:
    path = store_path(url).absolute()
    return path.with_name(f"{path.name}.applier")


def applying_process(url: str) -> ApplyingProcess | None:
    """Return the live process that applies from a DuckDB store, None when there is none."""
    try:
        descriptor = os.open(_status_path(url), os.O_RDONLY)
    except OSError:
        return None
    with os.fdopen(descriptor, encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return _read(file.read())
    return None


def _read(text: str) -> ApplyingProcess:
    data = json.loads(text)
    return ApplyingProcess(
        process=data["process"], stop_file=Path(data["stop_file"]), has_stopped=data["has_stopped"]
    )


def is_obeyed(url: str, *, within: float = _STATUS_TIMEOUT_SECONDS) -> bool:
    """Wait until the process that applies says that it has stopped; False when it does not."""
    deadline = time.monotonic() + within
    while True:
        status = applying_process(url)
        if status is not None and status.has_stopped:
            return True
        if time.monotonic() > deadline:
            return False
        time.sleep(_TICK.total_seconds())


@contextmanager
def announcing(settings: Callable[[], Settings]) -> Iterator[list[Loop]]:
    """Yield the thread that keeps the file true, none on a server; the lock is held for the block.

    Its first round is over when the block begins.
    """
    url = settings().store.url
    if is_postgres_url(url):
        yield []
        return
    descriptor = os.open(_status_path(url), os.O_RDWR | os.O_CREAT, 0o600)
    written = b""

    def tick() -> bool:
        nonlocal written
        path = stop_file_of(settings())
        fields = {
            "process": os.getpid(),
            "stop_file": str(path),
            "has_stopped": stopped(path) is not None,
        }
        text = json.dumps(fields).encode()
        if text != written:
            # Written at once, and blanks behind it: who reads meanwhile finds it whole.
            os.pwrite(descriptor, text.ljust(len(written)), 0)
            os.ftruncate(descriptor, len(text))
            written = text
        return False

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        os.ftruncate(descriptor, 0)
        tick()
        yield [Loop("trimtab-switch", tick, _TICK)]
    finally:
        os.close(descriptor)
