"""The statements that roll whole hours of samples up, in DuckDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.store.engine.bulk import incoming
from data.store.rollups import rollup_sql

if TYPE_CHECKING:
    import pandas as pd


def make_hours(connection: sa.Connection, start: int, end: int) -> None:
    """Make the roll-ups of whole hours [start, end), s since the epoch, anew, in DuckDB."""
    bounds = {"start": float(start), "end": float(end)}
    clear_hours(connection, start, end)
    with incoming(connection, _models(), "incoming_models"):
        connection.execute(sa.text(rollup_sql.FIVE_MINUTES), bounds)
    connection.execute(sa.text(rollup_sql.HOURS), bounds)


def clear_hours(connection: sa.Connection, start: int, end: int) -> None:
    """Delete the roll-ups of [start, end), s since the epoch."""
    for table in ("five_minute", "hourly"):
        connection.execute(
            sa.text(
                f"DELETE FROM {table} WHERE slot_start >= to_timestamp(:start)"  # noqa: S608
                " AND slot_start < to_timestamp(:end)"
            ),
            {"start": float(start), "end": float(end)},
        )


def _models() -> pd.DataFrame:
    import pandas as pd

    return pd.DataFrame(
        [(model.name, model.tdp_watts, model.idle_watts) for model in load_gpu_catalogue()],
        columns=["gpu_model", "tdp_watts", "idle_watts"],
    )
