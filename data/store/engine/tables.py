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
board_xids = sa.Table(
    "board_xids",
    metadata,
    _text("gpu_uuid", key=True),
    _count("xid", key=True),
    _text("node"),
    _text("gpu_index"),
    _time("first_seen_at"),
    _time("last_seen_at"),
)
serving_slots = sa.Table(
    "serving_slots",
    metadata,
    *(_time("slot_start"), _text("label_id"), _text("engine"), _text("model"), _text("address")),
)
board_activity = sa.Table(
    "board_activity",
    metadata,
    *(_time("slot_start"), _text("gpu_uuid", key=True), _text("mig_instance", key=True)),
)
contradictions = sa.Table(
    "contradictions",
    metadata,
    _time("slot_start"),
    *(_text(name, key=True) for name in ("gpu_uuid", "mig_instance", "counter")),
)
group_hours = sa.Table("group_hours", metadata, _text("kind"), _text("name"), _time("slot_start"))
job_slots = sa.Table("job_slots", metadata, _text("job_id"), _time("slot_start"))
kept_slots = sa.Table(
    "kept_slots", metadata, _text("table_name"), _count("slot_seconds"), _time("until")
)
job_progress = sa.Table("job_progress", metadata, _time("reported_at"), _text("label_id", key=True))
quotas = sa.Table(
    "quotas",
    metadata,
    *(_text(name, key=True) for name in ("source", "kind", "queue", "per", "resource", "flavor")),
    _time("observed_at"),
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
workload_forecasts = sa.Table(
    "workload_forecasts",
    metadata,
    _text("name", key=True),
    _count("position"),
    _text("job_id"),
    _time("made_at"),
    _text("record"),
)
memory_outlooks = sa.Table(
    "memory_outlooks", metadata, _text("cycle_id", key=True), _text("record")
)
serving_outlooks = sa.Table(
    "serving_outlooks", metadata, _text("cycle_id", key=True), _text("record")
)
slow_work = sa.Table("slow_work", metadata, _text("cycle_id", key=True), _text("record"))
prepared_answers = sa.Table(
    "prepared_answers",
    metadata,
    _count("place", key=True),
    _text("name"),
    _count("batch"),
    _count("cycle"),
    _time("made_at"),
    _text("record"),
)
recommendations = sa.Table(
    "recommendations",
    metadata,
    _text("digest", key=True),
    _text("cycle_id"),
    _text("plan_id"),
    _text("record"),
    _count("finding"),
)
findings = sa.Table(
    "findings",
    metadata,
    _count("number", key=True),
    _text("target"),
    _text("action"),
    _time("opened_at"),
)
finding_events = sa.Table(
    "finding_events",
    metadata,
    _count("sequence", key=True),
    _count("entry"),
    _count("number"),
    _text("digest"),
    _text("event"),
    _text("reason"),
    sa.Column("until_at", sa.DateTime(timezone=True)),
    _time("made_at"),
    _text("person"),
    _text("remark"),
)
token_events = sa.Table(
    "token_events",
    metadata,
    _count("sequence", key=True),
    _count("entry"),
    _text("token_id"),
    _text("event"),
    _text("person"),
    _text("role"),
    _text("token_hash"),
    sa.Column("expires_at", sa.DateTime(timezone=True)),
    _time("made_at"),
    _text("made_by"),
)
sign_ins = sa.Table(
    "sign_ins",
    metadata,
    _text("id_hash", key=True),
    *(_text(name) for name in ("issuer", "subject", "provider_session", "person", "groups")),
    _time("ends_at"),
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
    _text("change_digest"),
    _text("person"),
    _count("entry"),
)
commands = sa.Table(
    "commands",
    metadata,
    _count("sequence", key=True),
    _count("entry"),
    _text("command_id"),
    _text("kind"),
    _text("digest"),
    _text("subject"),
    _text("target"),
    _text("change_digest"),
    _text("person"),
    _time("asked_at"),
)
journal = sa.Table(
    "journal",
    metadata,
    _count("sequence", key=True),
    _count("entry"),
    _text("command_id"),
    _text("digest"),
    _text("event"),
    _count("step"),
    _time("written_at"),
    _count("fence"),
    _text("detail"),
    _text("record"),
)
leases = sa.Table(
    "leases",
    metadata,
    _text("command_id", key=True),
    _count("version"),
    _text("owner"),
    _count("fence"),
    _time("until"),
    _time("not_before"),
    _text("held"),
    sa.Column("finished", sa.Boolean, nullable=False),
)
outbox = sa.Table(
    "outbox",
    metadata,
    _text("message_id", key=True),
    _count("entry"),
    _text("channel"),
    _text("recipient"),
    _text("subject"),
    _text("body"),
    _count("version"),
    _count("attempts"),
    _time("not_before"),
    _time("claimed_until"),
    _text("state"),
    _text("problem"),
)
reports = sa.Table(
    "reports",
    metadata,
    _text("period", key=True),
    _text("edition", key=True),
    _count("entry"),
)
findings_told = sa.Table(
    "findings_told",
    metadata,
    _text("owner", key=True),
    _text("finding", key=True),
    _time("told_at"),
)
cursors = sa.Table("cursors", metadata, _text("name", key=True), _count("position"))
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
    _text("covers"),
    _text("row_digest"),
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

COVERED = (decisions, commands, journal, finding_events, token_events)
"""Append-only tables whose every row is covered by an audit entry: the row's own `entry`."""


def accounted(table: sa.Table) -> sa.Subquery:
    """Return the rows of one of `COVERED` that the audit accounts for; no other row is obeyed.

    Decisions of the first schema have entry 0: an entry that covers nothing says the same.
    """
    row, entry = table.c, audit.c
    name = sa.literal(f"{table.name}:") + sa.cast(row.sequence, sa.String)
    match = (entry.sequence == row.entry) & (entry.covers == name)
    if table is decisions:
        match |= (
            (sa.func.coalesce(row.entry, 0) == 0)
            & (sa.func.coalesce(entry.covers, "") == "")
            & (entry.event == row.decision)
            & (entry.digest == row.digest)
            & (entry.actor == row.decided_by)
            & (entry.entry_at == row.decided_at)
        )
    return sa.select(table).where(sa.exists().where(match)).subquery(table.name)


"""Samples, allocations and roll-ups are reached by SQL text only: they travel as frames."""
