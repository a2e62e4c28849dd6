"""`trimtab` as a real process that is forked where everything is imported already.

A server needs 3 CPU s to import what it serves with; a fork has it at once. It runs in a folder and
an environment of its own, has the product's clock of its test, obeys signals and ends as a program
does. That the program itself starts is shown by the tests that run it (`beds.small_page`,
`dashboard/test_told_to_stop.py` and others).
"""

import atexit
import importlib
import json
import os
import pkgutil
import runpy
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from beds.stated_time import ahead_of_the_machine, clock_ahead

_ROOT = Path(__file__).parents[2]


@dataclass
class Forked:
    """A forked process, with what a `Popen` has."""

    pid: int
    returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit status, None while it runs."""
        if self.returncode is None:
            self.returncode = _ask({"poll": self.pid})
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Wait for its end; return the exit status."""
        give_up_at = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > give_up_at:
                raise subprocess.TimeoutExpired("trimtab", timeout)
            time.sleep(0.02)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal while it runs."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM while it runs."""
        self.send_signal(signal.SIGTERM)


def fork_trimtab(
    arguments: Sequence[str],
    *,
    script: Path | None,
    folder: Path,
    environ: dict[str, str],
    log: Path,
) -> Forked:
    """Run `trimtab`, or a script in its place, in a folder; stdout and stderr go to the log."""
    order = {
        "arguments": [str(argument) for argument in arguments],
        "script": str(script or ""),
        "folder": str(folder),
        "environ": environ,
        "log": str(log),
        "seconds_ahead": ahead_of_the_machine().total_seconds(),
    }
    return Forked(_ask(order))


@cache
def _parent() -> "subprocess.Popen[str]":
    paths = os.pathsep.join(str(path) for path in (_ROOT, _ROOT / "tests"))
    parent = subprocess.Popen(
        [sys.executable, "-m", "beds.forked_trimtab"],
        env=os.environ | {"PYTHONPATH": paths},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    atexit.register(parent.communicate)
    return parent


def _ask(order: dict[str, Any]) -> Any:
    parent = _parent()
    assert parent.stdin is not None
    assert parent.stdout is not None
    parent.stdin.write(json.dumps(order) + "\n")
    parent.stdin.flush()
    answer = parent.stdout.readline()
    assert answer, "the process that forks is gone"
    return json.loads(answer)


def _serve() -> dict[str, Any] | None:
    """Answer orders until there are no more; return a program's, in its fork."""
    for line in sys.stdin:
        order: dict[str, Any] = json.loads(line)
        if "poll" in order:
            pid, status = os.waitpid(order["poll"], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if pid else None
        elif (answer := os.fork()) == 0:
            return order
        print(json.dumps(answer), flush=True)  # noqa: T201 the answer
    return None


def _become(order: dict[str, Any]) -> None:
    log = os.open(order["log"], os.O_CREAT | os.O_WRONLY | os.O_APPEND)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for old, new in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(old, new)
    os.closerange(3, max(nothing, log) + 1)
    for stream in (sys.stdout, sys.stderr):
        assert isinstance(stream, TextIOWrapper)
        stream.reconfigure(line_buffering=True)  # who reads the log waits for lines
    os.chdir(order["folder"])
    os.environ.clear()
    os.environ.update(order["environ"])
    sys.argv = [order["script"] or "trimtab", *order["arguments"]]


def _import_all() -> None:
    import dashboard.charts
    import dashboard.web
    from dashboard.web.frame.navigation import PAGES

    # Streamlit runs these itself.
    scripts = {
        "dashboard.web.app",
        *(f"dashboard.web.{row.view}.{tab.view}" for row in PAGES for tab in row.tabs),
    }
    for name in ("dashboard.cli.operate.serve_commands", "dashboard.cycle.run_cycle"):
        importlib.import_module(name)
    for package in (dashboard.charts, dashboard.web):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if module.name not in scripts:
                importlib.import_module(module.name)
    assert threading.active_count() == 1, "a fork would lack these threads"


if __name__ == "__main__":
    _import_all()
    if (own := _serve()) is not None:
        _become(own)
        with clock_ahead(timedelta(seconds=own["seconds_ahead"])):
            if own["script"]:
                runpy.run_path(own["script"], run_name="__main__")
            else:
                from dashboard.cli import program

                program()
