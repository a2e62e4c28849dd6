"""Keep the roll-ups in step with the samples, and delete what is older than its retention.

Every change of samples or allocations marks the hours it touches. Those hours are made anew from
the stored samples, so the roll-ups follow from the facts alone, whatever the order of arrival.

The roll-up of a PostgreSQL store, made in a DuckDB in memory beside it.

The statement is one, with joins and windows that a row store takes minutes for: the samples of the
hours are copied out, rolled up as in a file, and the rows copied back, all in the caller's
transaction. A store rolled up so equals a DuckDB file to the last bit.

The statements that roll whole hours of samples up, in DuckDB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from data.base.units import SECONDS_PER_HOUR
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings.all_settings import RetentionSettings
from data.store.engine.bulk import append_rows, incoming, put_rows, read_frame, read_table
from data.store.engine.dialects import EPOCH, is_postgres
from data.store.engine.duckdb_engine import CONFIG
from data.store.engine.migrate import make_tables
from data.store.engine.partitions import PARTITIONED, drop_partitions, make_partitions
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
        "duckdb:///:memory:", connect_args={"config": CONFIG}, poolclass=sa.StaticPool
    )
    try:
        with engine.begin() as scratch:
            make_tables(scratch, (*_SOURCES, "five_minute", "hourly"))
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


_MIN_HOURS, _MAX_HOURS = 12, 168
_MAX_SAMPLES = 500_000
"""Hours made at once: as many as hold so many samples, which bounds the statement's memory."""

_RESOLUTIONS = (
    ("samples", "sampled_at", "raw_days"),
    ("five_minute", "slot_start", "five_minute_days"),
    ("hourly", "slot_start", "hourly_days"),
    ("group_hours", "slot_start", "hourly_days"),
    ("job_slots", "slot_start", "five_minute_days"),
    ("board_xids", "last_seen_at", "five_minute_days"),
    ("serving_slots", "slot_start", "five_minute_days"),
    ("board_activity", "slot_start", "five_minute_days"),
    ("contradictions", "slot_start", "five_minute_days"),
    ("job_progress", "reported_at", "five_minute_days"),
    ("quotas", "observed_at", "five_minute_days"),
)


def mark_hours(connection: sa.Connection, source: str) -> None:
    """Mark the hours that the samples of the relation can change."""
    reach = rollup_sql.REACH_SECONDS
    connection.exec_driver_sql(
        f"""
        INSERT INTO dirty_hours SELECT DISTINCT hour_start FROM (
            SELECT to_timestamp(floor((epoch(sampled_at) + shift) / 3600) * 3600) AS hour_start
            FROM (SELECT DISTINCT sampled_at FROM {source}) AS moments,
                (VALUES (-{reach}), (0), ({reach})) AS near(shift)
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


def _hours_at_once(connection: sa.Connection, hours: int) -> int:
    """Return the number of hours to make at once where so many are marked."""
    if hours <= _MIN_HOURS:
        return _MIN_HOURS
    samples = connection.exec_driver_sql(
        "SELECT count(*) FROM samples, (SELECT min(hour_start) AS first_hour,"
        " max(hour_start) + INTERVAL '1 hour' AS until FROM dirty_hours) AS span"
        " WHERE sampled_at >= first_hour AND sampled_at < until"
    ).scalar_one()
    return max(_MIN_HOURS, min(_MAX_HOURS, _MAX_SAMPLES * hours // max(1, int(samples))))


def _dirty_chunks(connection: sa.Connection) -> Iterator[tuple[int, int]]:
    """Yield the dirty hours as [start, end) in s since the epoch, neighbours together."""
    rows = connection.exec_driver_sql(
        "SELECT epoch(hour_start)::BIGINT AS hour FROM dirty_hours ORDER BY hour"
    ).all()
    max_hours = _hours_at_once(connection, len(rows))
    start = end = None
    for row in rows:
        hour = int(row.hour)
        if start is None or end is None:
            start, end = hour, hour + SECONDS_PER_HOUR
        elif hour == end and end - start < max_hours * SECONDS_PER_HOUR:
            end += SECONDS_PER_HOUR
        else:
            yield start, end
            start, end = hour, hour + SECONDS_PER_HOUR
    if start is not None and end is not None:
        yield start, end


def roll_up(
    connection: sa.Connection, *, progress: Callable[[int, int], None] | None = None
) -> int:
    """Make every marked hour anew and return their number."""
    chunks = list(_dirty_chunks(connection))
    for position, (start, end) in enumerate(chunks):
        if progress is not None:
            progress(position, len(chunks))
        make = make_postgres_rollup if is_postgres(connection) else make_hours
        make(connection, start, end)
    if progress is not None and chunks:
        progress(len(chunks), len(chunks))
    connection.exec_driver_sql("DELETE FROM dirty_hours")
    return sum(end - start for start, end in chunks) // SECONDS_PER_HOUR


def retained_since(connection: sa.Connection, resolution: str) -> datetime:
    """Return the time before which that resolution was forgotten; the epoch when it never was."""
    row = connection.execute(
        sa.text("SELECT epoch(since) AS since FROM retained WHERE resolution = :resolution"),
        {"resolution": resolution},
    ).first()
    return EPOCH if row is None else EPOCH + timedelta(seconds=float(row.since))


def forget(
    connection: sa.Connection, retention: RetentionSettings, now: datetime
) -> dict[str, int]:
    """Delete what is older than its retention, by whole hours; return the rows deleted by table.

    A coarser resolution is complete before the finer one goes: call it when nothing is marked.
    """
    deleted = {}
    for table, column, setting in _RESOLUTIONS:
        oldest = now - timedelta(days=getattr(retention, setting))
        hour = int(oldest.timestamp()) // SECONDS_PER_HOUR * SECONDS_PER_HOUR
        since = EPOCH + timedelta(seconds=hour)
        if since <= retained_since(connection, table):
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
        import pandas as pd

        retained = pd.DataFrame({"resolution": [table], "since": [since]})
        put_rows(connection, "retained", retained, key=("resolution",))
    return deleted
