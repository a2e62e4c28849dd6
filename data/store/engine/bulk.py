"""Frames in and out of the store: rows travel as Arrow or by COPY, never one by one.

DuckDB takes a registered Arrow table at millions of rows per second, PostgreSQL a COPY at some
hundred thousand, either of them `executemany` at about one thousand.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from data.store.engine.dialects import count_changed, in_dialect, is_postgres
from data.store.engine.duckdb_engine import failures_named

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

INCOMING = "incoming_frame"
_UTC = "datetime64[us, UTC]"


@contextmanager
def incoming(
    connection: sa.Connection, frame: pd.DataFrame, name: str = INCOMING
) -> Iterator[None]:
    """Make the frame a relation of that name, for this connection and as long as the block runs."""
    import pyarrow as pa

    # Without threads: Python waits without end for one that has no memory to start with.
    rows = _storable(pa.Table.from_pandas(frame, preserve_index=False, nthreads=1))
    if is_postgres(connection):
        from data.store.engine.postgres_frames import drop_incoming, put_incoming

        put_incoming(connection, name, rows)
        yield
        drop_incoming(connection, name)  # after a failure the transaction takes it away
        return
    with _registered(connection, name, rows):
        yield


@contextmanager
def _registered(connection: sa.Connection, name: str, rows: pa.Table) -> Iterator[None]:
    """Make the rows a relation of that name of a DuckDB as long as the block runs."""
    driver: Any = connection.connection.driver_connection
    with failures_named(connection):
        driver.register(name, rows)
    try:
        yield
    finally:
        driver.unregister(name)


def insert_new_rows(
    connection: sa.Connection, table: str, frame: pd.DataFrame, *, key: tuple[str, ...]
) -> int:
    """Insert the rows whose key is not in the table yet; give their number.

    `table` and the column names are ours, never input. Repeats inside the frame count once.
    """
    if frame.empty:
        return 0
    fresh = frame.drop_duplicates(subset=list(key), keep="last")
    columns = ", ".join(fresh.columns)
    same = " AND ".join(f"t.{name} = i.{name}" for name in key)
    with incoming(connection, fresh):
        return count_changed(
            connection,
            f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {INCOMING} AS i"  # noqa: S608
            f" WHERE NOT EXISTS (SELECT 1 FROM {table} AS t WHERE {same})",
        )


def insert_records(
    connection: sa.Connection, table: str, rows: list[dict[str, object]], *, key: tuple[str, ...]
) -> None:
    """Insert the rows whose key is not in the table yet."""
    import pandas as pd

    insert_new_rows(connection, table, pd.DataFrame(rows), key=key)


def put_rows(
    connection: sa.Connection,
    table: str,
    frame: pd.DataFrame,
    *,
    key: tuple[str, ...],
    only: str = "",
) -> None:
    """Insert rows, or give those of the same key these values; `only` is a condition for that.

    `table`, the column names and `only` (of the rows `t` and `i`, before and now) are ours, never
    input. Keys are not repeated. A key that is deleted and inserted anew ends the process of DuckDB
    1.x when its commit fails, for instance on a full disk.
    """
    if frame.empty:
        return
    same = " AND ".join((*(f"t.{name} = i.{name}" for name in key), *filter(None, [only])))
    values = ", ".join(f"{name} = i.{name}" for name in frame.columns if name not in key)
    statement = f"UPDATE {table} AS t SET {values} FROM {INCOMING} AS i WHERE {same}"  # noqa: S608
    if is_postgres(connection):  # its roles may insert and delete: `grants.py`
        statement = f"DELETE FROM {table} AS t USING {INCOMING} AS i WHERE {same}"  # noqa: S608
    with incoming(connection, frame):
        connection.exec_driver_sql(statement)
    insert_new_rows(connection, table, frame, key=key)


def read_table(
    connection: sa.Connection, query: str, parameters: Mapping[str, Any] | None = None
) -> pa.Table:
    """Return the rows of a query of our own text; NULL stays NULL."""
    if is_postgres(connection):
        from data.store.engine.postgres_frames import copy_out

        return copy_out(connection, in_dialect(connection, query), dict(parameters or {}))
    cursor = connection.execute(sa.text(query), dict(parameters or {})).cursor
    if cursor is None:
        raise RuntimeError("the query gave no rows")
    with failures_named(connection):
        table: pa.Table = cursor.to_arrow_table()
    return table


def read_frame(
    connection: sa.Connection, query: str, parameters: Mapping[str, Any] | None = None
) -> pd.DataFrame:
    """Return the rows of a query as a frame, as `frame_of` gives them."""
    return frame_of(read_table(connection, query, parameters))


def frame_of(table: pa.Table) -> pd.DataFrame:
    """Return rows as a frame; times are UTC-aware, NULL numbers are NaN."""
    import pandas as pd

    frame: pd.DataFrame = table.to_pandas()
    for name in frame.columns:
        if isinstance(frame[name].dtype, pd.DatetimeTZDtype):
            frame[name] = frame[name].dt.tz_convert("UTC").astype(_UTC)
    return frame


def append_rows(connection: sa.Connection, table: str, rows: pa.Table) -> None:
    """Append the rows as they are to a table that holds none of them."""
    columns, rows = ", ".join(rows.column_names), _storable(rows)
    if is_postgres(connection):
        from data.store.engine.postgres_frames import copy_in

        copy_in(connection, f"{table} ({columns})", rows)
        return
    with _registered(connection, INCOMING, rows):
        connection.exec_driver_sql(
            f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {INCOMING}"  # noqa: S608
        )


def _storable(rows: pa.Table) -> pa.Table:
    """Return the rows with NUL replaced in texts, as `without_nul` does."""
    import pyarrow as pa
    import pyarrow.compute as pc

    for index, (field, column) in enumerate(zip(rows.schema, rows.columns, strict=True)):
        text = pa.types.is_string(field.type) or pa.types.is_large_string(field.type)
        if text and pc.any(pc.match_substring(column, "\0")).as_py():
            texts = pc.replace_substring(column, "\0", "\N{REPLACEMENT CHARACTER}")
            rows = rows.set_column(index, field, texts)
    return rows
