"""A worker that kills itself before or after the Nth thing it does, with SIGKILL.

Counted are the writes to the store and the commands to the cluster, each with a point before and
one after; 0 never dies.
"""

import os
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from beds.apply_bench import Clock
from beds.file_cluster import FileApplier, FileCluster

from dashboard.apply.worker import Worker
from data.records.lifecycle import OPEN
from data.settings import Settings
from data.store import Store, open_store


@dataclass
class Fate:
    """Counts the points at which the process may die."""

    at: int
    passed: int = 0

    def point(self) -> None:
        """Die here when it is time."""
        self.passed += 1
        if self.passed == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def around(self, action: Callable[..., Any]) -> Callable[..., Any]:
        """Put a point before and one after the action."""

        def watched(*arguments: Any, **named: Any) -> Any:
            self.point()
            result = action(*arguments, **named)
            self.point()
            return result

        return watched


def run(store: Store, cluster: FileCluster, fate: Fate, folder: Path) -> None:
    """Work until every recommendation has its outcome."""
    for name in ("take", "write", "release", "finish", "ask"):
        setattr(store.commands, name, fate.around(getattr(store.commands, name)))
    applier = FileApplier(cluster)
    object.__setattr__(applier, "execute", fate.around(applier.execute))
    settings = Settings()
    apply = replace(
        settings.apply,
        enabled=True,
        stop_file=str(folder / "STOP"),
        poll_seconds=0.05,
        watch_minutes=0.0,
    )
    settings = replace(settings, apply=apply)
    clock = Clock()
    worker = Worker(
        store=store,
        settings=lambda: settings,
        appliers=lambda _settings: (applier,),
        clock=clock,
    )
    while any(state in OPEN for state in store.reader.states().values()):
        worker.work_once()
        clock.forward(seconds=1)


def work(store: Path, cluster: Path, at: int, said: Connection) -> None:
    """Work on a store as a process of its own; say how many points were passed at the end."""
    fate = Fate(at=at)
    with open_store(f"duckdb:///{store}") as opened:
        run(opened, FileCluster(cluster), fate, store.parent)
    said.send(fate.passed)
