"""Differences of DuckDB and PostgreSQL; nothing outside asks which of the two it speaks to.

Queries are written in what both understand. PostgreSQL gets the few functions that it lacks from
`migrations/0020_schema.postgres.sql` (epoch, epoch_us, hash), and `arg_max` as an ordered array.
Its text sorts and compares by code point (COLLATE "C") as DuckDB's does.
"""

import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from typing import Any

import sqlalchemy as sa

_ARG_MAX = re.compile(r"arg_max\((\w+), (\w+)\)")
_LATEST = r"(array_agg(\1 ORDER BY \2 DESC) FILTER (WHERE \1 IS NOT NULL AND \2 IS NOT NULL))[1]"
_TYPES = ((re.compile(r"\bDOUBLE\b"), "DOUBLE PRECISION"),
          (re.compile(r"\bVARCHAR\b"), 'TEXT COLLATE "C"'))  # fmt: skip
_TEMPORARY = "trimtab_temporary_tables"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCK_SPACE = 0x7472  # 'tr': beside the advisory locks of whoever else uses the database

Transaction = Callable[..., AbstractContextManager[sa.Connection]]
"""Called with the locks that it takes, gives a connection whose writes are kept whole or not."""


class Lock(IntEnum):
    """Objects of one writer at a time, taken in this order, until the transaction ends.

    A DuckDB file has one writer anyway. On PostgreSQL the writers are processes: without the lock
    two of them would append to the audit chain after the same entry, or merge the same sample.
    """

    MIGRATION = 1
    FACTS = 2
    RECORD = 3
    OUTBOX = 4


def is_postgres(connection: sa.Connection | sa.Engine) -> bool:
    """Return whether several processes share this store."""
    return connection.dialect.name == "postgresql"


def hold(connection: sa.Connection, *locks: Lock) -> None:
    """Wait for the locks and keep them until the transaction ends."""
    if is_postgres(connection):
        for lock in sorted(locks):
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK_SPACE, int(lock))))


def claimable(connection: sa.Connection, rows: sa.Select[Any], table: sa.Table) -> sa.Select[Any]:
    """Return the query so that rows of the table which another process is claiming are passed over.

    DuckDB knows no row locks and needs none: its one process claims in one thread at a time.
    """
    return rows.with_for_update(of=table, skip_locked=True) if is_postgres(connection) else rows


def in_dialect(connection: sa.Connection | sa.Engine, query: str) -> str:
    """Return the query in the words of the engine."""
    return _ARG_MAX.sub(_LATEST, query) if is_postgres(connection) else query


def postgres_types(script: str) -> str:
    """Return a script of CREATE and ALTER TABLE with PostgreSQL's names of the types."""
    for pattern, name in _TYPES:
        script = pattern.sub(name, script)
    return script


def count_changed(connection: sa.Connection, statement: str) -> int:
    """Run an INSERT, UPDATE or DELETE of our own text and give the number of rows it changed."""
    result = connection.exec_driver_sql(in_dialect(connection, statement))
    # DuckDB tells it as a row, and -1 in its place for some statements.
    return int(result.rowcount if is_postgres(connection) else result.scalar_one())


def make_temporary(connection: sa.Connection, name: str, query: str) -> None:
    """Make a table of the query's rows for the rest of the transaction; it may be made again.

    On DuckDB `drop_temporary` ends it.
    """
    query = in_dialect(connection, query)
    if is_postgres(connection):
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS pg_temp.{name}")
        connection.exec_driver_sql(f"CREATE TEMP TABLE {name} ON COMMIT DROP AS {query}")
        connection.exec_driver_sql(f"ANALYZE {name}")
    else:
        connection.exec_driver_sql(f"CREATE OR REPLACE TEMP TABLE {name} AS {query}")
        connection.info.setdefault(_TEMPORARY, set()).add(name)


def drop_temporary(connection: sa.Connection) -> None:
    """Drop the temporary tables of a transaction: DuckDB holds them as long as the connection."""
    for name in connection.info.pop(_TEMPORARY, ()):
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {name}")


def set_lock_timeout(connection: sa.Connection, waiting: timedelta) -> None:
    """Limit the wait for a lock in this transaction: a wait for a table makes others wait."""
    if is_postgres(connection):
        milliseconds = int(waiting.total_seconds() * 1000)
        connection.exec_driver_sql(f"SET LOCAL lock_timeout = {milliseconds}")


def as_utc(at: Any) -> datetime:
    """Return a time from the driver as a standard UTC datetime."""
    elapsed: timedelta = at - EPOCH
    return EPOCH + elapsed


def next_sequence(connection: sa.Connection, table: sa.Table) -> int:
    """Return the number of the table's next row."""
    highest = connection.execute(sa.select(sa.func.max(table.c.sequence))).scalar_one()
    return int(highest or 0) + 1
