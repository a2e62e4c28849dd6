"""More than fifty figures on pages are the API's, which are those of the commands and assistants.

Pages are drawn by Streamlit's own engine, without a browser; tables show three digits. The other
doors are compared with each other in `test_doors.py`.
"""

import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from beds.api_clients import LOCAL, clients
from beds.page_world import page_at, register_world
from factories import H100, make_collected, make_job, make_samples
from starlette.testclient import TestClient

from data.settings.all_settings import Settings
from data.settings.statements import GpuPrice, StatementSettings
from data.store import Store, open_store

pytestmark = pytest.mark.slow
APP = Path(__file__).parents[2] / "dashboard/web/app.py"
NOW = datetime(2026, 3, 20, 12, tzinfo=UTC)
DAY = timedelta(days=1)
TENANTS = ("search", "vision", "ads", "maps")
JOBS = tuple(f"{tenant}/job-{number}" for tenant in TENANTS for number in range(5))
SETTINGS = replace(
    Settings(),
    statement=StatementSettings(prices=(GpuPrice(gpu_model=H100, per_gpu_hour=2.0),)),
)
THREE_DIGITS = 0.0051


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Twenty jobs of four tenants, each with a use and a power of its own, and a free board."""
    times = pd.date_range(NOW - 2 * DAY, NOW, freq="5min").as_unit("us")
    frames = [
        make_samples(
            minutes=len(times), end=NOW, job_id=job, utilization_ratio=0.04 * number,
            gpu_uuid=f"GPU-{number}", memory_used_mib=20_000.0 if job else 0.0,
            power_watts=100.0 + 17.0 * number,
        ).assign(sampled_at=times)
        for number, job in enumerate((*JOBS, ""))
    ]  # fmt: skip
    jobs = tuple(
        make_job(
            job, namespace=job.partition("/")[0], owner=f"owner-{number % 3}", last_seen_at=NOW
        )
        for number, job in enumerate(JOBS)
    )
    with open_store(f"duckdb:///{tmp_path_factory.mktemp('pages')}/t.duckdb") as opened:
        opened.keep(make_collected(pd.concat(frames, ignore_index=True), jobs))
        yield opened


@pytest.fixture(scope="module")
def api(store: Store) -> Iterator[TestClient]:
    """A client of the API on the same store, at the same time, under the same settings."""
    with clients(store, LOCAL, lambda: NOW, settings=SETTINGS) as client:
        yield client(peer="127.0.0.1")


def told(api: TestClient, address: str) -> Any:
    """What the API answers."""
    answer = api.get(f"/api/v1/{address}")
    assert answer.status_code == 200, answer.text
    return answer.json()


def drawn(store: Store, page: str, monkeypatch: pytest.MonkeyPatch, **asked: str) -> pd.DataFrame:
    """The first table of a page, by its first column."""
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    register_world(store, SETTINGS, clock=lambda: NOW)
    app = page_at(page, **asked)
    app.run()
    assert not app.exception
    found = app.dataframe[0].value
    return found.set_index(found.columns[0])


def test_the_page_of_jobs_says_what_the_api_says(
    store: Store, api: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each of twenty jobs: its GPUs, and the idle GPU-hours and utilization of its last day."""
    shown = drawn(store, "jobs", monkeypatch)
    shown.index = [str(link).rpartition("job=")[2].replace("%2F", "/") for link in shown.index]
    span = f"from={NOW - DAY:%Y-%m-%dT%H:%M:%SZ}&to={NOW:%Y-%m-%dT%H:%M:%SZ}"
    used = {row["group"]: row for row in told(api, f"energy?by=job&{span}")["groups"]}
    listed = {row["job_id"]: row for row in told(api, "jobs?limit=1000")["items"]}
    assert sorted(shown.index) == sorted(listed) == sorted(JOBS)
    for job in JOBS:
        row, hours = shown.loc[job], used[job]["gpu_hours"]
        assert row["configuration"].startswith(f"{listed[job]['gpu_count']} × ")
        idle = used[job]["idle_gpu_hours"]
        assert row["idle GPU-hours, 24 h"] == pytest.approx(idle, rel=THREE_DIGITS), job
        assert row["utilization_ratio"] == pytest.approx(1 - idle / hours, rel=THREE_DIGITS), job


def test_the_page_of_costs_says_what_the_api_says(
    store: Store, api: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of each of four tenants and of what nobody held: the cost of the month, and its GPU-hours."""
    shown = drawn(store, "costs", monkeypatch)
    rows = told(api, "statement?by=tenant")["rows"]
    assert sorted(shown.index) == sorted(row["tenant"] for row in rows)
    for row in rows:
        for column, name in (("cost (EUR)", "cost"), ("GPU-hours", "board_hours")):
            there = shown.loc[row["tenant"], column]
            assert there == pytest.approx(row[name], rel=THREE_DIGITS), (row["tenant"], name)
    assert 2 * len(rows) + 3 * len(JOBS) >= 50
