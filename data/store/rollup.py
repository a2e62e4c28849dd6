"""Keeps the roll-ups in step with the samples, and forgets what is older than its retention.

Every change of samples or allocations marks the hours it touches; those hours are made anew from
what is kept, so the roll-ups follow from the facts alone, in whatever order these came.
"""

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta

import pandas as pd
import sqlalchemy as sa

from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings import RetentionSettings
from data.store import rollup_sql
from data.store.bridge import is_postgres
from data.store.bulk import incoming, put_rows
from data.store.partitions import drop_partitions
from data.units import SECONDS_PER_HOUR

_MAX_HOURS = 12
"""Hours made at once: bounds the memory of the statement for a fleet of thousands."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_RESOLUTIONS = (
    ("samples", "sampled_at", "raw_days"),
    ("five_minute", "slot_start", "five_minute_days"),
    ("hourly", "slot_start", "hourly_days"),
    ("board_xids", "last_seen_at", "five_minute_days"),
)


def mark_hours(connection: sa.Connection, source: str) -> None:
    """Mark the hours that the samples of the relation can change."""
    reach = rollup_sql.REACH_SECONDS
    connection.exec_driver_sql(
        f"""
        INSERT INTO dirty_hours SELECT DISTINCT hour_start FROM (
            SELECT to_timestamp(floor((epoch(sampled_at) + shift) / 3600) * 3600) AS hour_start
            FROM (SELECT DISTINCT sampled_at FROM {source}) AS moments,
                (VALUES (-{reach}), ({reach})) AS near(shift)
        ) AS hours ON CONFLICT DO NOTHING
        """  # noqa: S608 - names of this package only
    )


def mark_spans(connection: sa.Connection, source: str) -> None:
    """Mark the hours that the spans (started_at, until) of the relation can change."""
    connection.exec_driver_sql(
        f"""
        INSERT INTO dirty_hours SELECT hour_start FROM (
            SELECT DISTINCT slot_start AS hour_start FROM hourly
            WHERE slot_start >= (SELECT coalesce(max(since), to_timestamp(0)) FROM retained
                WHERE resolution = 'samples')
        ) AS hours WHERE EXISTS (SELECT 1 FROM {source} AS spans
            WHERE epoch(hours.hour_start) - {rollup_sql.REACH_SECONDS} <= epoch(spans.until)
            AND epoch(hours.hour_start) + 3600 + {rollup_sql.REACH_SECONDS}
                >= epoch(spans.started_at))
        ON CONFLICT DO NOTHING
        """  # noqa: S608
    )


def _dirty_chunks(connection: sa.Connection) -> Iterator[tuple[int, int]]:
    """Yield the dirty hours as [start, end) in s since the epoch, neighbours together."""
    rows = connection.exec_driver_sql(
        "SELECT epoch(hour_start)::BIGINT AS hour FROM dirty_hours ORDER BY hour"
    ).all()
    start = end = None
    for row in rows:
        hour = int(row.hour)
        if start is None or end is None:
            start, end = hour, hour + SECONDS_PER_HOUR
        elif hour == end and end - start < _MAX_HOURS * SECONDS_PER_HOUR:
            end += SECONDS_PER_HOUR
        else:
            yield start, end
            start, end = hour, hour + SECONDS_PER_HOUR
    if start is not None and end is not None:
        yield start, end


def roll_up(
    connection: sa.Connection, *, progress: Callable[[int, int], None] | None = None
) -> int:
    """Make every marked hour anew; give their number."""
    chunks = list(_dirty_chunks(connection))
    for position, (start, end) in enumerate(chunks):
        if progress is not None:
            progress(position, len(chunks))
        if is_postgres(connection):
            from data.store.postgres_rollup import make_postgres_rollup

            make_postgres_rollup(connection, start, end)
        else:
            make_hours(connection, start, end)
    if progress is not None and chunks:
        progress(len(chunks), len(chunks))
    connection.exec_driver_sql("DELETE FROM dirty_hours")
    return sum(end - start for start, end in chunks) // SECONDS_PER_HOUR


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
    return pd.DataFrame(
        [(one.name, one.tdp_watts, one.idle_watts) for one in load_gpu_catalogue()],
        columns=["gpu_model", "tdp_watts", "idle_watts"],
    )


def kept_since(connection: sa.Connection, resolution: str) -> datetime:
    """Return the time before which that resolution was forgotten; the epoch when it never was."""
    row = connection.execute(
        sa.text("SELECT epoch(since) AS since FROM retained WHERE resolution = :resolution"),
        {"resolution": resolution},
    ).first()
    return _EPOCH if row is None else _EPOCH + timedelta(seconds=float(row.since))


def forget(
    connection: sa.Connection, retention: RetentionSettings, now: datetime
) -> dict[str, int]:
    """Delete what is older than its retention, by whole hours; give the rows deleted by table.

    A coarser resolution is complete before the finer one goes: call it when nothing is marked.
    """
    deleted = {}
    for table, column, setting in _RESOLUTIONS:
        oldest = now - timedelta(days=getattr(retention, setting))
        hour = int(oldest.timestamp()) // SECONDS_PER_HOUR * SECONDS_PER_HOUR
        since = _EPOCH + timedelta(seconds=hour)
        if since <= kept_since(connection, table):
            deleted[table] = 0
            continue
        dropped = drop_partitions(connection, table, since)
        if dropped is None:  # somebody reads the table: the next cycle tries again
            deleted[table] = 0
            continue
        gone = connection.execute(
            sa.text(f"DELETE FROM {table} WHERE {column} < :since"),  # noqa: S608
            {"since": since},
        )
        deleted[table] = dropped + int(gone.rowcount)
        kept = pd.DataFrame({"resolution": [table], "since": [since]})
        put_rows(connection, "retained", kept, key=("resolution",))
    return deleted
