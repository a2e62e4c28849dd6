"""`trimtab collect` while its Prometheus dies, hangs, drips, redirects to a login, and returns."""

import json
import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pandas as pd
import pytest
from beds.faulty_server import (
    Behaviour,
    asks_upstream,
    drips_body,
    drips_headers,
    faulty_server,
    gzip_bomb,
    hangs,
    says,
    truncates,
)
from beds.ports import free_port
from beds.prometheus import backfill
from beds.prometheus_options import prometheus_with

from benchmarks._exporter_dialects import openmetrics
from collectors.prometheus import client, session
from collectors.simulated.fleet import SimulatedFleet
from dashboard.cli import main

pytestmark = pytest.mark.prometheus
END = datetime(2026, 1, 8, 12, tzinfo=UTC)
BUDGET_SECONDS = 8.0
KEY = ["sampled_at", "gpu_uuid", "mig_instance"]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second for a request, and some for a collection."""
    monkeypatch.setattr(session, "TIMEOUT_SECONDS", 1.0)
    monkeypatch.setattr(client, "BUDGET_SECONDS", BUDGET_SECONDS)


def collect(
    folder: Path, url: str, now: datetime, capsys: pytest.CaptureFixture[str]
) -> tuple[int, dict[str, Any]]:
    """Run the command as a person would; give its code and its row."""
    code = main(
        [
            *("--quiet", "--store", f"duckdb:///{folder}/t.duckdb"),
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
        found = store.execute("SELECT * FROM samples")
        return pd.DataFrame(found.fetchall(), columns=[entry[0] for entry in found.description])


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, pd.DataFrame]:
    """The data folder of a Prometheus, and the fleet's own history that it holds."""
    folder = tmp_path_factory.mktemp("tsdb")
    fleet = SimulatedFleet(seed=7, nodes=1)
    history = fleet.history(END - timedelta(hours=4), END, 60)
    backfill(openmetrics(fleet, history), folder)
    return folder, history


def assert_whole(folder: Path, history: pd.DataFrame) -> None:
    """Every sample of the history stands in the store once, and no other of its time."""
    found = kept(folder)
    assert not found.duplicated(KEY).any()
    found["sampled_at"] = pd.to_datetime(found["sampled_at"], utc=True)
    # A collection asks again for the minutes before its own.
    found = found[found["sampled_at"] >= history["sampled_at"].min()]
    merged = history.merge(found, on=KEY, suffixes=("", "_found"))
    assert len(merged) == len(history) == len(found)
    assert (merged["power_watts"] - merged["power_watts_found"]).abs().max() < 1e-4
    assert (merged["job_id"] == merged["job_id_found"]).all()


def test_a_prometheus_that_dies_and_returns_leaves_no_gap(
    tmp_path: Path, recorded: tuple[Path, pd.DataFrame], capsys: pytest.CaptureFixture[str]
) -> None:
    """What was missed while it was down is fetched when it is back, nothing twice."""
    folder, history = recorded
    port = free_port()
    with prometheus_with(folder, port=port) as url:
        assert collect(tmp_path, url, END - timedelta(hours=2), capsys)[0] == 0
    before = len(kept(tmp_path))
    for minutes in (90, 60):
        code, row = collect(tmp_path, url, END - timedelta(minutes=minutes), capsys)
        assert code == 3
        assert row["state"] == "failed"
        assert f"127.0.0.1:{port}" in row["reason"]
        assert row["completeness_ratio"] == 0
    assert len(kept(tmp_path)) == before
    with prometheus_with(folder, port=port) as url:
        for _again in range(2):
            code, row = collect(tmp_path, url, END, capsys)
            assert code == 0
            assert row["completeness_ratio"] > 0.95
    assert_whole(tmp_path, history)


@pytest.mark.parametrize(
    "fault",
    [
        hangs,
        drips_body,
        drips_headers,
        truncates,
        gzip_bomb,
        says(200, b"<html>please sign in</html>"),
        says(302, b"", ("Location", "/login")),
        says(503, b"starting"),
    ],
    ids=["hangs", "drips", "drips-headers", "truncates", "bomb", "login", "redirects", "503"],
)
def test_a_misbehaving_prometheus_costs_bounded_time_and_no_sample(
    tmp_path: Path,
    recorded: tuple[Path, pd.DataFrame],
    capsys: pytest.CaptureFixture[str],
    fault: Behaviour,
) -> None:
    """A fault is told, ends in time, changes nothing kept, and is caught up afterwards."""
    folder, history = recorded
    with prometheus_with(folder) as real, faulty_server(asks_upstream(real), names=()) as server:
        assert collect(tmp_path, server.url, END - timedelta(hours=2), capsys)[0] == 0
        before = len(kept(tmp_path))
        server.script = [fault]
        began = time.monotonic()
        code, row = collect(tmp_path, server.url, END - timedelta(hours=1), capsys)
        assert time.monotonic() - began < BUDGET_SECONDS + 5
        assert (code, row["state"], row["completeness_ratio"]) == (3, "failed", 0)
        assert len(kept(tmp_path)) == before
        server.script = [asks_upstream(real)]
        assert collect(tmp_path, server.url, END, capsys)[0] == 0
    assert_whole(tmp_path, history)


def test_a_part_that_fails_is_named_and_fetched_later(
    tmp_path: Path, recorded: tuple[Path, pd.DataFrame], capsys: pytest.CaptureFixture[str]
) -> None:
    """With some metrics refused the rest is kept, completeness says so, and the gap is filled."""
    folder, history = recorded
    with prometheus_with(folder) as real, faulty_server(asks_upstream(real), names=()) as server:
        # The names, the interval between readings and two metrics; then nothing more.
        server.script = [asks_upstream(real)] * 4 + [says(400, b"no such shard")]
        code, row = collect(tmp_path, server.url, END, capsys)
        assert code == 3
        assert row["state"] == "ran"
        assert row["reason"].startswith("complete only up to ")
        assert 0 < row["completeness_ratio"] < 0.7
        assert all("no such shard" in warning for warning in row["warnings"])
        queries = [str(query["query"]) for query in server.ranges()[2:]]
        refused = {name for text in queries for name in re.findall(r"DCGM_\w+", text)}
        assert len(refused) > 15
        unnamed = [n for n in refused if not any(n in warning for warning in row["warnings"])]
        assert not unnamed, (unnamed, row["warnings"])
        server.script = [asks_upstream(real)]
        code, row = collect(tmp_path, server.url, END, capsys)
        assert row["warnings"] == []
        assert row["completeness_ratio"] > 0.95
    # The first collection reached back three hours.
    assert_whole(tmp_path, history[history["sampled_at"] > END - timedelta(hours=3)])
