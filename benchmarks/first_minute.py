"""What the first minute costs, and every command after it, in CPU seconds of all processes.

`python -m benchmarks.first_minute [--only ROW …]`. A new user's folders: an empty cache, an empty
store, a settings file that does not exist; the packages are installed and compiled to bytecode.
CPU seconds are user and system time of the command and all it started. A shared or busy machine
needs more of them for the same work, by up to two thirds from one minute to the next; so each row
is divided by what a fixed piece of work, imports of the standard library, took just before it and
after, relative to the machine of the goals. A real Prometheus answers a day of 32 simulated GPUs
at 60 s.
"""

import argparse
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType

from benchmarks._exporter_dialects import openmetrics
from benchmarks._page_client import open_page
from collectors.simulated.fleet import SimulatedFleet
from data.base.clock import floor_to_slot, utc_now

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "benchmarks" / "results" / "first_minute.md"
PROGRAM = str(Path(sys.executable).with_name("trimtab"))
CONTENT = "are allocated"
"""What the first page says of the fleet as soon as it knows any fact."""
PLANNED = "recommendations, together"
_WORK = (
    "import asyncio, http.client, http.server, email.mime.multipart, json, sqlite3, "
    "xml.dom.minidom, decimal, unittest.mock, multiprocessing.pool, logging.config, argparse, "
    "urllib.request, ctypes.util, tarfile, zipfile, difflib, pydoc"
)
_WORK_SECONDS = 0.113
"""CPU s of that work on the machine of the goals; there `--help` takes 0.104 and `jobs` 0.52."""
_TICKS = os.sysconf("SC_CLK_TCK")
_GIVE_UP_SECONDS = 1500
_POLL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class Goal:
    """A row of the table: what is measured, what it was at 25cb66b, and what it may be at most."""

    what: str
    before: float
    at_most: float | None
    unit: str = "CPU s"


LISTS = MappingProxyType({
    "jobs": (0.84, 0.72),
    "gpus": (0.89, 0.74),
    "findings list": (0.97, 0.87),
    "savings": (0.92, 0.85),
})  # fmt: skip
"""What each list cost at 25cb66b, with a store and without."""
GOALS = {
    "demo page": Goal("demo, first start: to a page with content", 99.7, 20),
    "demo plan": Goal("demo, first start: to its plan", 99.7, None),
    "demo again": Goal("demo, second start: to a page with content", 6.58, 6),
    "demo plan again": Goal("demo, second start: to its plan", 6.58, None),
    "cycle": Goal("first `cycle --prometheus` ever", 102.0, 30),
    "cycle again": Goal("a later one", 3.02, 5),
    "--help": Goal("`--help`", 0.1, 0.15),
    "serve ready": Goal("`serve` ready", 2.76, 2.5),
    "serve memory": Goal("`serve` of the demo fleet after its pages", 616, 400, "MiB"),
    "report": Goal("weekly report as HTML", 1.78, 2.5),
    "report size": Goal("its size", 4.88, 1, "MB"),
    **{name: Goal(f"`{name}`", before[0], 0.7) for name, before in LISTS.items()},
    **{
        f"{name}, no store": Goal(f"`{name}` without a store", before[1], 0.25)
        for name, before in LISTS.items()
    },
}  # fmt: skip


