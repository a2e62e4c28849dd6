"""`trimtab collect` while its Prometheus dies, hangs, drips, redirects to a login, and returns."""

import json
import time
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest
from beds.faulty_server import (
    asks_upstream,
    drips_body,
    drips_headers,
    faulty_server,
    gzip_bomb,
    hangs,
    says,
    truncates,
)
from beds.prometheus import backfill, free_port
from beds.prometheus_options import prometheus_with

from collectors.simulated_exposition import openmetrics
from collectors.simulated_fleet import SimulatedFleet
from dashboard.cli import main

pytestmark = pytest.mark.prometheus
END = datetime(2026, 1, 8, 12, tzinfo=UTC)
START = END - timedelta(hours=4)
KEY = ["sampled_at", "gpu_uuid", "mig_instance"]


def collect(
    folder: Path, url: str, now: datetime, capsys: pytest.CaptureFixture[str]
) -> tuple[int, dict[str, Any]]:
    """Run the command as a person would; give its code and its row."""
    settings = folder / "trimtab.toml"
    settings.write_text("[prometheus]\ntimeout_seconds = 1.0\nbudget_seconds = 8.0\n")
    code = main(
        [
            *("--quiet", "--settings", str(settings), "--store", f"duckdb:///{folder}/t.duckdb"),
            *("collect", "--prometheus", url, "--lookback", "3", "--now", now.isoformat()),
            *("--format", "json"),
        ]
    )
    (row,) = json.loads(capsys.readouterr().out)
    return code, row


def kept(folder: Path) -> pd.DataFrame:
    """What the store holds, by key."""
    with duckdb.connect(f"{folder}/t.duckdb", read_only=True) as store:
        store.execute("SET TimeZone = 'UTC'")
        return store.execute(f"SELECT * FROM samples ORDER BY {', '.join(KEY)}").df()  # noqa: S608


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame]:
    """The data folder of a Prometheus, and the fleet's own history of three hours."""
    folder = tmp_path_factory.mktemp("tsdb")
    fleet = SimulatedFleet(seed=7, nodes=1)
    history = fleet.history(START, END, 60)
    backfill(openmetrics(fleet, history), folder)
    return folder, history


def same(found: pd.DataFrame, history: pd.DataFrame) -> None:
    """Every sample of the history from three hours before stands there once, and no other."""
    expected = history[history["sampled_at"] > END - timedelta(hours=4)]
    assert not found.duplicated(KEY).any()
    merged = expected.merge(
        found.assign(sampled_at=pd.to_datetime(found["sampled_at"], utc=True)),
        on=KEY,
        suffixes=("", "_found"),
    )
    assert len(merged) == len(expected) == len(found)
    assert (merged["power_watts"] - merged["power_watts_found"]).abs().max() < 1e-4
