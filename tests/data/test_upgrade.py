"""Store and settings of an earlier Trimtab: all that they held is there after.

The code of commit 0e5c5f62 wrote the store: three hours of a simulated node, a cycle, a decision.
The file of settings names every setting of then, at its value; hosts are examples.
"""

import gzip
import json
import tomllib
from pathlib import Path

import pytest
from factories import NOW

from dashboard.cli import main
from data.settings.load import load_settings
from data.settings.renamed import warn_once
from data.store import open_store

THEN = Path(__file__).parents[1] / "recorded/upgrade"
SETTINGS = THEN / "trimtab.toml"
HELD = {"samples": 288, "jobs": 4, "recommendations": 1, "decisions": 1, "audit": 2}
"""Rows of the tables, as counted in the file itself."""


@pytest.fixture
def url(tmp_path: Path) -> str:
    """The store as that Trimtab left it, of schema 20."""
    file = tmp_path / "t.duckdb"
    file.write_bytes(gzip.decompress((THEN / "store.duckdb.gz").read_bytes()))
    return f"duckdb:///{file}"


def test_what_was_stored_is_there(url: str) -> None:
    """The rows of every table, and at a second opening the same."""
    for _opening in range(2):
        with open_store(url) as store, store._engine.connect() as connection:
            rows = {
                table: connection.exec_driver_sql(f"SELECT count(*) FROM {table}").scalar_one()  # noqa: S608
                for table in HELD
            }
            assert rows == HELD


@pytest.mark.parametrize(
    ("words", "rows"),
    [("jobs", 4), ("gpus", 8), ("findings list --all", 1), ("audit list", 2)],
)
def test_a_list_answers_with_the_settings_of_then(
    words: str, rows: int, url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """With the rows of then."""
    given = ["--settings", str(SETTINGS), "--store", url, *words.split(), "--format", "json"]
    assert main(given) in (0, 3)
    assert len(json.loads(capsys.readouterr().out)) == rows


def test_the_record_is_whole(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its chain is followed from an entry of then to one of now."""
    with open_store(url) as store:
        store.append_audit(at=NOW, actor="bert", event="noted", digest="", detail="after it")
    assert main(["--store", url, "audit", "verify"]) == 0
    assert "3 entries" in capsys.readouterr().out


def test_every_setting_of_then_counts_or_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """Each has its value of then, or a line that names it and what to write or expect instead."""
    warn_once.cache_clear()
    held = load_settings(SETTINGS, environ={}).settings
    then = tomllib.loads(SETTINGS.read_text(encoding="utf-8"))
    named = [(section, name) for section, fields in then.items() for name in fields]
    gone = [
        f"{section}.{name}"
        for section, name in named
        if getattr(getattr(held, section, None), name, None) != then[section][name]
    ]
    assert len(named) > 250
    assert [name for name in gone if f"{name} in file" not in caplog.text] == []
