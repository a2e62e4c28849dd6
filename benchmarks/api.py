"""How fast the HTTP API answers with 30 days of a large fleet in the store.

`python -m benchmarks.api [--full] [--stores DIR]`: 1,000 GPUs, with --full 10,000 as well, in the
stores of `benchmarks/pages.py`. A real `trimtab serve` answers in a process of its own, once idle
and once beside cycles on a simulated fleet of the same size, one after the other. First one client
asks each address, which gives the CPU time of an answer; then 50 clients ask all of them at once,
each the next when it has its answer. They ask as the one local person, without a token.

`--sizes N` asks for the sizes of N drawn batch scripts instead, one after the other: launch
commands and described jobs, each recipe for the first time and again (benchmarks/results/size.md).
"""

import argparse
import http.client
import os
import random
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
SIZES = Path(__file__).parent / "results" / "size.md"
SIZE_SECONDS, SEED = 0.1, 20261201
MODELS = ("Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-7B", "meta-llama/Llama-3.1-8B", "Qwen/Qwen2.5-1.5B")
KNOWN = ("tinyllama-1.1b", "llama3-8b", "llama2-13b", "qwen3-8b", "mistral-7b")


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


def _launch(source: random.Random) -> str:
    """Return a drawn batch script with a launch command."""
    gpus, nodes = source.choice((1, 2, 4, 8)), source.choice((1, 1, 1, 2, 4))
    sharding = source.choice(("", "--fsdp full_shard", "--deepspeed zero2.json"))
    options = f"--gres=gpu:h100:{gpus} -N {nodes} --time=0{source.randint(1, 9)}:00:00"
    return (
        f"#!/bin/bash\n#SBATCH {options}\n#TRIMTAB size = 'apply'\n"
        f"srun torchrun --nnodes $SLURM_NNODES --nproc-per-node {gpus} train.py"
        f" --model_name_or_path {source.choice(MODELS)} --bf16 {sharding}"
        f" --per_device_train_batch_size {source.choice((1, 2, 4, 8))}"
        f" --gradient_accumulation_steps {source.choice((1, 2, 8))}"
        f" --max_seq_length {source.choice((512, 2048, 4096))}\n"
    )


def _described(source: random.Random) -> str:
    """Return a drawn batch script whose owner describes the job; it takes any plan."""
    from dashboard.submission.job.command_options import COUNT_OPTIONS

    told = " ".join(f"$TRIMTAB_{name.upper()}" for name in COUNT_OPTIONS)
    lines = (
        "size = 'apply'", "[model]", f"name = '{source.choice(KNOWN)}'", "[training]",
        f"global_batch = {source.choice((16, 32, 64, 128, 256))}",
        f"sequence_length = {source.choice((512, 1024, 2048, 4096))}",
        f"framework = '{source.choice(('torchtitan', 'transformers', 'megatron'))}'",
        "[data]", f"tokens = {source.choice((1e8, 1e9, 1e10))}",
    )  # fmt: skip
    head = "".join(f"#TRIMTAB {line}\n" for line in lines)
    return f"#!/bin/bash\n#SBATCH --time=04:00:00\n{head}srun torchrun train.py {told}\n"


def sizes(server: Server, count: int) -> list[str]:
    """Return the table of so many drawn scripts: half launched, half described."""
    source, client = random.Random(SEED), _connect(server)  # noqa: S311 - a draw
    times: dict[str, list[float]] = defaultdict(list)
    cpu: dict[str, float] = defaultdict(float)
    refused = 0
    for number in range(count + 2):
        draw = (_launch, _described)[number % 2]
        body = draw(source)
        for turn in ("first", "again"):
            what = f"{draw.__name__.removeprefix('_')}, {turn}"
            spent, started = server.cpu_seconds(), time.perf_counter()
            client.request("POST", "/api/v1/size", body, {"Content-Type": "text/plain"})
            answer = client.getresponse()
            answer.read()
            if number >= 2:  # the first of each kind loads what it needs
                times[what].append(time.perf_counter() - started)
                cpu[what] += server.cpu_seconds() - spent
                refused += answer.status != 200
    rows = [
        f"| {what} | {len(took)} | {1000 * cpu[what] / len(took):.0f} | {1000 * median(took):.0f} "
        f"| {1000 * p99(took):.0f} | {'met' if p99(took) < SIZE_SECONDS else 'missed'} |"
        for what, took in sorted(times.items())
    ]
    return [
        f"{count} scripts; {refused // 2} are refused with a reason: nothing of this fleet holds",
        f"them, or they contradict themselves. Goal: p99 below {1000 * SIZE_SECONDS:.0f} ms.",
        "",
        "| script | answers | CPU, ms | p50, ms | p99, ms | goal |",
        "|---|---:|---:|---:|---:|---|",
        *rows,
        "",
    ]


def p99(values: list[float]) -> float:
    """Return the 99th percentile."""
    return sorted(values)[min(len(values) - 1, int(0.99 * len(values)))]


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
    parser.add_argument("--sizes", type=int, help="ask for the sizes of so many scripts instead")
    parser.add_argument("--nodes", type=int, default=125, help="of the fleet of --sizes")
    options = parser.parse_args()
    if options.sizes:
        with TemporaryDirectory() as place:
            path = stored(options.stores or Path(place), options.nodes)
            with served(path, Path(place)) as server:
                table = sizes(server, options.sizes)
        head = [
            "# The size of a job before it is admitted",
            "",
            f"`python -m benchmarks.api --sizes {options.sizes} --nodes {options.nodes}`,",
            f"seed {SEED}: {8 * options.nodes:,} GPUs with 30 days in the store, a real",
            "`trimtab serve`, one client. Again: the same script a second time. Load of the",
            f"machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores; CPU is the server's.",
            "",
        ]
        SIZES.write_text("\n".join([*head, *table]), encoding="utf-8")
        print("\n".join(table))
        return
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
