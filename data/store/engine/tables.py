"""The tables as SQLAlchemy Core sees them; the migrations make them."""

from typing import Any

import sqlalchemy as sa
from sqlalchemy.types import TypeEngine

metadata = sa.MetaData()
_KINDS: dict[str, TypeEngine[Any]] = {
    "": sa.String(),
    "count": sa.BigInteger(),
    "time": sa.DateTime(timezone=True),
    "flag": sa.Boolean(),
}


def _table(name: str, columns: str) -> sa.Table:
    """Return a table of columns such as `name:kind`: a text where none is named.

    `*` marks those of the key, `?` one that may be NULL.
    """
    table = sa.Table(name, metadata)
    for word in columns.split():
        column, _colon, kind = word.rstrip("*?").partition(":")
        key, nullable = word.endswith("*"), word.endswith("?")
        table.append_column(
            sa.Column(column, _KINDS[kind], primary_key=key, nullable=nullable, autoincrement=False)
        )
    return table


batches = _table("batches", "batch_id* sequence:count source row_count:count report")
jobs = _table("jobs", "job_id* last_seen_at:time record")
nodes = _table("nodes", "name* source* seen_at:time record")
board_xids = _table(
    "board_xids", "gpu_uuid* xid:count* node gpu_index first_seen_at:time last_seen_at:time"
)
serving_slots = _table("serving_slots", "slot_start:time label_id engine model address")
board_activity = _table("board_activity", "slot_start:time gpu_uuid* mig_instance*")
contradictions = _table("contradictions", "slot_start:time gpu_uuid* mig_instance* counter*")
group_hours = _table("group_hours", "kind name slot_start:time")
job_slots = _table("job_slots", "job_id slot_start:time")
kept_slots = _table("kept_slots", "table_name slot_seconds:count until:time")
job_progress = _table("job_progress", "reported_at:time label_id*")
quotas = _table("quotas", "source* kind* queue* per* resource* flavor* observed_at:time")
cycles = _table(
    "cycles",
    "cycle_id* sequence:count started_at:time finished_at:time plan_id forecast_count:count "
    "skipped_count:count recommendation_count:count",
)
plans = _table("plans", "plan_id* cycle_id record")
forecasts = _table("forecasts", "cycle_id job_id position:count skipped:flag record")
group_forecasts = _table("group_forecasts", "cycle_id* position:count* record")
workload_forecasts = _table("workload_forecasts", "name* position:count job_id made_at:time record")
memory_outlooks = _table("memory_outlooks", "cycle_id* record")
serving_outlooks = _table("serving_outlooks", "cycle_id* record")
slow_work = _table("slow_work", "cycle_id* record")
recommendations = _table("recommendations", "digest* cycle_id plan_id record finding:count")
findings = _table("findings", "number:count* target action opened_at:time")
finding_events = _table(
    "finding_events",
    "sequence:count* entry:count number:count digest event reason until_at:time? made_at:time "
    "person remark",
)
token_events = _table(
    "token_events",
    "sequence:count* entry:count token_id event person role token_hash expires_at:time? "
    "made_at:time made_by",
)
sign_ins = _table("sign_ins", "id_hash* issuer subject provider_session person groups ends_at:time")
decisions = _table(
    "decisions",
    "sequence:count* digest decision decided_by decided_at:time remark change_digest person "
    "entry:count",
)
commands = _table(
    "commands",
    "sequence:count* entry:count command_id kind digest subject target change_digest person "
    "asked_at:time",
)
journal = _table(
    "journal",
    "sequence:count* entry:count command_id digest event step:count written_at:time fence:count "
    "detail record",
)
leases = _table(
    "leases",
    "command_id* version:count owner fence:count until:time not_before:time held finished:flag",
)
outbox = _table(
    "outbox",
    "message_id* entry:count channel recipient subject body version:count attempts:count "
    "not_before:time claimed_until:time state problem",
)
reports = _table("reports", "period* edition* entry:count")
findings_told = _table("findings_told", "owner* finding* told_at:time")
cursors = _table("cursors", "name* position:count")
audit = _table(
    "audit",
    "sequence:count* entry_at:time actor event digest detail previous_hash entry_hash covers "
    "row_digest",
)
submissions = _table("submissions", "submission_id* sequence:count job_digest is_open:flag record")
measured_peaks = _table("measured_peaks", "family* job_id* measured_at:time record")

COVERED = (decisions, commands, journal, finding_events, token_events)
"""Append-only tables whose every row is covered by an audit entry: the row's own `entry`."""


def accounted(table: sa.Table) -> sa.Subquery:
    """Return the rows of one of `COVERED` that the audit accounts for; no other row is obeyed."""
    row, entry = table.c, audit.c
    name = sa.literal(f"{table.name}:") + sa.cast(row.sequence, sa.String)
    match = (entry.sequence == row.entry) & (entry.covers == name)
    return sa.select(table).where(sa.exists().where(match)).subquery(table.name)


"""Samples, allocations and roll-ups are reached by SQL text only: they travel as frames."""
