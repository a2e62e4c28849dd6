"""Commands, leases and journal: written once, taken by one worker, fenced against a late one.

Every write is one transaction. A lease is taken and kept by compare-and-swap on its version, so
that the same code holds between threads and between processes of a server database.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from data.base.errors import LeaseLostError, StalePlanError
from data.base.rows import row_of
from data.records.commands import Command, CommandKind, Lease, Person, command_id_of
from data.records.lifecycle import IllegalEventError, LifecycleEvent, next_state, state_after
from data.store.engine import tables
from data.store.engine.dialects import Lock, Transaction, as_utc, claimable
from data.store.engine.record_json import from_json, to_json
from data.store.record.ledger import append_row, record_events

_NOBODY = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandRequest:
    """A command, and whether this call wrote it or found it there."""

    command: Command
    fresh: bool


def command_of(row: Any) -> Command:
    """Return the command of a row of its table."""
    return row_of(
        Command,
        row,
        kind=CommandKind(row.kind),
        person=from_json(Person, row.person),
        asked_at=as_utc(row.asked_at),
    )


def require_may_follow(connection: sa.Connection, digest: str, event: LifecycleEvent) -> None:
    """Refuse (StalePlanError) an event that may not follow the recommendation's present state."""
    try:
        next_state(state_after(record_events(connection, digest)), event)
    except IllegalEventError as error:
        raise StalePlanError(
            f"recommendation {digest[:12]}: {error}", "Reload: somebody or something was faster."
        ) from error