@dataclass(slots=True)
class Place:
    """The folders of a new user, and the commands given there."""

    folder: Path
    cache: str = "cache"

    def environ(self) -> dict[str, str]:
        """Return the environment of a command: nothing of Trimtab, a cache of its own."""
        kept = {name: text for name, text in os.environ.items() if not name.startswith("TRIMTAB")}
        for name in ("NUMBA_CACHE_DIR", "PYTHONDONTWRITEBYTECODE"):
            kept.pop(name, None)
        own = {"XDG_CACHE_HOME": self.cache, "XDG_STATE_HOME": "state"}
        paths = {name: str(self.folder / sub) for name, sub in own.items()}
        return kept | paths | {"PYTHONPATH": str(ROOT)}

    def start(self, store: str, arguments: Sequence[str], log: Path) -> "subprocess.Popen[bytes]":
        """Start a command on a store of this place; what it says goes to `log`."""
        url = f"duckdb:///{self.folder / store}.duckdb"
        with log.open("wb") as sink:
            return subprocess.Popen(  # noqa: S603 - our own program
                [PROGRAM, "--store", url, *arguments],
                cwd=self.folder,
                env=self.environ(),
                stdout=sink,
                stderr=subprocess.STDOUT,
            )

    def spent(self, store: str, *arguments: str, codes: Sequence[int] = (0, 3)) -> float:
        """Run a command to its end; return the CPU seconds. Errors: RuntimeError for its code."""
        log = self.folder / "said.log"
        process = self.start(store, arguments, log)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode not in codes:
            raise RuntimeError(f"{arguments} ended with {process.returncode}: {_end_of(log)}")
        return usage.ru_utime + usage.ru_stime

    @contextmanager
    def served(self, store: str, *arguments: str) -> Iterator["Served"]:
        """Run a command that serves, and stop it."""
        port = free_port()
        log = self.folder / "served.log"
        process = self.start(store, [*arguments, "--port", str(port)], log)
        try:
            yield Served(base=f"http://127.0.0.1:{port}", process=process, log=log)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=120)


@dataclass(frozen=True, slots=True, kw_only=True)
class Served:
    """A dashboard that runs: its address, its process, and what it said."""

    base: str
    process: "subprocess.Popen[bytes]"
    log: Path

    def cpu_seconds(self) -> float:
        """Return the CPU time of the process and of all that it started."""
        return sum(map(_cpu_seconds, family_of(self.process.pid)))

    def memory_mib(self) -> float:
        """Return the resident memory of the process and of all that it started."""
        return sum(map(_resident_mib, family_of(self.process.pid)))

    def when_listening(self) -> float:
        """Return the CPU seconds spent when the port answers."""
        port = int(self.base.rpartition(":")[2])
        return self._when(lambda: _answers(port))

    def when_said(self, text: str) -> float:
        """Return the CPU seconds spent when it has written this."""
        return self._when(lambda: text in self.log.read_text(encoding="utf-8", errors="replace"))

    def when_page_says(self, text: str) -> float:
        """Return the CPU seconds spent when the first page, opened in a new session, says this."""
        self.when_listening()
        return self._when(lambda: text in open_page(self.base, "", names=[text]).said)

    def _when(self, holds: Callable[[], bool]) -> float:
        give_up_at = time.monotonic() + _GIVE_UP_SECONDS
        while time.monotonic() < give_up_at and self.process.poll() is None:
            if holds():
                return self.cpu_seconds()
            time.sleep(_POLL_SECONDS)
        raise RuntimeError(f"it did not come: {_end_of(self.log)}")


def slowness() -> float:
    """Return how many CPU seconds this machine takes now for one of the machine of the goals."""
    environ = {name: text for name, text in os.environ.items() if not name.startswith("PYTHON")}
    spent = []
    for _ in range(5):
        process = subprocess.Popen([sys.executable, "-I", "-c", _WORK], env=environ)  # noqa: S603
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0
        spent.append(usage.ru_utime + usage.ru_stime)
    return max(1.0, sorted(spent)[2] / _WORK_SECONDS)


