"""How fast the HTTP API answers with 30 days of a large fleet in the store.

`python -m benchmarks.api [--full] [--stores DIR]`: 1,000 GPUs, with --full 10,000 as well, in the
stores of `benchmarks/pages.py`. A real `trimtab serve` answers in a process of its own, once idle
and once beside cycles on a simulated fleet of the same size, one after the other. First one client
asks each address, which gives the CPU time of an answer; then 50 clients ask all of them at once,
each the next when it has its answer. They ask as the one local person, without a token.
"""

import argparse
import http.client
import sys
import threading
import time
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from urllib.parse import urlsplit

from benchmarks.pages import Server, p95, served, stored

RESULTS = Path(__file__).parent / "results" / "api.md"
ADDRESSES = (
    "findings",
    "findings?sort=seen&limit=1000",
    "findings/TT-1",
    "jobs",
    "jobs?limit=1000",
    "gpus",
    "nodes",
    "sources",
    "savings",
    "audit",
)
CLIENTS = 50
TARGET_SECONDS = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressTimes:
    """What one address took: alone in wall and CPU time, and among all clients; kB of an answer."""

    cold: float
    alone: tuple[float, ...]
    cpu_seconds: float
    together: tuple[float, ...]
    kilobytes: float


def _get(client: http.client.HTTPConnection, address: str) -> tuple[float, bytes]:
    started = time.perf_counter()
    client.request("GET", f"/api/v1/{address}")
    answer = client.getresponse()
    body = answer.read()
    if answer.status != 200:
        raise RuntimeError(f"{address}: {answer.status} {body[:300]!r}")
    return time.perf_counter() - started, body


def _connect(server: Server) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(urlsplit(server.base).netloc, timeout=120)


def _together(server: Server, seconds: float) -> dict[str, list[float]]:
    """Return the time of every answer that the clients got within so many seconds."""
    found: dict[str, list[float]] = defaultdict(list)
    end = time.monotonic() + seconds

    def ask(number: int) -> None:
        client = _connect(server)
        while time.monotonic() < end:
            address = ADDRESSES[number % len(ADDRESSES)]
            found[address].append(_get(client, address)[0])
            number += 1

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(CLIENTS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def measured(server: Server, times: int, seconds: float) -> dict[str, AddressTimes]:
    """Return what each address took."""
    client = _connect(server)
    alone = {}
    for address in ADDRESSES:
        cold, body = _get(client, address)
        spent = server.cpu_seconds()
        warm = tuple(_get(client, address)[0] for _ in range(times))
        alone[address] = (cold, warm, (server.cpu_seconds() - spent) / times, len(body) / 1000)
    together = _together(server, seconds)
    return {
        address: AddressTimes(
            cold=cold,
            alone=warm,
            cpu_seconds=cpu,
            kilobytes=size,
            together=tuple(together[address]),
        )
        for address, (cold, warm, cpu, size) in alone.items()
    }


def report(nodes: int, what: str, found: dict[str, AddressTimes]) -> list[str]:
    """Return the lines of one fleet."""
    late = [name for name, text in found.items() if p95(list(text.together)) > TARGET_SECONDS]
    count = sum(len(times.together) for times in found.values())
    verdict = "met" if not late else f"missed by {', '.join(late)}"
    return [
        f"## {8 * nodes:,} GPUs, {what}",
        "",
        f"{CLIENTS} clients got {count:,} answers. p95 below {TARGET_SECONDS:g} s: {verdict}.",
        "",
        "| address | kB | cold, ms | alone p50, ms | CPU, ms | 50 clients p50, ms | p95, ms |",
        "|---|---:|---:|---:|---:|---:|---:|",
        *(
            f"| `{name}` | {text.kilobytes:.0f} | {1000 * text.cold:.0f} "
            f"| {1000 * median(text.alone):.1f} | {1000 * text.cpu_seconds:.1f} "
            f"| {1000 * median(text.together):.0f} | {1000 * p95(list(text.together)):.0f} |"
            for name, text in found.items()
        ),
        "",
    ]


def main() -> None:
    """Print the tables and write them to benchmarks/results/api.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true", help="10,000 GPUs as well")
    parser.add_argument("--data", default="../shared/data", help="not used: the fleet is made")
    parser.add_argument("--stores", type=Path, help="folder that keeps the stores made")
    parser.add_argument("--times", type=int, default=20, help="answers of each address alone")
    parser.add_argument("--seconds", type=float, default=20.0, help="that the clients ask")
    options = parser.parse_args()
    lines = ["# The HTTP API on large fleets", "", str(__doc__).partition("\n\n")[2].strip(), ""]
    with TemporaryDirectory() as place:
        folder = options.stores or Path(place)
        folder.mkdir(parents=True, exist_ok=True)
        for nodes in (125, 1250) if options.full else (125,):
            path = stored(folder, nodes)
            cycles = {
                "TRIMTAB_SIMULATED_FLEET_ENABLED": "true",
                "TRIMTAB_SIMULATED_FLEET_NODES": str(nodes),
                "TRIMTAB_PROMETHEUS_LOOKBACK_HOURS": "1",
                "TRIMTAB_SERVE_CYCLE_MINUTES": "1",
            }
            for what, settings in (("idle", {}), ("beside cycles", cycles)):
                with TemporaryDirectory() as own, served(path, Path(own), settings) as server:
                    found = measured(server, options.times, options.seconds)
                lines += report(nodes, what, found)
                print("\n".join(lines[-len(found) - 8 :]), file=sys.stderr)
    RESULTS.write_text("\n".join(lines), encoding="utf-8")
    print("\n".join(lines))


if __name__ == "__main__":
    main()
