"""A floor of free space: facts wait before the disk is full, and come by themselves afterwards."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from collectors.shared.collector import Window
from dashboard.cli import main
from dashboard.cycle.context import World
from dashboard.cycle.cycle_thread import CycleState
from dashboard.cycle.run_cycle import collect_and_keep
from dashboard.cycle.wiring import build_world
from dashboard.web.server.prometheus_metrics import OwnMetrics
from data.base.errors import NoRoomError
from data.settings.load import load_settings
from data.store import open_store
from data.store.engine import disk_space

NOW = datetime(2026, 1, 5, 12, tzinfo=UTC)
MEBIBYTE = 2**20
FILLED_MIB = 512


@contextmanager
def filled(path: Path) -> Iterator[None]:
    """Take half a gibibyte of the disk for as long as the block runs."""
    with path.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, FILLED_MIB * MEBIBYTE)
    try:
        yield
    finally:
        path.unlink()


def test_below_the_floor_nothing_is_collected_until_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refusal has its numbers, reading goes on, and what was missed is fetched afterwards."""
    environ = {"TRIMTAB_SIMULATED_FLEET_ENABLED": "true", "TRIMTAB_SIMULATED_FLEET_NODES": "1",
               "TRIMTAB_PROMETHEUS_LOOKBACK_HOURS": "1"}  # fmt: skip
    settings = load_settings(None, environ=environ).settings
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        free = store.reader.free_mib()
        assert free is not None
        monkeypatch.setattr(disk_space, "MIN_FREE_MIB", free - FILLED_MIB / 2)
        world: World = build_world(settings, store=store)
        _reports, first = collect_and_keep(world, NOW)
        with filled(tmp_path / "filler"):
            with pytest.raises(NoRoomError, match=r"below the \d+.* MiB that a cycle needs"):
                collect_and_keep(world, NOW + timedelta(minutes=15))
            assert store.reader.latest_sample_at() == NOW
        _reports, later = collect_and_keep(world, NOW + timedelta(minutes=30))
        whole = Window(start=NOW - timedelta(hours=1), end=NOW + timedelta(minutes=30))
        assert first + later == len(world.collectors[0].collect(whole).samples)
        assert first > later > 0
        text = OwnMetrics(store.reader, CycleState, lambda: False).exposition(NOW).decode()
        (line,) = [
            splitline
            for splitline in text.splitlines()
            if splitline.startswith("trimtab_store_free_bytes ")
        ]
        assert float(line.split()[1]) > MEBIBYTE


def test_doctor_says_that_there_is_no_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names the room that is left and the floor, and ends with 3."""
    monkeypatch.setattr(disk_space, "MIN_FREE_MIB", 1e12)
    url = f"duckdb:///{tmp_path}/t.duckdb"
    open_store(url).close()
    assert main(["--store", url, "doctor"]) == 3
    assert "MiB that a cycle needs" in capsys.readouterr().out
