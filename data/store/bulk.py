"""Frames in and out of DuckDB: rows travel as Arrow, never one by one.

Bulk insert of a registered frame runs at millions of rows per second, `executemany` at about one
thousand.
"""

from collections.abc import Mapping
from typing import Any

import pandas as pd
import pyarrow as pa
import sqlalchemy as sa

_INCOMING = "incoming_frame"
_UTC = "datetime64[us, UTC]"


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
    driver = connection.connection.driver_connection
    if driver is None:
        raise RuntimeError("the connection is closed")
    driver.register(_INCOMING, pa.Table.from_pandas(fresh, preserve_index=False))
    try:
        result = connection.exec_driver_sql(
            f"INSERT INTO {table} ({columns}) SELECT {columns} FROM {_INCOMING}"  # noqa: S608
            f" ANTI JOIN {table} USING ({', '.join(key)})"
        )
        return int(result.scalar_one())
    finally:
        driver.unregister(_INCOMING)


def read_frame(
    connection: sa.Connection, query: str, parameters: Mapping[str, Any] | None = None
) -> pd.DataFrame:
    """Give the rows of a query as a frame; times are UTC-aware, NULL numbers are NaN."""
    cursor = connection.execute(sa.text(query), dict(parameters or {})).cursor
    if cursor is None:
        raise RuntimeError("the query gave no rows")
    frame: pd.DataFrame = cursor.to_arrow_table().to_pandas()
    for name in frame.columns:
        if isinstance(frame[name].dtype, pd.DatetimeTZDtype):
            frame[name] = frame[name].dt.tz_convert("UTC").astype(_UTC)
    return frame
