"""What a day of `trimtab serve` leaves in memory, descriptors, threads and the write-ahead log.

`python -m benchmarks.soak [--full] [--hours N --minutes M] [--nodes N]`. Two hours with a cycle
every five minutes; with --full a day so, then a week with a cycle an hour; with --hours 24 and
--minutes 1 a day with a cycle a minute, which takes an hour or two. Time is simulated: the next
cycle begins as soon as one has ended, and its clock is that much later. In each simulated hour
every view is opened once in a session that is then closed. Memory is the resident memory of the
process and all that it started; the log is the largest `.wal` seen.
"""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks._page_client import open_page
from benchmarks.first_minute import Served, family_of, free_port
from data.store.record.last_write import log_path

RESULTS = Path(__file__).parent / "results" / "soak.md"
VIEWS = ("", "fleet", "jobs", "forecasts", "plan", "recommendations", "savings", "energy", "health")
FLAT = 0.01
"""Growth an hour that counts as none, as a share of what the first hours had."""
_POLL_SECONDS = 0.2
_GIVE_UP_SECONDS = 4 * 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What the server held at the end of a simulated hour; the largest log within it."""

    hour: int
    memory_mib: float
    descriptors: int
    threads: int
    log_mib: float
    store_mib: float
    cpu_seconds: float


def soak(hours: int, minutes: float, nodes: int) -> Iterator[Held]:
    """Yield what the server holds after each hour. Errors: RuntimeError when it ends or is late."""
    with TemporaryDirectory() as name:
        folder = Path(name)
        port, reached = free_port(), folder / "reached"
        store, log = folder / "soak.duckdb", folder / "said.log"
        command = ("-m", "benchmarks._soak_server", f"--minutes={minutes}", f"--reached={reached}")
        with log.open("wb") as sink:
            process = subprocess.Popen(  # noqa: S603 - our own program
                [sys.executable, *command],
                env=_environ(folder, store, port, nodes),
                stdout=sink,
                stderr=subprocess.STDOUT,
            )
        served = Served(base=f"http://127.0.0.1:{port}", process=process, log=log)
        try:
            served.when_listening()
            for hour in range(1, hours + 1):
                for view in VIEWS:
                    if errors := open_page(served.base, view).errors:
                        raise RuntimeError(f"{view or 'overview'}: {errors}")
                largest = max(_logs_until(hour, reached, log_path(store), served))
                yield _held(served, hour, largest, store)
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(timeout=120)


def _environ(folder: Path, store: Path, port: int, nodes: int) -> dict[str, str]:
    return os.environ | {
        "XDG_STATE_HOME": str(folder / "state"),
        "TRIMTAB_STORE_URL": f"duckdb:///{store}",
        "TRIMTAB_SERVE_PORT": str(port),
        "TRIMTAB_SIMULATED_FLEET_ENABLED": "true",
        "TRIMTAB_SIMULATED_FLEET_NODES": str(nodes),
        "TRIMTAB_SIMULATED_FLEET_STATE_FILE": str(folder / "cluster.json"),
    }


def _logs_until(hour: int, reached: Path, log: Path, served: Served) -> Iterator[float]:
    """Yield the size of the log in MiB again and again until the hour is reached."""
    give_up_at = time.monotonic() + _GIVE_UP_SECONDS
    while time.monotonic() < give_up_at and served.process.poll() is None:
        yield _mib(log)
        text = reached.read_text(encoding="utf-8") if reached.exists() else ""
        if text and float(text) >= hour:
            return
        time.sleep(_POLL_SECONDS)
    raise RuntimeError(
        f"hour {hour} did not come: {served.log.read_text(errors='replace')[-2000:]}"
    )


def _held(served: Served, hour: int, log_mib: float, store: Path) -> Held:
    family = family_of(served.process.pid)
    return Held(
        hour=hour,
        memory_mib=served.memory_mib(),
        descriptors=sum(len(list(Path(f"/proc/{pid}/fd").iterdir())) for pid in family),
        threads=sum(len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in family),
        log_mib=log_mib,
        store_mib=_mib(store),
        cpu_seconds=served.cpu_seconds(),
    )


def _mib(path: Path) -> float:
    try:
        return path.stat().st_size / 2**20
    except FileNotFoundError:
        return 0.0


def text_of(title: str, held: Sequence[Held]) -> str:
    """Return a table of some of the hours, and whether what counts stood still after the first."""
    shown = sorted({*range(0, len(held), max(1, len(held) // 12)), len(held) - 1})
    lines = [
        f"## {title}\n",
        "| hour | memory, MiB | descriptors | threads | largest log, MiB | store, MiB | CPU s |",
        "|---:|---:|---:|---:|---:|---:|---:|",
        *(
            f"| {row.hour} | {row.memory_mib:.0f} | {row.descriptors} | {row.threads} "
            f"| {row.log_mib:.1f} | {row.store_mib:.1f} | {row.cpu_seconds:.0f} |"
            for row in (held[number] for number in shown)
        ),
        "",
    ]
    for name in ("memory_mib", "descriptors", "threads", "log_mib"):
        later = np.array([getattr(row, name) for row in held[1:]], dtype=float)
        slope = float(np.polyfit(np.arange(later.size), later, 1)[0]) if later.size > 1 else 0.0
        share = slope / max(1.0, later[0])
        told = "flat" if share <= FLAT else "**grows**"
        lines.append(
            f"* {name}: {told}, {slope:+.2f} an hour after the first "
            f"(least squares; {100 * share:+.2f} % of hour 2), at most {later.max():.1f}."
        )
    return "\n".join(lines) + "\n"


def main() -> None:
    """Print the tables, and with --full write them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="a day and a week; half an hour")
    parser.add_argument("--hours", type=int, help="so many hours, of one table alone")
    parser.add_argument("--minutes", type=float, default=5.0, help="between its cycles")
    parser.add_argument("--nodes", type=int, default=2, help="nodes of 8 boards")
    parser.add_argument("--data", help="not used: the fleet is simulated")
    options = parser.parse_args()
    runs = [(24, 5.0), (168, 60.0)] if options.full else [(2, 5.0)]
    if options.hours:
        runs = [(options.hours, options.minutes)]
    text = (
        "# Soak\n\n`python -m benchmarks.soak --full`: `trimtab serve` on the simulated fleet, in "
        f"simulated time; {options.nodes * 8} GPUs; every view opened and closed once an hour.\n"
    )
    for hours, minutes in runs:
        held = []
        for row in soak(hours, minutes, options.nodes):
            held.append(row)
            print(row, file=sys.stderr, flush=True)
        text += "\n" + text_of(f"{hours} hours, a cycle every {minutes:g} min", held)
    print(text)
    if options.full:
        RESULTS.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
