"""Queries that one process asks of another, which holds the DuckDB file: how they travel.

A query is text and its values as JSON, a row JSON, a frame Arrow. Only a single SELECT is answered,
in a transaction that reads.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from data.base.errors import StoreError
from data.store.engine.duckdb_engine import failures_named

if TYPE_CHECKING:
    import pyarrow as pa

ROWS, FRAME = "rows", "frame"
_AT = "$at"


def encode(value: object) -> bytes:
    """Return values as JSON, in which a time is told from a text."""
    return json.dumps(value, default=_tagged).encode()


def _tagged(value: object) -> dict[str, str]:
    if isinstance(value, datetime):
        return {_AT: value.isoformat()}
    raise TypeError(f"a query cannot carry a {type(value).__name__}")


def decode(body: bytes) -> Any:
    """Return the decoded value. Errors: ValueError."""
    return json.loads(body, object_hook=_untagged)


def _untagged(document: dict[str, Any]) -> Any:
    return datetime.fromisoformat(document[_AT]) if set(document) == {_AT} else document


def compiled(statement: sa.Executable, dialect: sa.Dialect) -> tuple[str, list[object]]:
    """Return the text of a statement and its values, in the order in which the text takes them."""
    query: Any = statement.compile(  # type: ignore[attr-defined]
        dialect=dialect, compile_kwargs={"render_postcompile": True}
    )
    return str(query), [query.params[name] for name in query.positiontup or ()]


def answer_query(engine: sa.Engine, form: str, text: str, values: Sequence[object]) -> bytes:
    """Return the answer to a query as `ROWS` or a `FRAME`.

    Errors: StoreError for anything but one SELECT, and where the store cannot be read.
    """
    _require_select(text)
    with engine.connect() as connection:
        result = connection.exec_driver_sql(text, tuple(values))
        if form == ROWS:
            return encode({"keys": list(result.keys()), "rows": [list(row) for row in result]})
        if result.cursor is None:
            raise StoreError("the query gives no rows")
        with failures_named(connection):
            table: pa.Table = result.cursor.to_arrow_table()
    import pyarrow as pa

    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue().to_pybytes())


def _require_select(text: str) -> None:
    import duckdb

    try:
        statements = duckdb.extract_statements(text)
    except duckdb.Error as error:
        raise StoreError(f"this is no query: {error}") from error
    if [statement.type for statement in statements] != [duckdb.StatementType.SELECT]:
        raise StoreError("only one SELECT is answered")


def rows_of(body: bytes) -> list[Any]:
    """Return the rows of an answer, whose columns are attributes."""
    document = decode(body)
    keys = sa.engine.result.SimpleResultMetaData(document["keys"])
    rows = iter([tuple(row) for row in document["rows"]])
    return list(sa.engine.result.IteratorResult(keys, rows).all())


def table_of(body: bytes) -> pa.Table:
    """Return the table of an answer."""
    import pyarrow as pa

    with pa.ipc.open_stream(body) as stream:
        return stream.read_all()
