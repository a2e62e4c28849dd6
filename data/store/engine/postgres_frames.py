"""Frames to and from PostgreSQL by COPY in CSV, which Arrow writes and reads without Python rows.

CSV tells an unknown value (nothing) from an empty text (two quotes), and both sides write a double
so that it is read back to the last bit.
"""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg
import pyarrow as pa
import pyarrow.csv
import sqlalchemy as sa

from data.store.engine.postgres_engine import named_failure

_BLOCK = 1 << 20
_KINDS = (
    (pa.types.is_timestamp, "TIMESTAMPTZ"),
    (pa.types.is_boolean, "BOOLEAN"),
    (pa.types.is_integer, "BIGINT"),
    (pa.types.is_floating, "DOUBLE PRECISION"),
)
_ARROW = {
    16: pa.bool_(),
    20: pa.int64(),
    21: pa.int64(),
    23: pa.int64(),
    700: pa.float64(),
    701: pa.float64(),
    1700: pa.float64(),
    1184: pa.timestamp("us", "UTC"),
}
"""By PostgreSQL's number of the type; whatever else there is travels as text."""


def _driver(connection: sa.Connection) -> psycopg.Connection[Any]:
    driver: Any = connection.connection.driver_connection
    return driver  # type: ignore[no-any-return]


@contextmanager
def _store_errors(connection: sa.Connection) -> Iterator[None]:
    """Yield failures of the driver, which SQLAlchemy does not see here, in our words."""
    try:
        yield
    except psycopg.Error as error:
        raise named_failure(connection.engine.url, error) from error


def _kind(kind: pa.DataType) -> str:
    return next((name for is_it, name in _KINDS if is_it(kind)), 'TEXT COLLATE "C"')


def put_incoming(connection: sa.Connection, name: str, rows: pa.Table) -> None:
    """Make a table of the transaction that holds the rows."""
    columns = ", ".join(f"{field.name} {_kind(field.type)}" for field in rows.schema)
    connection.exec_driver_sql(f"CREATE TEMP TABLE {name} ({columns}) ON COMMIT DROP")
    copy_in(connection, name, rows)
    connection.exec_driver_sql(f"ANALYZE {name}")


def drop_incoming(connection: sa.Connection, name: str) -> None:
    """Remove the table again, so that the transaction can make the next one."""
    connection.exec_driver_sql(f"DROP TABLE pg_temp.{name}")


def copy_in(connection: sa.Connection, target: str, rows: pa.Table) -> None:
    """Append the rows to the target, given as `table` or `table (columns)`.

    PostgreSQL cannot hold the character NUL in a text: it becomes the replacement character.
    """
    text = io.BytesIO()
    options = pyarrow.csv.WriteOptions(include_header=False, quoting_style="needed")
    with (
        _store_errors(connection),
        _driver(connection).cursor() as cursor,
        cursor.copy(f"COPY {target} FROM STDIN (FORMAT csv)") as copy,
    ):
        for batch in rows.to_batches(max_chunksize=100_000):
            text.seek(0)
            text.truncate()
            pyarrow.csv.write_csv(batch, text, options)
            copy.write(text.getvalue().replace(b"\0", "\N{REPLACEMENT CHARACTER}".encode()))


def copy_out(connection: sa.Connection, query: str, parameters: dict[str, Any]) -> pa.Table:
    """Return the rows of a query of our own text; the parameters are quoted by libpq's rules."""
    with _copying(connection, query, parameters) as reader:
        return reader.read_all()


def copy_out_batches(connection: sa.Connection, query: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a query a block after the other, however many there are."""
    with _copying(connection, query, {}) as reader:
        yield from reader


@contextmanager
def _copying(
    connection: sa.Connection, query: str, parameters: dict[str, Any]
) -> Iterator[pa.ipc.RecordBatchReader]:
    driver = _driver(connection)
    with _store_errors(connection):
        # COPY takes no parameters of its own.
        text = str(sa.text(query).compile(dialect=connection.dialect))
        with psycopg.ClientCursor(driver) as plain:
            question = plain.mogrify(text, parameters)
        with driver.cursor() as cursor:
            cursor.execute(f"SELECT * FROM ({question}) AS nothing LIMIT 0".encode())  # noqa: S608
            kinds = {
                column.name: _ARROW.get(column.type_code, pa.string())
                for column in cursor.description or ()
            }
            with cursor.copy(f"COPY ({question}) TO STDOUT (FORMAT csv)".encode()) as copy:
                yield _read(_Stream(copy), kinds)


def _read(stream: "_Stream", kinds: dict[str, pa.DataType]) -> Any:
    """Return a reader of record batches; an empty answer has the columns and no rows."""
    schema = pa.schema(list(kinds.items()))
    if not stream.fill():
        return pa.RecordBatchReader.from_batches(schema, [])
    return pyarrow.csv.open_csv(
        pa.PythonFile(stream, mode="r"),
        read_options=pyarrow.csv.ReadOptions(
            column_names=list(kinds), block_size=_BLOCK, use_threads=False
        ),
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            column_types=schema,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            true_values=["t"],
            false_values=["f"],
        ),
    )


class _Stream(io.RawIOBase):
    """The answer of a COPY as a file that is read once, forward."""

    def __init__(self, copy: psycopg.Copy) -> None:
        self._copy = copy
        self._buffer = bytearray()

    def fill(self) -> bool:
        """Fetch until something is there; False at the end."""
        while not self._buffer:
            block = self._copy.read()
            if not block:
                return False
            self._buffer += block
        return True

    def readable(self) -> bool:
        """As a file says it."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return up to `size` bytes, fewer only at the end."""
        count = size if size >= 0 else 1 << 62
        while len(self._buffer) < count and (block := self._copy.read()):
            self._buffer += block
        data = bytes(self._buffer[:count])
        del self._buffer[:count]
        return data
