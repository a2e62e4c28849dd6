"""A worker that kills itself before or after the Nth thing it does, with SIGKILL.

Counted are the writes to the store and the commands to the cluster, each with a point before and
one after; 0 never dies. Workers are forked by a process that has worked once itself: each begins
with everything imported, and with no thread, lock or connection of the tests.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from beds.apply_bench import Clock
from beds.file_cluster import FileApplier, FileCluster

from dashboard.apply.worker.worker import Worker
from data.records.lifecycle import OPEN
from data.settings.all_settings import Settings
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


def work(folder: Path, at: int) -> int:
    """Work on the store of a folder; give how many points were passed."""
    fate = Fate(at=at)
    with open_store(f"duckdb:///{folder}/t.duckdb") as opened:
        run(opened, FileCluster(folder / "cluster.json"), fate, folder)
    return fate.passed


@dataclass
class Parent:
    """The process that forks the workers, and the points that its own work passed."""

    process: "subprocess.Popen[str]"
    points: int = 0

    def ask(self, *line: object) -> int:
        """Send a line and give the number that comes back."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(line, default=str) + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def worker(self, folder: Path, at: int) -> int:
        """Let a worker of its own process work on a folder; give its exit code."""
        return self.ask(folder, at)


@contextmanager
def running_parent(folder: Path) -> Iterator[Parent]:
    """A parent that has worked on this folder itself, without dying."""
    paths = os.pathsep.join(str(entry) for entry in Path(__file__).parents[1:3])
    with subprocess.Popen(
        [sys.executable, __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"PYTHONPATH": paths},
    ) as process:
        parent = Parent(process)
        parent.points = parent.ask(folder)
        yield parent
        assert process.stdin
        process.stdin.close()


def fork(folder: Path, at: int) -> int:
    """Work in a process of its own; give its exit code, negative for a signal."""
    child = os.fork()
    if not child:
        work(folder, at)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


if __name__ == "__main__":
    for line in sys.stdin:
        folder, *at = json.loads(line)
        sys.stdout.write(f"{fork(Path(folder), *at) if at else work(Path(folder), 0)}\n")
        sys.stdout.flush()
