"""The roll-up of a PostgreSQL store, made in a DuckDB in memory beside it.

The statement is one, with joins and windows that a row store takes minutes for: the samples of the
hours are copied out, rolled up as in a file, and the rows copied back, all in the caller's
transaction. A store rolled up so equals a DuckDB file to the last bit.
"""

from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from data.store.engine.bulk import append_rows, read_frame, read_table
from data.store.engine.migrate import migrate
from data.store.engine.partitions import PARTITIONED, make_partitions
from data.store.rollups import rollup_sql
from data.store.rollups.rollup_hours import clear_hours, make_hours

_CONFIG = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "enable_external_access": "false",
}
_SOURCES = {
    "samples": "sampled_at >= :first AND sampled_at < :last",
    "allocations": "started_at <= :last",
}


def make_postgres_rollup(connection: sa.Connection, start: int, end: int) -> None:
    """Make the roll-ups of whole hours [start, end), s since the epoch, anew, in PostgreSQL."""
    window = {
        "first": datetime.fromtimestamp(start - rollup_sql.REACH_SECONDS, UTC),
        "last": datetime.fromtimestamp(end + rollup_sql.REACH_SECONDS, UTC),
    }
    clear_hours(connection, start, end)
    engine = sa.create_engine(
        "duckdb:///:memory:", connect_args={"config": _CONFIG}, poolclass=sa.StaticPool
    )
    try:
        migrate(engine)
        with engine.begin() as scratch:
            for table, where in _SOURCES.items():
                rows = read_table(connection, f"SELECT * FROM {table} WHERE {where}", window)  # noqa: S608
                append_rows(scratch, table, rows)
            make_hours(scratch, start, end)
            for table in ("five_minute", "hourly"):
                _return(scratch, connection, table)
    finally:
        engine.dispose()


def _return(scratch: sa.Connection, connection: sa.Connection, table: str) -> None:
    rows: Any = read_table(scratch, f"SELECT * FROM {table}")  # noqa: S608
    if table in PARTITIONED:
        slots = read_frame(scratch, f"SELECT DISTINCT slot_start FROM {table}")  # noqa: S608
        make_partitions(connection, table, slots["slot_start"])
    append_rows(connection, table, rows)
