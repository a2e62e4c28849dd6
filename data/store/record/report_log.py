"""Log of reports by week: each edition of a week goes out once.

Filing an edition, its entry in the audit and the messages to its recipients are one transaction, so
a process that dies has either filed all of it or none; the outbox then sends what is waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import sqlalchemy as sa

from data.store.engine import tables
from data.store.engine.bulk import put_rows
from data.store.engine.dialects import Lock, Transaction
from data.store.record.ledger import append_entry
from data.store.record.outbox import Message, waiting_row

ACKNOWLEDGED = "acknowledged"
"""The event of an entry by which a person takes an alert on."""
URGENT = "urgent"
"""The event of an entry about what cannot wait."""


class ReportLog:
    """`transaction` gives a connection whose writes are kept whole or not at all."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def filed(self) -> frozenset[tuple[str, str]]:
        """Return every (period, edition) that was filed."""
        with self._transaction() as connection:
            rows = connection.execute(sa.select(tables.reports.c.period, tables.reports.c.edition))
            return frozenset((row.period, row.edition) for row in rows)

    def told_since(self, owner: str, since: datetime) -> frozenset[str]:
        """Return the findings that the owner was told of after `since`."""
        columns = tables.findings_told.c
        with self._transaction() as connection:
            rows = connection.execute(
                sa.select(columns.finding).where(columns.owner == owner, columns.told_at > since)
            )
            return frozenset(row.finding for row in rows)

    def file(
        self,
        *,
        period: str,
        edition: str,
        messages: Sequence[Message],
        detail: str,
        owner: str = "",
        findings: Sequence[str] = (),
        now: datetime,
    ) -> bool:
        """File an edition and write its messages; False, and nothing done, when it was filed."""
        with self._transaction(Lock.RECORD) as connection:
            query = sa.select(sa.func.count()).where(
                tables.reports.c.period == period, tables.reports.c.edition == edition
            )
            if connection.execute(query).scalar_one():
                return False
            entry = append_entry(
                connection, at=now, actor="trimtab", event="reported", digest="", detail=detail
            )
            connection.execute(
                tables.reports.insert().values(period=period, edition=edition, entry=entry.sequence)
            )
            for message in messages:
                row = waiting_row(replace(message, entry=entry.sequence), now)
                connection.execute(tables.outbox.insert().values(**row))
            _note_told(connection, owner, findings, now)
        return True

    def tell(
        self,
        owner: str,
        findings: Sequence[str],
        *,
        event: str = URGENT,
        digest: str,
        detail: str,
        now: datetime,
        actor: str = "trimtab",
    ) -> None:
        """Note that `owner` is told of these, and enter it in the audit.

        The outbox makes the messages from the entry.
        """
        with self._transaction(Lock.RECORD) as connection:
            append_entry(connection, at=now, actor=actor, event=event, digest=digest, detail=detail)
            _note_told(connection, owner, findings, now)


def _note_told(
    connection: sa.Connection, owner: str, findings: Sequence[str], now: datetime
) -> None:
    import pandas as pd

    rows = pd.DataFrame({"finding": list(dict.fromkeys(findings))})
    rows = rows.assign(owner=owner, told_at=pd.Timestamp(now))
    put_rows(connection, "findings_told", rows, key=("owner", "finding"))


REMINDER_INTERVAL = timedelta(days=7)
"""An owner hears of one finding at most once in this time."""
