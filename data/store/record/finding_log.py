"""Findings in the store: numbers given once, and events that are only ever appended."""

import json
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from data.base.errors import NotKnownError
from data.records.actions import Action
from data.records.commands import AuditEntry, Person
from data.records.findings import Finding, FindingEvent, FindingEventKind, number_of, reference
from data.records.plans import Configuration
from data.records.recommendations import Recommendation
from data.store.engine import tables
from data.store.engine.dialects import Lock, Transaction, as_utc
from data.store.engine.record_json import build, from_json, to_json
from data.store.facts.fact_reader import FactReader
from data.store.record.ledger import append_row, audit_entry

MIN_PREFIX = 6
"""Characters of an id that are enough to name it."""


class FindingReader(FactReader):
    """Findings and their events; nothing here writes."""

    def findings(self) -> tuple[Finding, ...]:
        """Return every finding, the newest number first."""
        return self._findings(sa.true())

    def finding_about(self, digest: str) -> Finding | None:
        """Return the finding that a recommendation is a revision of, None for anything else."""
        advice = tables.recommendations.c
        number = sa.select(advice.finding).where(advice.digest == digest)
        matches = self._findings(tables.findings.c.number.in_(number)) if digest else ()
        return matches[0] if matches else None

    def _findings(self, which: sa.ColumnElement[bool]) -> tuple[Finding, ...]:
        findings, advice, cycles = tables.findings, tables.recommendations, tables.cycles
        newest = (
            sa.select(advice.c.finding, sa.func.max(cycles.c.started_at).label("seen_at"))
            .join(cycles, cycles.c.cycle_id == advice.c.cycle_id)
            .group_by(advice.c.finding)
            .subquery()
        )
        rows = self._rows(
            sa.select(findings, newest.c.seen_at)
            .outerjoin(newest, newest.c.finding == findings.c.number)
            .where(which)
            .order_by(findings.c.number.desc())
        )
        return tuple(
            Finding(
                number=row.number,
                target=row.target,
                action=row.action,
                opened_at=as_utc(row.opened_at),
                seen_at=None if row.seen_at is None else as_utc(row.seen_at),
            )
            for row in rows
        )

    def changes_proposed(self, plan_id: str) -> dict[tuple[str, Action], Configuration]:
        """Return by target and kind what every change that a plan proposed leads to."""
        findings, advice = tables.findings.c, tables.recommendations.c
        rows = self._rows(
            sa.select(findings.target, findings.action, advice.record)
            .join(tables.recommendations, advice.finding == findings.number)
            .where(advice.plan_id == plan_id)
        )
        return {
            (row.target, Action(row.action)): build(
                Configuration, json.loads(row.record)["proposed"]
            )
            for row in rows
        }

    def finding_events(self, number: int = 0, *, among: Any = None) -> tuple[FindingEvent, ...]:
        """Return the acts of people on one finding, or on all, oldest first.

        `among` is a query of the numbers that are meant.
        """
        events = tables.accounted(tables.finding_events)
        statement = sa.select(events).order_by(events.c.sequence)
        if number:
            statement = statement.where(events.c.number == number)
        if among is not None:
            statement = statement.where(events.c.number.in_(among))
        return tuple(_event(row) for row in self._rows(statement))

    def finding_number(self, id_or_digest: str) -> int:
        """Return the number that a text names: TT-12, or what a recommendation's id begins with.

        Errors: NotKnownError when it names no finding, or several.
        """
        number, findings, advice = number_of(id_or_digest), tables.findings, tables.recommendations
        query = sa.select(findings.c.number).where(findings.c.number == number)
        if not number:
            prefix = id_or_digest.strip().lower()
            starts = advice.c.digest.startswith(prefix, autoescape=True)
            query = sa.select(advice.c.finding).where(starts).distinct()
            query = query.limit(None if len(prefix) >= MIN_PREFIX else 0)
        rows = self._rows(query)
        if len(rows) != 1:
            raise NotKnownError(
                f"{id_or_digest!r} names {len(rows) or 'no'} finding{'s' * (len(rows) > 1)}",
                "`trimtab findings list --all` shows the numbers.",
            )
        return int(rows[0][0])

    def entries_about(self, number: int) -> tuple[AuditEntry, ...]:
        """Return the entries of the record that are about one finding, in order."""
        audit, advice = tables.audit, tables.recommendations
        digests = sa.select(advice.c.digest).where(advice.c.finding == number)
        statement = sa.select(audit).where(audit.c.digest.in_(digests)).order_by(audit.c.sequence)
        return tuple(audit_entry(row) for row in self._rows(statement))


def _event(row: Any) -> FindingEvent:
    return FindingEvent(
        number=row.number,
        digest=row.digest,
        kind=FindingEventKind(row.event),
        reason=row.reason,
        until=None if row.until_at is None else as_utc(row.until_at),
        at=as_utc(row.made_at),
        person=from_json(Person, row.person),
        comment=row.remark,
    )


class FindingLog:
    """`transaction` gives a connection whose writes are kept whole or not at all."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def append(self, event: FindingEvent) -> AuditEntry:
        """Append what a person did about a finding, and the audit entry that covers it."""
        with self._transaction(Lock.RECORD) as connection:
            return append_event(connection, event)


def append_event(connection: sa.Connection, event: FindingEvent) -> AuditEntry:
    """Append an event and the entry that covers it."""
    words = [reference(event.number)]
    if event.until is not None:
        words.append(f"until {event.until:%Y-%m-%d %H:%M} UTC")
    return append_row(
        connection,
        tables.finding_events,
        {
            "number": event.number,
            "digest": event.digest,
            "event": str(event.kind),
            "reason": event.reason,
            "until_at": event.until,
            "made_at": event.at,
            "person": to_json(event.person),
            "remark": event.comment,
        },
        at=event.at,
        actor=event.person.actor,
        event=str(event.kind),
        digest=event.digest,
        detail=": ".join(filter(None, (" ".join([*words, event.reason]).strip(), event.comment))),
    )


def numbers_of(
    connection: sa.Connection, entries: Sequence[Recommendation], at: datetime
) -> dict[str, int]:
    """Return the number of the finding of each recommendation by its digest; new ones are opened.

    A finding is a target and a kind of change. Its number is given once, and never anew.
    """
    findings = tables.findings.c
    kinds = [(recommendation.target, str(recommendation.action)) for recommendation in entries]
    rows = connection.execute(
        sa.select(tables.findings).where(findings.target.in_({target for target, _ in kinds}))
    )
    numbers = {(row.target, row.action): int(row.number) for row in rows}
    highest = connection.execute(sa.select(sa.func.max(findings.number))).scalar_one()
    new = [kind for kind in dict.fromkeys(kinds) if kind not in numbers]
    for number, (target, action) in enumerate(new, start=int(highest or 0) + 1):
        numbers[target, action] = number
        connection.execute(
            tables.findings.insert().values(
                number=number, target=target, action=action, opened_at=at
            )
        )
    return {
        recommendation.digest: numbers[kind]
        for recommendation, kind in zip(entries, kinds, strict=True)
    }
