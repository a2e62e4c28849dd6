"""Ten times the load that 1,000 boards make, kept up: no lag, bounded memory, reading goes on.

TRIMTAB_LOAD_ROUNDS keeps it up for as many intervals of five minutes (`make test-all`).
"""

import os
import statistics
import threading
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from reliability import Measured

from dashboard.cycle.run_cycle import collect_and_keep
from dashboard.cycle.wiring import build_world
from data.settings.all_settings import Settings
from data.settings.load import load_settings
from data.store import StoreReader, open_store

ROUNDS = int(os.environ.get("TRIMTAB_LOAD_ROUNDS", "5"))
INTERVAL = timedelta(minutes=5)
START = datetime(2026, 1, 5, 12, tzinfo=UTC)
WARM_ROUNDS = 13 if ROUNDS > 13 else 3
"""An hour is rolled up anew with each of its rounds, so memory rises until it is whole."""


def ten_times() -> Settings:
    """1,000 boards read every 6 s in place of every minute: 10,000 samples a minute."""
    environ = {
        "TRIMTAB_SIMULATED_FLEET_ENABLED": "true",
        "TRIMTAB_SIMULATED_FLEET_NODES": "125",
        "TRIMTAB_PROMETHEUS_STEP_SECONDS": "6",
        "TRIMTAB_PROMETHEUS_LOOKBACK_HOURS": "0.1",
    }
    return load_settings(None, environ=environ).settings


def used_mib() -> float:
    """The memory that this process has now."""
    pages = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def keep_reading(reader: StoreReader, stop: threading.Event, seconds: list[float]) -> None:
    """Ask what the overview and the fleet page ask, again and again."""
    while not stop.wait(0.2):
        started = time.monotonic()
        latest = reader.latest_sample_at()
        if latest is not None:
            hour = latest - timedelta(hours=1)
            reader.fleet_history(start=hour, end=latest, slot_seconds=300)
            assert not reader.boards(start=hour, end=latest).empty
        seconds.append(time.monotonic() - started)


@pytest.mark.slow_end
def test_ten_times_the_load_is_kept_up(tmp_path: Path, measured: Measured) -> None:
    """Every interval's samples are kept before the next one ends; memory stays where it was."""
    lags, memory, answers = [], [], list[float]()
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        world = build_world(ten_times(), store=store)
        stop = threading.Event()
        reading = threading.Thread(
            target=keep_reading, args=(store.reader_for_pages(), stop, answers)
        )
        reading.start()
        try:
            rows = 0
            for number in range(ROUNDS):
                now = START + number * INTERVAL
                started = time.monotonic()
                rows += collect_and_keep(world, now)[1]
                lags.append(time.monotonic() - started)
                memory.append(used_mib())
                assert store.reader.latest_sample_at() == now
        finally:
            stop.set()
            reading.join()
        assert store.reader.counts()["samples"] == rows
    assert max(lags) < INTERVAL.total_seconds()
    assert max(memory) < max(memory[:WARM_ROUNDS]) + 512
    assert len(answers) >= ROUNDS
    measured(
        f"{rows:,} samples in {ROUNDS} intervals of 300 s: an interval kept in at most "
        f"{max(lags):.1f} s, {max(memory):.0f} MiB, "
        f"reading p95 {statistics.quantiles(answers, n=20, method='inclusive')[-1]:.2f} s"
    )
