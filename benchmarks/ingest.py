"""Samples into the store, beside a bare DuckDB insert of the same rows; then one whole cycle.

`python -m benchmarks.ingest [--full]`. The small run is 200 GPUs x 1 day, the full one 1,000 GPUs
x 7 days x about 1,200 recurring jobs, both with a sample a minute. The peer does no more than an
INSERT of the same Arrow table and a checkpoint: no key, no merge, no roll-up.
"""

import argparse
import time
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb
import pyarrow as pa

from collectors.shared.collector import Window
from collectors.simulated.fleet import SimulatedFleet, SimulatedFleetCollector
from dashboard.cycle.context import World
from dashboard.cycle.run_cycle import run_cycle
from data.catalogue.carbon_table import load_carbon_table
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.collected import Collected
from data.settings.all_settings import Settings
from data.store import open_store

RESULTS = Path(__file__).parent / "results" / "ingest.md"
END = datetime(2026, 1, 15, 10, tzinfo=UTC)


def bare_insert(collected: Collected, path: Path) -> float:
    """Return the seconds that DuckDB alone needs for the rows."""
    started = time.perf_counter()
    with duckdb.connect(str(path)) as connection:
        rows = pa.Table.from_pandas(collected.samples, preserve_index=False)
        connection.register("rows", rows)
        connection.execute("CREATE TABLE samples AS SELECT * FROM rows")
        connection.execute("CHECKPOINT")
    return time.perf_counter() - started


def stopwatch(into: dict[str, float]) -> Callable[[str, int, int], None]:
    """Return a progress callback that notes when each stage was first heard of."""
    started = time.perf_counter()

    def note(stage: str, _done: int, _total: int) -> None:
        into.setdefault(stage, time.perf_counter() - started)

    return note


def main() -> None:
    """Print the tables and write them to benchmarks/results/ingest.md."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--data", default="../shared/data", help="not used: the fleet is simulated")
    options = parser.parse_args()
    nodes, days = (125, 7) if options.full else (25, 1)
    fleet = SimulatedFleet(seed=7, nodes=nodes)
    collector = SimulatedFleetCollector(fleet=fleet, step_seconds=60)
    collected = collector.collect(Window(start=END - timedelta(days=days), end=END))
    rows = len(collected.samples)
    with TemporaryDirectory() as folder:
        bare = bare_insert(collected, Path(folder) / "bare.duckdb")
        with open_store(f"duckdb:///{folder}/t.duckdb") as store:
            merged: list[float] = []
            started = time.perf_counter()
            store.keep(
                collected, progress=lambda _done, _all: merged.append(time.perf_counter() - started)
            )
            whole = time.perf_counter() - started
            stages: dict[str, float] = {}
            world = World(
                settings=Settings(),
                store=store,
                collectors=(),
                catalogue=load_gpu_catalogue(),
                carbon=load_carbon_table().get("DEU"),
                progress=stopwatch(stages),
            )
            outcome = run_cycle(world, now=END)
    lines = [
        f"{nodes * 8} boards, {days} d, a sample a minute: {rows:,} rows. Seed 7.",
        "",
        "| step | seconds | rows/s | against bare |",
        "|---|---:|---:|---:|",
        *(
            f"| {name} | {seconds:.1f} | {rows / seconds:,.0f} | {seconds / bare:.2f} x |"
            for name, seconds in (
                ("bare DuckDB insert (no key, no merge)", bare),
                ("samples merged by key", merged[0]),
                ("samples merged and rolled up by holder", whole),
            )
        ),
        "",
        (
            f"One cycle on what is stored: {len(outcome.jobs)} jobs, {outcome.seconds:.1f} s, of "
            f"which {stages.get('forecast', 0):.1f} s reading, "
            f"{stages.get('plan', 0) - stages.get('forecast', 0):.1f} s forecasting (Prophet), "
            f"{outcome.seconds - stages.get('plan', 0):.1f} s planning and keeping."
        ),
    ]
    text = "\n".join(lines) + "\n"
    RESULTS.parent.mkdir(exist_ok=True)
    RESULTS.write_text(text, encoding="utf-8")
    print(text)


if __name__ == "__main__":
    main()
