"""Appending to the record: a row, and in the same transaction the audit entry that covers it."""

from datetime import datetime
from typing import Any

import sqlalchemy as sa

from data.base.rows import columns_of, row_of
from data.base.text import without_nul
from data.facts.identifiers import digest_of
from data.records.commands import AuditEntry
from data.store.engine import tables
from data.store.engine.dialects import as_utc, next_sequence
from data.store.record.audit_chain import next_entry


def audit_entry(row: Any) -> AuditEntry:
    """Return the entry of a row of the audit table."""
    covers, digest = row.covers or "", row.row_digest or ""
    return row_of(AuditEntry, row, at=as_utc(row.entry_at), covers=covers, row_digest=digest)


def row_digest(row: dict[str, Any]) -> str:
    """Return the digest of a row, its times in UTC whatever zone the driver speaks."""
    return digest_of(
        {
            name: as_utc(value) if isinstance(value, datetime) else value
            for name, value in row.items()
        }
    )


def append_entry(
    connection: sa.Connection,
    *,
    at: datetime,
    actor: str,
    event: str,
    digest: str,
    detail: str,
    covers: str = "",
    covered_digest: str = "",
    last: AuditEntry | None = None,
) -> AuditEntry:
    """Append one audit entry; the `last` one is read unless it is given."""
    actor, detail = without_nul(actor), without_nul(detail)
    entry = next_entry(
        last or _last_entry(connection),
        at=at,
        actor=actor,
        event=event,
        digest=digest,
        detail=detail,
        covers=covers,
        row_digest=covered_digest,
    )
    row = {name: getattr(entry, name) for name in columns_of(AuditEntry) if name != "at"}
    connection.execute(tables.audit.insert().values(entry_at=entry.at, **row))
    return entry


def append_row(
    connection: sa.Connection,
    table: sa.Table,
    values: dict[str, Any],
    *,
    at: datetime,
    actor: str,
    event: str,
    digest: str,
    detail: str,
) -> AuditEntry:
    """Append a row to one of `tables.COVERED`, and the entry that covers it."""
    sequence, last = next_sequence(connection, table), _last_entry(connection)
    row = {"sequence": sequence, "entry": last.sequence + 1 if last else 1} | {
        name: without_nul(value) if isinstance(value, str) else value
        for name, value in values.items()
    }
    connection.execute(table.insert().values(**row))
    return append_entry(
        connection,
        at=at,
        actor=actor,
        event=event,
        digest=digest,
        detail=detail,
        covers=f"{table.name}:{sequence}",
        covered_digest=row_digest(row),
        last=last,
    )


def _last_entry(connection: sa.Connection) -> AuditEntry | None:
    audit = tables.audit
    row = connection.execute(sa.select(audit).order_by(audit.c.sequence.desc()).limit(1)).first()
    return None if row is None else audit_entry(row)


def record_events(connection: sa.Connection, digest: str) -> list[str]:
    """Return the words that moved one recommendation, oldest first."""
    return [row.word for row in connection.execute(events_by_digest((digest,)))]


def events_by_digest(digests: Any = None) -> sa.CompoundSelect[Any]:
    """Return the query of (entry, sequence, digest, word) of what happened, oldest first.

    That is every decision, command and journal row: of these digests, a sequence or a query of
    them, or of all.
    """
    decisions, commands, journal = (
        tables.accounted(table) for table in (tables.decisions, tables.commands, tables.journal)
    )
    parts = [
        sa.select(
            decisions.c.entry,
            decisions.c.sequence,
            decisions.c.digest,
            decisions.c.decision.label("word"),
        ),
        sa.select(
            commands.c.entry,
            commands.c.sequence,
            commands.c.digest,
            (commands.c.kind + "-asked").label("word"),
        ),
        sa.select(journal.c.entry, journal.c.sequence, journal.c.digest, journal.c.event),
    ]
    if digests is not None:
        parts = [part.where(part.selected_columns.digest.in_(digests)) for part in parts]
    return sa.union_all(*parts).order_by("entry", "sequence")
