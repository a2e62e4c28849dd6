"""Reading what was decided and done: states, commands, journal, audit and its proof."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import sqlalchemy as sa

from data.base.rows import row_of
from data.facts.identifiers import digest_of_text
from data.records.commands import AuditEntry, Command, CommandKind, CommandStatus, JournalRow
from data.records.lifecycle import State, state_after
from data.store.engine import tables
from data.store.engine.dialects import as_utc
from data.store.facts.fact_reader import FactReader
from data.store.record.audit_chain import chain_problems, coverage_problems, head_problems
from data.store.record.commands import command_of
from data.store.record.ledger import audit_entry, events_by_digest, row_digest

Rows = Sequence[Mapping[str, Any]]


class RecordReader(FactReader):
    """Decisions of people and the worker's journal of them; nothing here writes."""

    def states(self, digests: Any = None) -> dict[str, State]:
        """Return the state of every recommendation that anything happened to, by digest.

        Of these digests alone where they are given, a sequence or a query of them.
        """
        words: dict[str, list[str]] = defaultdict(list)
        for row in self._rows(events_by_digest(digests)):
            words[row.digest].append(row.word)
        return {digest: state_after(events) for digest, events in words.items()}

    def commands(self, digest: str = "") -> tuple[CommandStatus, ...]:
        """Return the commands of one recommendation or of all, oldest first."""
        commands = tables.accounted(tables.commands)
        statement = (
            sa.select(commands, tables.leases.c.finished, tables.leases.c.held)
            .join(tables.leases, tables.leases.c.command_id == commands.c.command_id)
            .order_by(commands.c.sequence)
        )
        if digest:
            statement = statement.where(commands.c.digest == digest)
        return tuple(
            CommandStatus(command=command_of(row), finished=row.finished, held=row.held)
            for row in self._rows(statement)
        )

    def command(self, command_id: str) -> Command:
        """Return one command that must exist."""
        commands = tables.accounted(tables.commands)
        rows = self._rows(sa.select(commands).where(commands.c.command_id == command_id))
        return command_of(rows[0])

    def approval_row(self, digest: str) -> Any:
        """Return the last approval of a recommendation as its row, None without one."""
        decisions = tables.accounted(tables.decisions)
        rows = self._rows(
            sa.select(decisions)
            .where(decisions.c.digest == digest, decisions.c.decision == "approved")
            .order_by(decisions.c.sequence.desc())
            .limit(1)
        )
        return rows[0] if rows else None

    def journal(
        self, *, command_id: str = "", digest: str = "", events: tuple[str, ...] = ()
    ) -> tuple[JournalRow, ...]:
        """Return the worker's entries, oldest first, for a command, a recommendation or all."""
        rows = tables.accounted(tables.journal)
        columns = rows.c
        statement = sa.select(rows).order_by(columns.sequence)
        if command_id:
            statement = statement.where(columns.command_id == command_id)
        if digest:
            statement = statement.where(columns.digest == digest)
        if events:
            statement = statement.where(columns.event.in_(events))
        return tuple(_journal_row(row) for row in self._rows(statement))

    def prepared_since(
        self, at: datetime, kind: CommandKind | None = None
    ) -> tuple[tuple[Command, datetime], ...]:
        """Return the commands of which a change was prepared after `at`, with when.

        Oldest first.
        """
        journal, commands = tables.accounted(tables.journal), tables.accounted(tables.commands)
        statement = (
            sa.select(commands, journal.c.written_at)
            .join(journal, journal.c.command_id == commands.c.command_id)
            .where(journal.c.event == "prepared", journal.c.written_at > at)
            .order_by(journal.c.sequence)
        )
        if kind is not None:
            statement = statement.where(commands.c.kind == str(kind))
        return tuple((command_of(row), as_utc(row.written_at)) for row in self._rows(statement))

    def audit(self) -> tuple[AuditEntry, ...]:
        """Return the append-only record in order."""
        return tuple(
            audit_entry(row)
            for row in self._rows(sa.select(tables.audit).order_by(tables.audit.c.sequence))
        )

    def entries_after(self, sequence: int, most: int) -> tuple[AuditEntry, ...]:
        """Return at most so many entries of the record after one, in order."""
        audit = tables.audit.c
        after = sa.select(tables.audit).where(audit.sequence > sequence)
        rows = self._rows(after.order_by(audit.sequence).limit(most))
        return tuple(audit_entry(row) for row in rows)

    def entries(self, events: tuple[str, ...]) -> tuple[AuditEntry, ...]:
        """Return the entries of these events, in order."""
        audit = tables.audit.c
        statement = sa.select(tables.audit).where(audit.event.in_(events)).order_by(audit.sequence)
        return tuple(audit_entry(row) for row in self._rows(statement))

    def verify_audit(self, *, head: str = "") -> tuple[str, ...]:
        """Return every break of the record; nothing when it is intact.

        The chain itself, every row that it covers, and the recommendations that were decided on.
        `head`: an entry hash noted down before, which must still be there.
        """
        audit, *covered = [
            [
                dict(row._mapping)  # noqa: SLF001 - SQLAlchemy's public name for it
                for row in self._rows(sa.select(table).order_by(table.c.sequence))
            ]
            for table in (tables.audit, *tables.COVERED)
        ]
        names = [table.name for table in tables.COVERED]
        stored = self._rows(
            sa.select(tables.recommendations.c.digest, tables.recommendations.c.record)
        )
        return record_problems(
            audit,
            dict(zip(names, covered, strict=True)),
            {row.digest: row.record for row in stored},
            head=head,
        )


def _journal_row(row: Any) -> JournalRow:
    return row_of(JournalRow, row, at=as_utc(row.written_at))


def record_problems(
    audit: Rows, covered: Mapping[str, Rows], recommendations: Mapping[str, str], *, head: str = ""
) -> tuple[str, ...]:
    """Name every row that was edited, removed, added or moved; nothing when all is as written.

    `audit` and `covered` (table name to rows) are in the order of their sequence;
    `recommendations` maps a digest to the text kept under it. `head`: a hash noted down before.
    """
    entries = [audit_entry(SimpleNamespace(**row)) for row in audit]
    digests, doubled = {}, []
    for table, rows in covered.items():
        for row in rows:
            name = f"{table}:{row['sequence']}"
            if name in digests:
                doubled.append(f"row {name} is there twice")
            digests[name] = row_digest(dict(row))
    return (
        *chain_problems(entries),
        *doubled,
        *coverage_problems(entries, digests),
        *_changed(recommendations, _decided_on(covered)),
        *head_problems(entries, head),
    )


def _decided_on(covered: Mapping[str, Rows]) -> set[str]:
    """Return the recommendations that a row speaks of; entries of submissions name other things."""
    return {str(row["digest"]) for rows in covered.values() for row in rows if row.get("digest")}


def _changed(recommendations: Mapping[str, str], decided: set[str]) -> list[str]:
    """Compare what was decided on with its digest, which is that of the text as kept."""
    problems = []
    for digest in sorted(decided):
        text = recommendations.get(digest)
        if text is None:
            problems.append(f"recommendation {digest} was removed")
        elif digest_of_text(text) != digest:
            problems.append(f"recommendation {digest} was edited")
    return problems
