"""How fast the pages answer with 30 days of a large fleet in the store, and what they ask of it.

`python -m benchmarks.pages [--full] [--stores DIR]`: 1,000 GPUs, with --full 10,000 as well. The
stores are written straight as roll-ups (`benchmarks/_stored_fleet.py`), with the thoughts of one
cycle; --stores keeps them for the next run. A real `trimtab serve` answers in a process of its own.
A page is opened as a browser opens it, a new session over HTTP and websocket, until its script has
run; what Chromium then takes to draw is not in these figures, since on a shared machine it swings
by more than what is to be measured (`tests/browser/test_large_fleet.py` draws every view of 10,000
GPUs). Cold is the first answer after the start of the server, which meanwhile asks its own reader
what pages ask first; warm is every later one.
"""

import argparse
import json
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urlencode

from benchmarks._page_client import Answer, open_page
from benchmarks._stored_cycle import write_cycle
from benchmarks._stored_fleet import FINE_DAYS, StoredFleet, write_facts
from data.base.clock import floor_to_slot, utc_now
from data.settings.all_settings import Settings
from data.store import open_store
from data.store.engine.duckdb_engine import open_engine
from data.store.engine.migrate import migrate

RESULTS = Path(__file__).parent / "results" / "pages.md"
DAYS = 30
TARGET_SECONDS = 1.0
_STALE = timedelta(hours=12)
_START_SECONDS = 300
VIEWS = (
    "overview",
    "fleet",
    "facility",
    "jobs",
    "job",
    "forecasts",
    "plan",
    "recommendations",
    "new_job",
    "costs",
    "savings",
    "energy",
    "reports",
    "audit",
    "health",
    "settings",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One view: its answers, the first one cold, and the questions of the cold and a warm one.

    A question is a name with times called and ms.
    """

    view: str
    answers: tuple[Answer, ...]
    cpu_seconds: tuple[float, ...]
    cold: dict[str, tuple[int, float]]
    warm: dict[str, tuple[int, float]]


def stored(folder: Path, nodes: int) -> Path:
    """Return a store of that many nodes, made unless a fresh one is there."""
    path = folder / f"pages-{nodes}.duckdb"
    if path.is_file():
        with open_store(f"duckdb:///{path}", create=False) as store:
            latest = store.reader.latest_sample_at()
        if latest is not None and utc_now() - latest < _STALE:
            return path
        path.unlink()
    started = time.perf_counter()
    end = floor_to_slot(utc_now(), 300)
    engine = open_engine(path, create=True)
    migrate(engine)
    with engine.begin() as connection:
        write_facts(connection, StoredFleet(seed=7, nodes=nodes, days=DAYS, end=end))
    engine.dispose()
    settings = Settings()
    settings = replace(settings, planning=replace(settings.planning))
    with open_store(f"duckdb:///{path}") as store:
        write_cycle(store, now=end, settings=settings)
    print(f"{path.name}: made in {time.perf_counter() - started:.0f} s", file=sys.stderr)
    return path


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """A running server: its address, where it writes down questions, its process."""

    base: str
    log: Path
    pid: int

    def cpu_seconds(self) -> float:
        """Return the CPU time that it has used."""
        fields = Path(f"/proc/{self.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2]
        user, system = fields.split()[11:13]
        return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


@contextmanager
def served(
    store: Path, folder: Path, settings: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Run `trimtab serve` with a stopwatch on the store, under these settings (environment)."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = folder / "questions.jsonl"
    log.touch()
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TRIMTAB")}
    root = Path(__file__).parents[1]
    with (folder / "server.log").open("wb") as sink:
        process = subprocess.Popen(  # noqa: S603 - our own program
            [sys.executable, "-m", "benchmarks._page_server",
             "--store", f"duckdb:///{store.resolve()}", "serve", "--port", str(port)],
            cwd=folder,
            env=environ
            | {"TRIMTAB_PAGES_LOG": str(log), "PYTHONPATH": str(root)}
            | dict(settings or {}),
            stdout=sink,
            stderr=subprocess.STDOUT,
        )  # fmt: skip
    base = f"http://127.0.0.1:{port}"
    try:
        _wait(base, process, folder / "server.log")
        yield Server(base=base, log=log, pid=process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=60)


def _wait(base: str, process: "subprocess.Popen[bytes]", log: Path) -> None:
    give_up_at = time.monotonic() + _START_SECONDS
    while time.monotonic() < give_up_at and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{base}/livez", timeout=5):  # noqa: S310 - loopback
                return
        except OSError:
            time.sleep(0.2)
    raise RuntimeError(f"the server did not come up: {log.read_text(encoding='utf-8')[-2000:]}")


def measured(server: Server, view: str, query: str, opens: int) -> Timed:
    """Open a view once cold and then `opens` times."""
    path = "" if view == "overview" else view
    answers, questions, cpu = [], [], []
    for _ in range(1 + opens):
        before, spent = server.log.stat().st_size, server.cpu_seconds()
        answers.append(open_page(server.base, path, query))
        cpu.append(server.cpu_seconds() - spent)
        questions.append(_questions(server.log, before))
    return Timed(
        view=view,
        answers=tuple(answers),
        cpu_seconds=tuple(cpu),
        cold=questions[0],
        warm=questions[-1],
    )


def _questions(log: Path, offset: int) -> dict[str, tuple[int, float]]:
    """Return what the script thread asked since `offset`: name to (times, ms)."""
    found: dict[str, list[float]] = defaultdict(list)
    with log.open(encoding="utf-8") as file:
        file.seek(offset)
        for line in file:
            one = json.loads(line)
            if "ScriptRunner" in one["thread"]:
                found[one["name"]].append(1000 * one["seconds"])
    return {name: (len(times), sum(times)) for name, times in found.items()}


def p95(values: list[float]) -> float:
    """Return the 95th percentile."""
    return statistics.quantiles(values, n=20, method="inclusive")[-1]


def _asked(questions: dict[str, tuple[int, float]]) -> str:
    slow = sorted(questions.items(), key=lambda item: -item[1][1])
    shown = [f"{name} {count} × {ms:.0f} ms" for name, (count, ms) in slow[:6]]
    return ", ".join(shown) + (f", {len(slow) - 6} more" if len(slow) > 6 else "")


def report(nodes: int, made: list[Timed], counts: dict[str, int]) -> list[str]:
    """Return the lines of one fleet."""
    late = [
        timed.view for timed in made if p95([a.seconds for a in timed.answers[1:]]) > TARGET_SECONDS
    ]
    verdict = "met" if not late else f"missed by {', '.join(late)}"
    return [
        f"## {8 * nodes:,} GPUs, {DAYS} days by the hour, the last {FINE_DAYS} by five minutes",
        "",
        (
            f"{counts['five_minute']:,} five-minute rows, {counts['hourly']:,} hourly, "
            f"{counts['jobs']:,} jobs, {counts['forecasts']:,} forecasts, "
            f"{counts['recommendations']:,} recommendations. p95 warm below "
            f"{TARGET_SECONDS:g} s: {verdict}."
        ),
        "",
        (
            "| view | cold, s | warm p50, s | warm p95, s | CPU cold, s | CPU warm, s | MiB "
            "| asked cold (times × ms in all) | asked warm |"
        ),
        "|---|---:|---:|---:|---:|---:|---:|---|---|",
        *(
            f"| {timed.view} | {timed.answers[0].seconds:.2f} "
            f"| {statistics.median(warm):.2f} | {p95(warm):.2f} "
            f"| {timed.cpu_seconds[0]:.2f} | {statistics.median(timed.cpu_seconds[1:]):.2f} "
            f"| {timed.answers[-1].mebibytes:.2f} | {_asked(timed.cold)} | {_asked(timed.warm)} |"
            for timed in made
            for warm in ([answer.seconds for answer in timed.answers[1:]],)
        ),
        "",
    ]


def run(folder: Path, nodes: int, opens: int, views: list[str]) -> list[str]:
    """Return the lines for a fleet of that many nodes."""
    path = stored(folder, nodes)
    with open_store(f"duckdb:///{path}", create=False) as store:
        counts = store.reader.counts()
        plan = store.reader.latest_plan()
    job = plan.jobs[len(plan.jobs) // 2].job_id if plan else ""
    made = []
    with TemporaryDirectory() as place, served(path, Path(place)) as server:
        for view in views:
            query = urlencode({"job": job}) if view == "job" else ""
            one = measured(server, view, query, opens)
            made.append(one)
            errors = [text for answer in one.answers for text in answer.errors]
            if errors:
                written = (Path(place) / "server.log").read_text(encoding="utf-8")
                raise RuntimeError(f"{view} failed: {errors[0]}\n{written[-3000:]}")
            print(f"{view}: {one.answers[0].seconds:.2f} s cold", file=sys.stderr)
    return report(nodes, made, counts)


def main() -> None:
    """Print the tables and write them to benchmarks/results/pages.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="10,000 GPUs as well")
    parser.add_argument("--data", default="../shared/data", help="not used: the fleet is made")
    parser.add_argument("--stores", type=Path, help="folder that keeps the stores made")
    parser.add_argument("--opens", type=int, default=20, help="warm answers per view")
    parser.add_argument("--views", nargs="*", default=list(VIEWS), help="only these views")
    options = parser.parse_args()
    sizes = (125, 1250) if options.full else (125,)
    lines = [
        "# Pages",
        "",
        (
            "`python -m benchmarks.pages --full`. Time of an answer: a new session over HTTP and "
            "websocket until the page's script has run; without drawing. CPU is the server's. "
            "Remembered answers are not asked."
        ),
        "",
    ]
    with TemporaryDirectory() as temporary:
        folder = options.stores or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        for nodes in sizes:
            lines += run(folder, nodes, options.opens, options.views)
    text = "\n".join(lines)
    RESULTS.parent.mkdir(exist_ok=True)
    if options.views == list(VIEWS):
        RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
