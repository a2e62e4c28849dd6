"""`trimtab store copy`: a store moves to the other engine and back, to the last bit."""

import json
from pathlib import Path

import pytest
from beds.apply_bench import JOB, Bench, fill
from beds.file_cluster import FileCluster
from beds.postgres import PostgresBed
from factories import NOW, make_collected, make_samples

from dashboard.cli import main
from data.base.errors import StoreError
from data.store import Store, open_store
from data.store.handles.copy_store import copy_store

pytestmark = pytest.mark.postgres


@pytest.fixture
def file_url(tmp_path: Path) -> str:
    """A DuckDB store with facts, and the record of a change that was applied and rolled back."""
    cluster = FileCluster(tmp_path / "cluster.json")
    cluster.create({JOB: {"gpus": "4", "model": "H100", "note": ""}})
    url = f"duckdb:///{tmp_path}/from.duckdb"
    with open_store(url) as store:
        fill(store)
        store.keep(make_collected(make_samples(gpus=3), batch_id="more"))
        bench = Bench(store, cluster, tmp_path)
        bench.approve()
        bench.ask()
        bench.work(visits=3)
        bench.roll_back()
        bench.work(visits=5)
    return url


def copied(capsys: pytest.CaptureFixture[str], source: str, target: str) -> dict[str, list[str]]:
    """What the command says of each table."""
    capsys.readouterr()
    assert main(["--quiet", "store", "copy", source, target, "--format", "json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    return {row["table"]: [row["rows"], row["checksum"]] for row in rows}


def rows_of(store: Store) -> dict[str, int]:
    """The rows of each table, but for the cursors: a DuckDB file notes its head among them."""
    return {name: rows for name, rows in store.reader.counts().items() if name != "cursors"}


def test_a_store_moves_to_postgresql_and_back(
    file_url: str, postgres_url: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Counts and hashes of all tables are those of the start, and the record verifies."""
    there = copied(capsys, file_url, postgres_url)
    back = copied(capsys, postgres_url, f"duckdb:///{tmp_path}/back.duckdb")
    assert there == back
    assert there["samples"][0] >= 180
    assert there["journal"][0] > 4
    with (
        open_store(file_url) as first,
        open_store(postgres_url) as server,
        open_store(f"duckdb:///{tmp_path}/back.duckdb") as last,
    ):
        assert server.reader.verify_audit() == last.reader.verify_audit() == ()
        assert first.reader.audit() == server.reader.audit() == last.reader.audit()
        assert rows_of(first) == rows_of(server) == rows_of(last)
        assert first.reader.jobs() == server.reader.jobs()
        later = make_collected(make_samples(end=NOW), batch_id="after")
        assert server.keep(later) == last.keep(later)


def test_a_target_with_rows_is_refused(file_url: str, postgres_url: str) -> None:
    """Two stores are not merged."""
    with open_store(postgres_url) as target:
        target.keep(make_collected())
    with pytest.raises(StoreError, match=r"not empty: it holds rows in batches"):
        main_or_raise("store", "copy", file_url, postgres_url)


def main_or_raise(*arguments: str) -> int:
    """Run a command with its error as an exception."""
    return main(["--quiet", "--debug", *arguments])


def test_a_row_that_did_not_arrive_stops_the_copy(
    file_url: str, postgres: PostgresBed, postgres_url: str
) -> None:
    """What the target changed on the way is found out, and nothing is kept."""
    name = postgres_url.partition("@/")[2].partition("?")[0]
    postgres.admin(
        "CREATE FUNCTION spoil() RETURNS TRIGGER LANGUAGE plpgsql AS"
        " $$ BEGIN NEW.actor := NEW.actor || ' '; RETURN NEW; END $$",
        "CREATE TRIGGER spoil BEFORE INSERT ON audit FOR EACH ROW EXECUTE FUNCTION spoil()",
        database=name,
    )
    with open_store(file_url) as source, open_store(postgres_url) as target:
        with pytest.raises(StoreError, match="table audit arrived with"):
            copy_store(source, target, progress=lambda _table, _done, _all: None)
        assert target.reader.counts()["samples"] == 0


def test_a_missing_source_is_an_error(
    tmp_path: Path, postgres_url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is made in its place."""
    absent = tmp_path / "absent.duckdb"
    assert main(["--quiet", "store", "copy", f"duckdb:///{absent}", postgres_url]) == 1
    assert "there is no store" in capsys.readouterr().err
    assert not absent.exists()
