"""The tables as SQLAlchemy Core sees them; the migrations make them."""

import sqlalchemy as sa

metadata = sa.MetaData()


def _text(name: str, *, key: bool = False) -> sa.Column[str]:
    return sa.Column(name, sa.String, primary_key=key, nullable=False)


def _count(name: str, *, key: bool = False) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, primary_key=key, nullable=False, autoincrement=False)


def _time(name: str) -> sa.Column[object]:
    return sa.Column(name, sa.DateTime(timezone=True), nullable=False)


batches = sa.Table(
    "batches",
    metadata,
    _text("batch_id", key=True),
    _count("sequence"),
    _text("source"),
    _count("row_count"),
    _text("report"),
)
jobs = sa.Table("jobs", metadata, _text("job_id", key=True), _time("last_seen_at"), _text("record"))
nodes = sa.Table(
    "nodes",
    metadata,
    _text("name", key=True),
    _text("source", key=True),
    _time("seen_at"),
    _text("record"),
)
cycles = sa.Table(
    "cycles",
    metadata,
    _text("cycle_id", key=True),
    _count("sequence"),
    _time("started_at"),
    _time("finished_at"),
    _text("plan_id"),
    _count("forecast_count"),
    _count("skipped_count"),
    _count("recommendation_count"),
)
plans = sa.Table("plans", metadata, _text("plan_id", key=True), _text("cycle_id"), _text("record"))
forecasts = sa.Table(
    "forecasts",
    metadata,
    _text("cycle_id"),
    _text("job_id"),
    _count("position"),
    sa.Column("skipped", sa.Boolean, nullable=False),
    _text("record"),
)
group_forecasts = sa.Table(
    "group_forecasts",
    metadata,
    _text("cycle_id", key=True),
    _count("position", key=True),
    _text("record"),
)
recommendations = sa.Table(
    "recommendations",
    metadata,
    _text("digest", key=True),
    _text("cycle_id"),
    _text("plan_id"),
    _text("record"),
)
decisions = sa.Table(
    "decisions",
    metadata,
    _count("sequence", key=True),
    _text("digest"),
    _text("decision"),
    _text("decided_by"),
    _time("decided_at"),
    _text("remark"),
)
audit = sa.Table(
    "audit",
    metadata,
    _count("sequence", key=True),
    _time("entry_at"),
    _text("actor"),
    _text("event"),
    _text("digest"),
    _text("detail"),
    _text("previous_hash"),
    _text("entry_hash"),
)
submissions = sa.Table(
    "submissions",
    metadata,
    _text("submission_id", key=True),
    _count("sequence"),
    _text("job_digest"),
    sa.Column("is_open", sa.Boolean, nullable=False),
    _text("record"),
)
measured_peaks = sa.Table(
    "measured_peaks",
    metadata,
    _text("family", key=True),
    _text("job_id", key=True),
    _time("measured_at"),
    _text("record"),
)
"""Samples, allocations and roll-ups are reached by SQL text only: they travel as frames."""
