"""Programs that are killed: each is a child of a process that has imported and compiled everything.

A program whose imports took seconds would hardly ever be killed at its work.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

_ROOT = Path(__file__).parents[2]
_SETTINGS = {
    "TRIMTAB_SIMULATED_FLEET_ENABLED": "true",
    "TRIMTAB_SIMULATED_FLEET_NODES": "1",
    "TRIMTAB_PROMETHEUS_LOOKBACK_HOURS": "2",
    "TRIMTAB_PLANNING_BUDGET_SECONDS": "0.05",
    "TRIMTAB_PLANNING_HORIZON_SLOTS": "8",
}
"""A fleet of one node, whose cycle takes half a second; no thought is forgotten."""
_LARGER = {"TRIMTAB_SIMULATED_FLEET_NODES": "4", "TRIMTAB_PROMETHEUS_LOOKBACK_HOURS": "12"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a program ended: its exit code, what each command printed that ended with 0, stderr."""

    code: int
    printed: tuple[str, ...]
    said: str

    @property
    def killed(self) -> bool:
        """Whether it was killed before it ended."""
        return self.code == -signal.SIGKILL


class Mortals:
    """Runs programs, each in a fork of a warm process."""

    def __init__(self, asked: IO[str], said: IO[str]) -> None:
        self._asked = asked
        self._said = said

    def run(
        self,
        commands: Sequence[Sequence[str]],
        folder: Path,
        *,
        kill_after: float | None = None,
        room_mib: float | None = None,
        **settings: object,
    ) -> Ended:
        """Run commands of `trimtab` one after another, and SIGKILL them after so many seconds.

        What they write goes to files in the folder. A command that fails ends the program, and
        with unlimited memory the test: `room_mib` is what it may take beyond what it begins with.
        """
        order = {
            "commands": [["--quiet", *command] for command in commands],
            "folder": str(folder),
            "kill_after": kill_after,
            "room_mib": room_mib,
            "settings": {name: str(value) for name, value in settings.items()},
        }
        self._asked.write(json.dumps(order) + "\n")
        self._asked.flush()
        answer = self._said.readline()
        assert answer, "the process that forks the programs is gone"
        code = int(answer)
        said = (folder / "stderr").read_text(encoding="utf-8")
        assert room_mib is not None or code in (0, -signal.SIGKILL), said
        done = (folder / "done").read_text(encoding="utf-8").splitlines()
        printed = (Path(folder / name).read_text(encoding="utf-8") for name in done)
        return Ended(code=code, printed=tuple(printed), said=said)


@contextmanager
def running_mortals(folder: Path, *, makes_reports: bool = True) -> Iterator[Mortals]:
    """Start the process that forks the programs; it ends with the block.

    Reports are made without a wait where `makes_reports`, cycles always.
    """
    words = [str(folder / "warm.duckdb"), *(["reports"] if makes_reports else [])]
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TRIMTAB")}
    paths = os.pathsep.join(str(path) for path in (_ROOT, _ROOT / "tests"))
    with subprocess.Popen(
        [sys.executable, "-m", "beds.mortal_programs", *words],
        cwd=folder,
        env=environ | _SETTINGS | {"PYTHONPATH": paths},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == "warm\n"
        yield Mortals(process.stdin, process.stdout)
        process.stdin.close()


def _warm(store: str, *, makes_reports: bool) -> None:
    """Run cycles and a report here, and close what they opened, before anything is forked."""
    from dashboard.cli import main
    from data.store.handles import store as plan_retention

    plan_retention.FORECAST_HOURS = plan_retention.PLAN_HOURS = 1000
    for hour in (12, 13):
        now = f"2024-01-08T{hour}:00:00+00:00"
        assert main(["--quiet", "--store", store, "cycle", "--now", now]) == 0
    if makes_reports:
        assert main(["--quiet", "--store", store, "report", "weekly", "--format", "pdf"]) == 0
    # What a larger fleet with half a day behind it runs is compiled here too: LLVM ends a process
    # that has no room for code.
    os.environ |= _LARGER
    assert main(["--quiet", "--store", f"{store}.larger", "cycle", "--now", now]) == 0
    os.environ |= _SETTINGS


def _run(order: dict[str, Any], folder: Path) -> int:
    """Be the program."""
    from dashboard.cli import main

    os.environ |= order["settings"]
    os.dup2(os.open(folder / "stderr", os.O_CREAT | os.O_TRUNC | os.O_WRONLY), 2)
    if order["room_mib"] is not None:
        used = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0])
        most = used * resource.getpagesize() + int(order["room_mib"] * 2**20)
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.RLIM_INFINITY))
    for number, command in enumerate(order["commands"]):
        os.dup2(os.open(folder / f"out-{number}", os.O_CREAT | os.O_TRUNC | os.O_WRONLY), 1)
        if code := main(command):
            return code
        sys.stdout.flush()
        with (folder / "done").open("a", encoding="utf-8") as done:
            done.write(f"out-{number}\n")
    return 0


def _fork(order: dict[str, Any]) -> int:
    """Run a program in a fork; give how it ended."""
    folder = Path(order["folder"])
    (folder / "done").write_text("", encoding="utf-8")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            code = _run(order, folder)
        except BaseException:  # noqa: BLE001 - whatever ends a program is told
            # With as much memory as there is: the words may be what there was no room for.
            resource.setrlimit(resource.RLIMIT_AS, (resource.RLIM_INFINITY,) * 2)
            traceback.print_exc()
        finally:
            os._exit(code)
    after = order["kill_after"]
    ends = time.monotonic() + (after if after is not None else 120.0)
    while (ended := os.waitpid(child, os.WNOHANG)) == (0, 0) and time.monotonic() < ends:
        time.sleep(0.001)
    if ended == (0, 0):
        os.kill(child, signal.SIGKILL)
        ended = os.waitpid(child, 0)
    return os.waitstatus_to_exitcode(ended[1])


def _serve() -> None:
    """Warm up, then fork a program for every line that comes in."""
    said = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    _warm(f"duckdb:///{sys.argv[1]}", makes_reports="reports" in sys.argv[2:])
    said.write("warm\n")
    said.flush()
    for line in sys.stdin:
        said.write(f"{_fork(json.loads(line))}\n")
        said.flush()


if __name__ == "__main__":
    _serve()
