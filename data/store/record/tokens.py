"""Tokens of the HTTP API, and the sessions of people who signed in by OpenID Connect.

Tokens are made and revoked by events that are only ever appended; a session is a row until it ends.
Both are random and kept as their SHA-256, so nothing in the store lets anybody in.
"""

import hashlib
import json
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa

from data.base.errors import NotKnownError
from data.base.rows import row_of
from data.records.commands import Person
from data.store.engine import tables
from data.store.engine.dialects import Lock, Transaction, as_utc
from data.store.facts.fact_reader import FactReader
from data.store.record.ledger import append_row

PREFIX = "trimtab_"
_MADE, _REVOKED = "token-made", "token-revoked"
_BYTES = 32
_ID_LENGTH = 12
_ACCOUNTED = tables.accounted(tables.token_events)
_EVENTS = sa.select(_ACCOUNTED).order_by(_ACCOUNTED.c.sequence)


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiToken:
    """A token as people may see it; `person` acts by it, with `role` at most.

    It is good for the `access.mode` that it was made in alone, which its first event names.
    """

    token_id: str
    person: str
    role: str
    made_at: datetime
    made_by: str
    expires_at: datetime
    revoked_at: datetime | None
    mode: str = ""

    def is_valid(self, now: datetime) -> bool:
        """Return whether it still gives access."""
        return self.revoked_at is None and now < self.expires_at

    def holder(self) -> Person:
        """Return the person that it stands for."""
        return Person(name=self.person, via="token", max_role=self.role)


class TokenReader(FactReader):
    """Tokens and sessions; nothing here writes."""

    def tokens(self) -> tuple[ApiToken, ...]:
        """Return every token ever made, the newest first."""
        return _tokens_of(self._rows(_EVENTS))

    def token_of(self, text: str) -> ApiToken | None:
        """Return the token of a text, None where it is none of ours."""
        if not text.startswith(PREFIX):
            return None
        events = tables.token_events.c
        ids = sa.select(events.token_id).where(events.token_hash == _hash_of(text))
        tokens = _tokens_of(self._rows(_EVENTS.where(_ACCOUNTED.c.token_id.in_(ids))))
        return tokens[0] if tokens else None

    def signed_in(self, text: str, now: datetime) -> Person | None:
        """Return the person of the session that a text names, None where none is open."""
        session = tables.sign_ins.c
        query = sa.select(session.person, session.groups).where(
            session.id_hash == _hash_of(text), session.ends_at > now
        )
        for row in self._rows(query):
            return Person(name=row.person, groups=tuple(json.loads(row.groups)), via="oidc")
        return None


class SignIns:
    """Begins and ends the sessions of all web processes."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def begin(
        self,
        person: Person,
        *,
        issuer: str,
        subject: str,
        provider_session: str,
        now: datetime,
        ends_at: datetime,
    ) -> str:
        """Begin a session and forget those that are over; return the text that names it."""
        text = secrets.token_urlsafe(_BYTES)
        row = {
            "id_hash": _hash_of(text),
            "issuer": issuer,
            "subject": subject,
            "provider_session": provider_session,
            "person": person.name,
            "groups": json.dumps(person.groups),
            "ends_at": ends_at,
        }
        with self._transaction() as connection:
            connection.execute(sa.delete(tables.sign_ins).where(tables.sign_ins.c.ends_at <= now))
            connection.execute(sa.insert(tables.sign_ins).values(row))
        return text

    def end(self, text: str) -> None:
        """End the session that the text names."""
        self._delete(tables.sign_ins.c.id_hash == _hash_of(text))

    def end_at_provider(self, *, issuer: str, subject: str, provider_session: str) -> None:
        """End what a provider ends: one of its sessions, or all of the person's.

        Where it names a session, those of the person for which it named none end too.
        """
        session = tables.sign_ins.c
        one = session.provider_session == provider_session
        match = session.subject == subject if subject else sa.false()
        if provider_session:
            match = one | (match & (session.provider_session == ""))
        self._delete((session.issuer == issuer) & match)

    def _delete(self, match: sa.ColumnElement[bool]) -> None:
        with self._transaction() as connection:
            connection.execute(sa.delete(tables.sign_ins).where(match))


class Tokens:
    """Makes and revokes; `transaction` keeps writes whole or not at all."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    def make(
        self, *, holder: str, role: str, expires_at: datetime, by: Person, now: datetime, mode: str
    ) -> tuple[ApiToken, str]:
        """Make a token; give it with its text, which cannot be read again."""
        text = PREFIX + secrets.token_urlsafe(_BYTES)
        token = ApiToken(
            token_id=secrets.token_hex(_ID_LENGTH // 2),
            person=holder,
            role=role,
            made_at=now,
            made_by=by.name,
            expires_at=expires_at,
            revoked_at=None,
            mode=mode,
        )
        with self._transaction(Lock.RECORD) as connection:
            _append(connection, token, _MADE, by=by, at=now, token_hash=_hash_of(text))
        return token, text

    def revoke(self, token_id: str, *, by: Person, now: datetime) -> ApiToken:
        """Revoke a token. Errors: NotKnownError."""
        with self._transaction(Lock.RECORD) as connection:
            for token in _tokens_of(connection.execute(_EVENTS).all()):
                if token.token_id == token_id and token.revoked_at is None:
                    _append(connection, token, _REVOKED, by=by, at=now)
                    return token
        raise NotKnownError(
            f"no token has the id {token_id!r}, or it was revoked before",
            "`trimtab token list` shows them.",
        )


def _append(
    connection: sa.Connection,
    token: ApiToken,
    event: str,
    *,
    by: Person,
    at: datetime,
    token_hash: str = "",
) -> None:
    until = f"until {token.expires_at:%Y-%m-%d %H:%M} UTC"
    append_row(
        connection,
        tables.token_events,
        {
            "token_id": token.token_id,
            "event": f"{event} {token.mode}" if event == _MADE else event,
            "person": token.person,
            "role": token.role,
            "token_hash": token_hash,
            "expires_at": token.expires_at,
            "made_at": at,
            "made_by": by.name,
        },
        at=at,
        actor=by.actor,
        event=event,
        digest="",
        detail=f"{token.token_id}: {token.person} as {token.role} {until}",
    )


def _tokens_of(rows: Iterable[Any]) -> tuple[ApiToken, ...]:
    """Return the tokens of their events in order, the newest token first."""
    row_by_id, revoked = dict[str, Any](), dict[str, datetime]()
    for row in rows:
        if row.event.partition(" ")[0] == _MADE:
            row_by_id[row.token_id] = row
        else:
            revoked[row.token_id] = as_utc(row.made_at)
    return tuple(_token_of(row, revoked.get(row.token_id)) for row in reversed(row_by_id.values()))


def _hash_of(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()


def _token_of(row: Any, revoked_at: datetime | None) -> ApiToken:
    return row_of(
        ApiToken,
        row,
        made_at=as_utc(row.made_at),
        expires_at=as_utc(row.expires_at),
        revoked_at=revoked_at,
        mode=row.event.partition(" ")[2],
    )
