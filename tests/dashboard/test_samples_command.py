"""`trimtab samples` and the addresses beside it: pages without a gap, and what cannot be asked."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.api_clients import LOCAL, clients
from beds.stores import filled
from factories import make_collected, make_job, make_samples
from starlette.testclient import TestClient

from dashboard.cli import main
from data.store import Store

JOB = "search/chat"


def fill(store: Store) -> None:
    """Keep two boards of a job for two hours."""
    samples = make_samples(gpus=2, minutes=121).assign(job_id=JOB)
    store.keep(make_collected(samples, (make_job(JOB),)))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """These two hours."""
    with filled(f"duckdb:///{tmp_path}/t.duckdb", fill) as opened:
        yield opened


@pytest.mark.parametrize(
    "query", [f"slots?job={JOB}", "slots?gpu=GPU-0001", "samples?gpu=GPU-0001"]
)
def test_pages_hold_each_row_once(store: Store, query: str) -> None:
    """In order, whatever the size of a page, with the number of all."""
    with clients(store, LOCAL) as client:
        page = client(peer="127.0.0.1")
        whole = page.get(f"/api/v1/{query}&limit=1000").json()
        found: list[object] = []
        cursor = ""
        while cursor is not None:
            part = page.get(f"/api/v1/{query}&limit=7&cursor={cursor}").json()
            found += part["items"]
            cursor = part["next"]
    assert found == whole["items"]
    assert len(found) == whole["total"] > 20


BAD = {
    "slots": (422, "neither a GPU nor a job"),
    "samples": (422, "gpu"),
    "samples?gpu=G&from=2026-01-01T00:00:00Z&to=2026-03-01T00:00:00Z": (422, "31 days"),
    "samples?gpu=G&from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z": (422, "2026-01-02"),
    "samples?gpu=G&from=yesterday": (422, "from"),
    "samples?gpu=G&cursor=bm90aGluZw==": (400, "cursor"),
    "samples?gpu=G&cursor=WyIyMDI2LTAxLTAxIiwiYSIsImIiLCJjIiwiIl0=": (400, "cursor"),
    "slots?gpu=G&cursor=WzEsMl0=": (400, "cursor"),
}


@pytest.mark.parametrize("query", BAD)
def test_what_cannot_be_asked_is_named(store: Store, query: str) -> None:
    """Neither board nor job, ranges too long or empty, cursors of elsewhere or without a zone."""
    with clients(store, LOCAL) as client:
        page: TestClient = client(peer="127.0.0.1")
        answer = page.get(f"/api/v1/{query}")
    assert answer.status_code == BAD[query][0], answer.text
    assert BAD[query][1] in answer.text


def test_the_command_prints_readings_and_slots(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of a board, and of a job by slots alone."""
    address = str(store.reader._engine.url)
    store.close()
    base = ["--quiet", "--store", address, "samples", "--format", "json"]
    assert main([*base, "--gpu", "GPU-0001"]) == 0
    readings = json.loads(capsys.readouterr().out)
    assert {row["gpu_uuid"] for row in readings} == {"GPU-0001"}
    assert main([*base, "--slots", "--job", JOB]) == 0
    slots = json.loads(capsys.readouterr().out)
    assert sum(row["board_seconds"] for row in slots) == pytest.approx(2 * 2 * 3600)
    for words, said in (((), "neither a GPU nor a job"), (("--job", JOB), "--slots")):
        assert main([*base, *words]) == 2
        assert said in capsys.readouterr().err
    assert main([*base, "--gpu", "GPU-none"]) == 0
    assert json.loads(capsys.readouterr().out) == []