class Commands:
    """The writing side; `transaction` gives a connection whose writes are kept whole or not."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def ask(
        self,
        *,
        kind: CommandKind,
        digest: str,
        subject: str,
        target: str,
        person: Person,
        at: datetime,
        change_digest: str = "",
    ) -> CommandRequest:
        """Write a command, or give the one that already exists for this subject.

        Errors: StalePlanError when the recommendation's state does not allow it.
        """
        command = Command(
            command_id=command_id_of(kind, subject),
            kind=kind,
            digest=digest,
            subject=subject,
            target=target,
            change_digest=change_digest,
            person=person,
            asked_at=at,
        )
        with self._transaction(Lock.RECORD) as connection:
            row = connection.execute(
                sa.select(tables.commands).where(tables.commands.c.command_id == command.command_id)
            ).first()
            if row is not None:
                return CommandRequest(command=command_of(row), fresh=False)
            require_may_follow(connection, digest, LifecycleEvent(f"{kind}-asked"))
            _insert_command(connection, command)
        return CommandRequest(command=command, fresh=True)

    def take(self, *, owner: str, now: datetime, lasting: timedelta) -> Lease | None:
        """Take the oldest due command without a worker; None when there is none."""
        leases = tables.leases.c
        with self._transaction() as connection:
            commands = tables.accounted(tables.commands)
            due = (
                sa.select(tables.leases)
                .join(commands, commands.c.command_id == leases.command_id)
                .where(
                    leases.finished.is_(False),
                    leases.not_before <= now,
                    sa.or_(leases.owner == _NOBODY, leases.until <= now),
                )
                .order_by(commands.c.sequence)
                .limit(1)
            )
            row = connection.execute(claimable(connection, due, tables.leases)).first()
            if row is None:
                return None
            lease = Lease(
                command_id=row.command_id, owner=owner, fence=row.fence + 1, until=now + lasting
            )
            swapped = connection.execute(
                tables.leases.update()
                .where(leases.command_id == row.command_id, leases.version == row.version)
                .values(version=row.version + 1, owner=owner, fence=lease.fence, until=lease.until)
                .returning(leases.command_id)
            ).all()
        return lease if swapped else None

    def write(
        self,
        lease: Lease,
        event: str,
        *,
        at: datetime,
        lasting: timedelta,
        digest: str,
        actor: str,
        step: int = -1,
        detail: str = "",
        record: str = "",
        replaces: tuple[Command, ...] = (),
    ) -> None:
        """Append to the journal under the lease, and prolong it.

        The recommendations of the commands in `replaces` are replaced in the same transaction.
        Errors: LeaseLostError when another worker took over; StalePlanError when the event may not
        follow the recommendation's state. Nothing is written then.
        """
        with self._transaction(Lock.RECORD) as connection:
            _swap(connection, lease, until=at + lasting)
            if event in set(LifecycleEvent):
                _require_latest(connection, lease.command_id, digest)
                require_may_follow(connection, digest, LifecycleEvent(event))
            row = _journal_row(lease, digest, event, step=step, at=at, detail=detail, record=record)
            append_row(
                connection,
                tables.journal,
                row,
                at=at,
                actor=actor,
                event=str(event),
                digest=digest,
                detail=detail,
            )
            for command in replaces:
                _replace(connection, lease, command, at=at, actor=actor, by=digest)

    def release(self, lease: Lease, *, not_before: datetime, held: str = "") -> None:
        """Return command back until `not_before`, saying why it waits. Errors: LeaseLostError."""
        with self._transaction() as connection:
            _swap(connection, lease, owner=_NOBODY, not_before=not_before, held=held)

    def end(self, command_id: str, *, now: datetime) -> bool:
        """Finish a command that a later one ends, unless a worker holds it; tell whether it is."""
        leases = tables.leases
        with self._transaction() as connection:
            connection.execute(
                leases.update()
                .where(
                    leases.c.command_id == command_id,
                    leases.c.finished.is_(False),
                    sa.or_(leases.c.owner == _NOBODY, leases.c.until <= now),
                )
                .values(version=leases.c.version + 1, owner=_NOBODY, finished=True, held="")
            )
            ended = sa.select(leases.c.finished).where(leases.c.command_id == command_id)
            return bool(connection.execute(ended).scalar_one())

    def finish(self, lease: Lease) -> None:
        """Say that nothing is left to do for the command. Errors: LeaseLostError."""
        with self._transaction() as connection:
            _swap(connection, lease, owner=_NOBODY, finished=True, held="")


def void_leases(connection: sa.Connection) -> None:
    """Free every lease: the caller just opened a store that one process alone can hold."""
    leases = tables.leases
    connection.execute(
        leases.update()
        .where(leases.c.owner != _NOBODY)
        .values(owner=_NOBODY, version=leases.c.version + 1)
    )


def _journal_row(
    lease: Lease, digest: str, event: str, *, step: int, at: datetime, detail: str, record: str
) -> dict[str, Any]:
    return {
        "command_id": lease.command_id,
        "digest": digest,
        "event": str(event),
        "step": step,
        "written_at": at,
        "fence": lease.fence,
        "detail": detail,
        "record": record,
    }


def _replace(
    connection: sa.Connection, lease: Lease, old: Command, *, at: datetime, actor: str, by: str
) -> None:
    """Write that a standing change is replaced, unless it has ended meanwhile."""
    try:
        next_state(state_after(record_events(connection, old.digest)), LifecycleEvent.REPLACED)
    except IllegalEventError:
        return
    event, detail = str(LifecycleEvent.REPLACED), f"by recommendation {by[:12]}"
    row = _journal_row(lease, old.digest, event, step=-1, at=at, detail=detail, record="")
    append_row(
        connection,
        tables.journal,
        row | {"command_id": old.command_id},
        at=at,
        actor=actor,
        event=event,
        digest=old.digest,
        detail=detail,
    )


def _require_latest(connection: sa.Connection, command_id: str, digest: str) -> None:
    """Refuse (StalePlanError) to move a recommendation for a command that another one followed."""
    commands = tables.accounted(tables.commands).c
    latest = connection.execute(
        sa.select(commands.command_id)
        .where(commands.digest == digest)
        .order_by(commands.sequence.desc())
        .limit(1)
    ).scalar_one()
    if latest != command_id:
        raise StalePlanError(
            f"command {command_id[:12]} was followed by {latest[:12]}", "The later one decides."
        )


def _insert_command(connection: sa.Connection, command: Command) -> None:
    append_row(
        connection,
        tables.commands,
        {
            "command_id": command.command_id,
            "kind": str(command.kind),
            "digest": command.digest,
            "subject": command.subject,
            "target": command.target,
            "change_digest": command.change_digest,
            "person": to_json(command.person),
            "asked_at": command.asked_at,
        },
        at=command.asked_at,
        actor=command.person.actor,
        event=f"{command.kind}-asked",
        digest=command.digest,
        detail=command.change_digest,
    )
    connection.execute(
        tables.leases.insert().values(
            command_id=command.command_id,
            version=1,
            owner=_NOBODY,
            fence=0,
            until=command.asked_at,
            not_before=command.asked_at,
            held="",
            finished=False,
        )
    )


def _swap(connection: sa.Connection, lease: Lease, **values: Any) -> None:
    leases = tables.leases
    changed = connection.execute(
        leases.update()
        .where(
            leases.c.command_id == lease.command_id,
            leases.c.fence == lease.fence,
            leases.c.owner == lease.owner,
        )
        .values(version=leases.c.version + 1, **values)
        .returning(leases.c.command_id)
    ).all()
    if not changed:
        raise LeaseLostError(
            f"the lease of command {lease.command_id[:12]} is no longer that of {lease.owner}",
            "Another worker has taken over; this one stops.",
        )
