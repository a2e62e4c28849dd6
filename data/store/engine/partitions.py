"""Tables that PostgreSQL keeps in a partition per day or month; DuckDB keeps them whole."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import sqlalchemy as sa

from data.base.errors import StoreBusyError
from data.store.engine.dialects import is_postgres, set_lock_timeout

if TYPE_CHECKING:
    import pandas as pd

_LOCK_TIMEOUT = timedelta(seconds=5)
"""Longest wait for readers to leave a table: it keeps new readers waiting."""
PARTITIONED = {"samples": "D", "five_minute": "M"}
"""The calendar unit of the partitions of a table, as in `migrations/0020_schema.postgres.sql`."""


def make_partitions(connection: sa.Connection, table: str, times: pd.Series) -> None:
    """Make the partitions that rows of these times need."""
    if not is_postgres(connection):
        return
    naive = times.dt.tz_convert("UTC").dt.tz_localize(None)
    for period in naive.dt.to_period(PARTITIONED[table]).unique():
        moment = period.start_time.tz_localize("UTC").to_pydatetime()
        connection.execute(sa.select(sa.func.make_partition(table, moment)))


def drop_partitions(connection: sa.Connection, table: str, before: datetime) -> int | None:
    """Drop the partitions that lie wholly before a time; give the rows that were in them.

    None when readers did not leave the table in time: nothing was dropped then.
    """
    if not is_postgres(connection) or table not in PARTITIONED:
        return 0
    try:
        with connection.begin_nested():
            set_lock_timeout(connection, _LOCK_TIMEOUT)
            dropped = connection.execute(sa.select(sa.func.drop_partitions(table, before)))
            return int(dropped.scalar_one())
    except StoreBusyError:
        return None
