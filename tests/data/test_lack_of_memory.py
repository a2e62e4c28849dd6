"""Memory that is not there has many names; each is told in the same words."""

import errno
from pathlib import Path

import duckdb
import pytest

from data.base.errors import CollectorError, StoreError, lacks_memory
from data.store.engine import duckdb_engine
from data.store.engine.bulk import read_table
from data.store.engine.duckdb_engine import failures_named, open_engine

FAILS_WHILE_FETCHED = (
    "SELECT CASE WHEN range > 500000 THEN error('{}') ELSE 1 END AS one FROM range(1000000)"
)


def came_from(failure: Exception) -> Exception:
    """Return a failure that came from another one."""
    told = CollectorError("no answer")
    told.__cause__ = failure
    return told


@pytest.mark.parametrize(
    "failure",
    [
        MemoryError(),
        OSError(errno.ENOMEM, "Cannot allocate memory"),
        RuntimeError("can't start new thread"),
        RuntimeError("std::bad_alloc"),
        ImportError("libx.so: failed to map segment from shared object"),
        came_from(MemoryError()),
    ],
)
def test_every_name_is_known(failure: Exception) -> None:
    """Of Python, of the system, of threads and libraries, and wherever a failure came from."""
    assert lacks_memory(failure)


@pytest.mark.parametrize(
    "failure",
    [
        OSError(errno.ENOSPC, "No space left on device"),
        RuntimeError("dictionary changed size during iteration"),
        ValueError("the pod was out of memory"),
        came_from(ZeroDivisionError()),
    ],
)
def test_other_failures_are_none(failure: Exception) -> None:
    """Neither a full disk, nor a defect, nor words about somebody else's memory."""
    assert not lacks_memory(failure)


@pytest.mark.parametrize(
    "words",
    [
        "Out of Memory Error",
        "Failed to allocate block of 262144 bytes (bad allocation)",
        "MemoryError: <EMPTY MESSAGE>",
    ],
)
def test_what_fails_while_rows_are_fetched_is_named(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DuckDB makes the Arrow table out of SQLAlchemy's sight.

    One thread: of two, one time in some hundred, it tells only that the other was interrupted.
    """
    monkeypatch.setitem(duckdb_engine.CONFIG, "threads", "1")
    engine = open_engine(tmp_path / "t.duckdb", create=True)
    with (
        engine.connect() as connection,
        pytest.raises(StoreError, match=r"the process ran out of memory using the store .*duckdb"),
    ):
        read_table(connection, FAILS_WHILE_FETCHED.format(words))
    engine.dispose()


def test_an_interruption_by_nobody_is_told_as_one(tmp_path: Path) -> None:
    """A failing thread interrupts the others first: theirs may be the only words that come."""
    lost = duckdb.InterruptException("INTERRUPT Error: Interrupted!")
    engine = open_engine(tmp_path / "t.duckdb", create=True)
    with (
        engine.connect() as connection,
        pytest.raises(StoreError, match=r"broke off .*t\.duckdb, .* Mostly memory ran out"),
        failures_named(connection),
    ):
        raise lost
    engine.dispose()