def _end_of(log: Path) -> str:
    return log.read_text(encoding="utf-8", errors="replace")[-2000:]


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def free_port() -> int:
    """Return a port of loopback that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _status_of(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat after the name; none once the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return []


def family_of(pid: int) -> set[int]:
    """Return a process and its descendants."""
    parents = {
        int(path.name): int(fields[1])
        for path in Path("/proc").iterdir()
        if path.name.isdigit() and (fields := _status_of(int(path.name)))
    }
    family = {pid}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    return family


def _cpu_seconds(pid: int) -> float:
    """Return user and system time of a process and of its ended children."""
    return sum(map(int, _status_of(pid)[11:15])) / _TICKS


def _resident_mib(pid: int) -> float:
    fields = _status_of(pid)
    return int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 2**20 if fields else 0.0


@contextmanager
def recorded_prometheus(folder: Path) -> Iterator[str]:
    """Give the address of a Prometheus that holds a day of 32 simulated GPUs."""
    sys.path.insert(0, str(ROOT / "tests"))
    from beds.prometheus import backfill, running_prometheus

    folder.mkdir()
    fleet = SimulatedFleet(seed=7, nodes=4)
    end = floor_to_slot(utc_now(), 60)
    backfill(openmetrics(fleet, fleet.history(end - timedelta(days=1), end, 60)), folder)
    with running_prometheus(folder) as address:
        yield address


def demo(place: Place) -> Iterator[tuple[str, float]]:
    """Give what two starts of the demo cost, and what it holds after its pages were opened."""
    names = (("demo page", "demo plan"), ("demo again", "demo plan again"))
    for page, plan in names:
        with place.served("demo", "demo") as served:
            yield page, served.when_page_says(CONTENT)
            yield plan, served.when_said(PLANNED)
            if page == "demo again":
                for view in ("", "fleet", "jobs", "forecasts", "plan", "recommendations", "energy"):
                    open_page(served.base, view)
                yield "serve memory", served.memory_mib()


def cycles(place: Place) -> Iterator[tuple[str, float]]:
    """Give what the first cycle on a Prometheus costs, and a later one."""
    place = replace(place, cache="cache of another user")
    with recorded_prometheus(place.folder / "prometheus") as address:
        for name in ("cycle", "cycle again"):
            yield name, place.spent("own", "cycle", "--prometheus", address)


def lists(place: Place) -> Iterator[tuple[str, float]]:
    """Give what the lists cost on the demo's store, and without a store."""
    for name in LISTS:
        yield name, _median(place, "demo", name.split())
        yield f"{name}, no store", _median(place, "none", name.split(), codes=(1,))
    yield "--help", _median(place, "none", ["--help"])


def report(place: Place) -> Iterator[tuple[str, float]]:
    """Give what the weekly report costs and weighs."""
    out = place.folder / "report.html"
    yield (
        "report",
        _median(place, "demo", ["report", "weekly", "--format", "html", "--out", str(out)]),
    )
    yield "report size", out.stat().st_size / 1e6


def serving(place: Place) -> Iterator[tuple[str, float]]:
    """Give what `serve` costs until it answers."""
    with place.served("demo", "serve") as served:
        yield "serve ready", served.when_listening()


def _median(
    place: Place, store: str, arguments: Sequence[str], codes: Sequence[int] = (0, 3)
) -> float:
    return sorted(place.spent(store, *arguments, codes=codes) for _ in range(3))[1]


PARTS = {"demo": demo, "cycles": cycles, "lists": lists, "report": report, "serving": serving}


def table(figures: dict[str, float]) -> str:
    """Return the rows that were measured, each beside what it was and what it may be."""
    lines = ["| what | before | now | at most | |", "|---|---:|---:|---:|---|"]
    for name, goal in GOALS.items():
        if name in figures:
            met = (
                ""
                if goal.at_most is None
                else ("met" if figures[name] <= goal.at_most else "missed")
            )
            shown = (goal.before, figures[name], goal.at_most)
            cells = " | ".join(
                "" if value is None else f"{value:.3g} {goal.unit}" for value in shown
            )
            lines.append(f"| {goal.what} | {cells} | {met} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the table and, when all parts were measured, write it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--only",
        nargs="*",
        choices=PARTS,
        help="these parts (all but cycles need demo), not written",
    )
    parser.add_argument("--full", action="store_true", help="the same")
    parser.add_argument("--data", help="not used: the fleet is simulated")
    options = parser.parse_args()
    figures: dict[str, float] = {}
    before, found = slowness(), []
    with TemporaryDirectory() as folder:
        place = Place(Path(folder))
        for name, part in PARTS.items():
            if not options.only or name in options.only:
                for row, figure in part(place):
                    after = slowness()
                    found.append((before + after) / 2)
                    is_time = GOALS[row].unit == "CPU s"
                    figures[row] = figure / found[-1] if is_time else figure
                    print(f"{row}: {figure:.2f} {GOALS[row].unit}", file=sys.stderr, flush=True)
                    before = after
    text = (
        "# The first minute\n\n`python -m benchmarks.first_minute`: CPU seconds of all processes, "
        "user and system; an empty cache, packages installed. Each is divided by how much slower "
        f"the machine was at that time than that of the goals: {min(found):.2f} to "
        f"{max(found):.2f}. *Before* is 25cb66b, of the first `cycle` d9a8725.\n\n" + table(figures)
    )
    print(text)
    if not options.only:
        RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
