"""`trimtab` with a stopwatch on the store: every question of a page is written down.

A line of JSON per question of `StoreReader` goes to the file that TRIMTAB_PAGES_LOG names: its name
and how long it took, the making of records included. Questions that a question asks are its own.
"""

import json
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from dashboard.cli import main
from data.store import StoreReader
from data.store.handles.cached_reader import CachedReader

_asking = threading.local()


def timed(name: str, question: Callable[..., Any], log: Path) -> Callable[..., Any]:
    """Return the question with a stopwatch on it."""

    def ask(*arguments: Any, **named: Any) -> Any:
        if getattr(_asking, "depth", 0):
            return question(*arguments, **named)
        _asking.depth = 1
        started = time.perf_counter()
        try:
            return question(*arguments, **named)
        finally:
            _asking.depth = 0
            line = {
                "name": name,
                "seconds": time.perf_counter() - started,
                "thread": threading.current_thread().name,
            }
            with log.open("a", encoding="utf-8") as file:
                file.write(json.dumps(line) + "\n")

    return ask


def remembered(log: Path) -> Callable[..., Any]:
    """Return `CachedReader.remember` with a stopwatch on what it had to ask anew."""
    remember = CachedReader.remember

    def ask(reader: CachedReader, key: Any, make: Callable[[], Any], **how: bool) -> Any:
        name = key[0] if isinstance(key, tuple) else key
        return remember(reader, key, timed(str(name), make, log), **how)

    return ask


if __name__ == "__main__":
    log = Path(os.environ.pop("TRIMTAB_PAGES_LOG"))
    CachedReader.remember = remembered(log)  # type: ignore[method-assign]
    for kind in StoreReader.__mro__:
        for name, member in vars(kind).items():
            if not name.startswith("_") and callable(member):
                setattr(StoreReader, name, timed(name, member, log))
    sys.exit(main())
