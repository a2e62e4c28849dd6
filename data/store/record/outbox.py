"""Messages to people: written once per entry and recipient, sent by the process that claims them.

A message is derived from an audit entry, so none is lost; its id from entry, channel and recipient,
so none is written twice. It is claimed by compare-and-swap before it is sent. Who dies between
sending and noting it leaves the claim to run out, or to be freed by the next process that opens a
DuckDB file: it is then sent again under the same id.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import sqlalchemy as sa

from data.facts.identifiers import digest_of
from data.records.commands import AuditEntry
from data.store.engine import tables
from data.store.engine.dialects import Lock, Transaction, claimable
from data.store.record.ledger import audit_entry

_CURSOR = "notified"
_MAX_PAUSE = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message to one recipient; `message_id` is the same at every attempt."""

    entry: int
    channel: str
    recipient: str
    subject: str
    body: str

    @property
    def message_id(self) -> str:
        """The id by which a recipient can tell a repeat."""
        return digest_of([self.entry, self.channel, self.recipient])


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The right to send a message once."""

    message: Message
    version: int
    attempts: int


class Outbox:
    """`transaction` gives a connection whose writes are kept whole or not at all."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def fill(self, compose: Callable[[AuditEntry], Sequence[Message]], *, now: datetime) -> int:
        """Write the messages of every entry without them so far; give their number."""
        cursor, audit = tables.cursors, tables.audit.c
        written = 0
        with self._transaction(Lock.OUTBOX) as connection:
            position = connection.execute(
                sa.select(cursor.c.position).where(cursor.c.name == _CURSOR)
            ).scalar_one()
            rows = connection.execute(
                sa.select(tables.audit).where(audit.sequence > position).order_by(audit.sequence)
            ).all()
            for message in (entry for row in rows for entry in compose(audit_entry(row))):
                connection.execute(tables.outbox.insert().values(**waiting_row(message, now)))
                written += 1
            if rows:
                connection.execute(
                    cursor.update()
                    .where(cursor.c.name == _CURSOR, cursor.c.position == position)
                    .values(position=rows[-1].sequence)
                )
        return written

    def waiting(self) -> tuple[str, ...]:
        """Return the messages that were tried and did not arrive yet, each with its problem."""
        box = tables.outbox.c
        with self._transaction() as connection:
            rows = connection.execute(
                sa.select(box.subject, box.recipient, box.problem)
                .where(box.state == "waiting", box.problem != "")
                .order_by(box.entry)
            )
            return tuple(f"{row.subject} to {row.recipient}: {row.problem}" for row in rows)

    def claim(
        self, *, now: datetime, lasting: timedelta, channels: tuple[str, ...] = ()
    ) -> Claim | None:
        """Claim the oldest message that is due, of these channels or of all; None without one."""
        box = tables.outbox.c
        with self._transaction() as connection:
            due = (
                sa.select(tables.outbox)
                .where(
                    box.state == "waiting",
                    box.not_before <= now,
                    box.claimed_until <= now,
                    box.channel.in_(channels) if channels else sa.true(),
                )
                .order_by(box.entry, box.message_id)
                .limit(1)
            )
            row = connection.execute(claimable(connection, due, tables.outbox)).first()
            if row is None:
                return None
            swapped = connection.execute(
                tables.outbox.update()
                .where(box.message_id == row.message_id, box.version == row.version)
                .values(
                    version=row.version + 1,
                    attempts=row.attempts + 1,
                    claimed_until=now + lasting,
                )
                .returning(box.message_id)
            ).all()
        if not swapped:
            return None
        message = Message(
            entry=row.entry,
            channel=row.channel,
            recipient=row.recipient,
            subject=row.subject,
            body=row.body,
        )
        return Claim(message=message, version=row.version + 1, attempts=row.attempts + 1)

    def sent(self, claim: Claim) -> None:
        """Note that the message has arrived."""
        self._settle(claim, state="sent", problem="")

    def failed(self, claim: Claim, problem: str, *, now: datetime, most: int) -> None:
        """Note a failed delivery; it is tried again later, at most `most` times in all."""
        pause = min(timedelta(seconds=2 ** min(claim.attempts, 12)), _MAX_PAUSE)
        self._settle(
            claim,
            state="waiting" if claim.attempts < most else "given-up",
            problem=problem,
            not_before=now + pause,
            claimed_until=now,
        )

    def _settle(self, claim: Claim, **values: object) -> None:
        box = tables.outbox
        with self._transaction() as connection:
            connection.execute(
                box.update()
                .where(box.c.message_id == claim.message.message_id, box.c.version == claim.version)
                .values(version=claim.version + 1, **values)
            )


def release_claims(connection: sa.Connection) -> None:
    """Free every claim: the caller just opened a store that one process alone can hold."""
    box = tables.outbox
    connection.execute(
        box.update()
        .where(box.c.state == "waiting", box.c.claimed_until > box.c.not_before)
        .values(claimed_until=box.c.not_before, version=box.c.version + 1)
    )


def waiting_row(message: Message, now: datetime) -> dict[str, object]:
    """Return the row of a message that is to be sent."""
    return {
        "message_id": message.message_id,
        "entry": message.entry,
        "channel": message.channel,
        "recipient": message.recipient,
        "subject": message.subject,
        "body": message.body,
        "version": 1,
        "attempts": 0,
        "not_before": now,
        "claimed_until": now,
        "state": "waiting",
        "problem": "",
    }
