"""Moves a whole store to another engine: every row, in one transaction, proven by hashes.

A table's hash is the sum of the hashes of its rows, so that it does not matter in which order an
engine gives them. What arrived is read back and compared before it is committed.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd
import pyarrow as pa
import sqlalchemy as sa

from data.base.errors import StoreError
from data.store.engine import tables
from data.store.engine.bulk import append_rows
from data.store.engine.dialects import Lock, is_postgres
from data.store.engine.partitions import PARTITIONED, make_partitions
from data.store.handles.store import Store
from data.store.record.last_write import ACKNOWLEDGED

_BATCH_ROWS = 100_000
_TIME = pa.timestamp("us", "UTC")
_MIGRATION_TABLE = tables.cursors.name
Progress = Callable[[str, int, int], None]
"""Called with a table's name, the rows done and all of them, reading back included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableProof:
    """The number of rows of a table, and the hash of all of them."""

    table: str
    rows: int
    checksum: str


def copy_store(source: Store, target: Store, *, progress: Progress) -> tuple[TableProof, ...]:
    """Copy every row into an empty store and give the proof of each table.

    Errors: StoreError when the target holds anything, or when a table read back is not what was
    sent; nothing is kept then.
    """
    with _snapshot(source) as reading, target._transaction(*Lock) as writing:  # noqa: SLF001
        names = _tables(reading)
        if names != _tables(writing):
            raise StoreError(
                "the two stores do not have the same tables",
                "Bring both to the newest schema by `trimtab store migrate`.",
            )
        _require_empty(writing, names)
        writing.execute(sa.delete(tables.cursors))
        return tuple(_copy_table(reading, writing, name, progress) for name in names)


def prove(store: Store, *, progress: Progress) -> tuple[TableProof, ...]:
    """Read every row of a store and give the proof of each table. Errors: StoreError."""
    proofs = []
    with _snapshot(store) as reading:
        for name in _tables(reading):
            rows, total = _count(reading, name), _Sum()
            for batch in _batches(reading, name):
                total.add(batch)
                progress(name, total.rows, rows)
            proofs.append(total.proof(name))
    return tuple(proofs)


def _snapshot(store: Store) -> Any:
    """Return a connection that sees one moment, whatever other processes write meanwhile."""
    engine = store._engine  # noqa: SLF001 - this module is the store's own
    if is_postgres(engine):
        return engine.execution_options(isolation_level="REPEATABLE READ").begin()
    return engine.begin()


def _tables(connection: sa.Connection) -> tuple[str, ...]:
    """Name the tables of the store; partitions and what a connection made for itself are none."""
    statement = (
        "SELECT c.relname AS name FROM pg_class AS c JOIN pg_namespace AS n ON n.oid ="
        " c.relnamespace WHERE n.nspname = current_schema() AND c.relkind IN ('r', 'p')"
        " AND NOT c.relispartition"
        if is_postgres(connection)
        else "SELECT table_name AS name FROM duckdb_tables()"
        " WHERE schema_name = current_schema() AND NOT temporary AND NOT internal"
    )
    names = {row.name for row in connection.exec_driver_sql(statement)}
    # A copy that is restored lets nobody in who has signed out since.
    return tuple(sorted(names - {"schema_version", tables.sign_ins.name}))


def _count(connection: sa.Connection, table: str) -> int:
    return int(connection.exec_driver_sql(f"SELECT count(*) {_rows_of(table)}").scalar_one())


def _rows_of(table: str) -> str:
    """Return SQL for the rows of a table that belong to a store, wherever it is kept."""
    condition = f" WHERE name <> '{ACKNOWLEDGED}'" if table == tables.cursors.name else ""
    return f"FROM {table}{condition}"


def _require_empty(connection: sa.Connection, names: tuple[str, ...]) -> None:
    full = [name for name in names if name != _MIGRATION_TABLE and _count(connection, name)]
    if full:
        raise StoreError(
            f"the target is not empty: it holds rows in {', '.join(full)}",
            "Give a fresh file or database; two stores are not merged.",
        )


def _copy_table(
    reading: sa.Connection, writing: sa.Connection, table: str, progress: Progress
) -> TableProof:
    rows = _count(reading, table)
    sent, done = _Sum(), 0
    for batch in _batches(reading, table):
        if table in PARTITIONED:
            slot = batch.column("sampled_at" if table == "samples" else "slot_start")
            make_partitions(writing, table, slot.to_pandas())
        append_rows(writing, table, batch)
        sent.add(batch)
        done += batch.num_rows
        progress(table, done, 2 * rows)
    arrived = _Sum()
    for batch in _batches(writing, table):
        arrived.add(batch)
        progress(table, done + arrived.rows, 2 * rows)
    if (sent.rows, sent.total) != (arrived.rows, arrived.total) or sent.rows != rows:
        raise StoreError(
            f"table {table} arrived with {arrived.rows} rows and hash {arrived.total:016x}, sent "
            f"were {sent.rows} of {rows} with {sent.total:016x}",
            "Nothing was kept; `trimtab audit verify` shows whether the source is whole.",
        )
    return sent.proof(table)


def _batches(connection: sa.Connection, table: str) -> Iterator[pa.Table]:
    """Yield the rows block by block, with the types that both engines have."""
    query = f"SELECT * {_rows_of(table)}"
    if is_postgres(connection):
        from data.store.engine.postgres_frames import copy_out_batches

        batches = copy_out_batches(connection, query)
    else:
        cursor: Any = connection.exec_driver_sql(query).cursor
        batches = cursor.to_arrow_reader(_BATCH_ROWS)
    for batch in batches:
        if batch.num_rows:
            yield _plain(pa.Table.from_batches([batch]))


def _plain(rows: pa.Table) -> pa.Table:
    fields = [
        pa.field(field.name, _TIME if pa.types.is_timestamp(field.type) else field.type)
        for field in rows.schema
    ]
    return rows.cast(pa.schema(fields))


class _Sum:
    """The hashes of rows, added up; columns count by name, so their order does not."""

    def __init__(self) -> None:
        self.rows = 0
        self.total = 0

    def proof(self, table: str) -> TableProof:
        """Return the proof of the rows counted in, all of one table."""
        return TableProof(table=table, rows=self.rows, checksum=f"{self.total:016x}")

    def add(self, rows: pa.Table) -> None:
        """Count the rows in."""
        frame = rows.select(sorted(rows.column_names)).to_pandas()
        hashes = pd.util.hash_pandas_object(frame, index=False).to_numpy()
        self.rows += rows.num_rows
        self.total = (self.total + int(hashes.sum(dtype="uint64"))) % (1 << 64)
