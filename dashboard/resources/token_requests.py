"""Tokens as admins make, list and revoke them, by the HTTP API and the command line."""

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Path
from pydantic import BaseModel, ConfigDict, Field

from dashboard.decisions.service import DecisionService
from data.base.rows import row_of
from data.records.commands import Person
from data.store.record.tokens import ApiToken

TokenRole = Literal["viewer", "owner", "approver"]
"""No token makes its holder an admin."""


class TokenWish(BaseModel):
    """Who acts by the token, with which highest role, and for how long."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    person: Annotated[str, Field(min_length=1, max_length=200)]
    role: TokenRole = "viewer"
    days: Annotated[float, Field(gt=0, le=366)] = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """A token without its text."""

    token_id: str
    person: str
    role: str
    state: str
    made_at: datetime
    made_by: str
    expires_at: datetime
    revoked_at: datetime | None


class NewToken(BaseModel):
    """A token with its text, which is shown this once."""

    model_config = ConfigDict(frozen=True)

    token_id: str
    token: str
    expires_at: datetime


def token_row(token: ApiToken, now: datetime) -> TokenRow:
    """Return a token as it is listed."""
    state = "valid" if token.is_valid(now) else "revoked" if token.revoked_at else "expired"
    return row_of(TokenRow, token, state=state)


def make_token(service: DecisionService, wish: TokenWish, by: Person) -> NewToken:
    """Make a token. Errors: NotAllowedError, ChangeRefusedError."""
    token, text = service.make_token(
        holder=wish.person, role=wish.role, lasts=timedelta(days=wish.days), person=by
    )
    return NewToken(token_id=token.token_id, token=text, expires_at=token.expires_at)


def add_tokens(api: FastAPI, service: DecisionService, anyone: Any) -> None:
    """Add the resource; the decision service lets admins alone use it."""

    @api.get("/tokens")
    def tokens(who: anyone) -> list[TokenRow]:
        now = service.clock()
        return [token_row(token, now) for token in service.tokens(who.person)]

    @api.post("/tokens", status_code=201)
    def make(wish: TokenWish, who: anyone) -> NewToken:
        return make_token(service, wish, who.person)

    @api.delete("/tokens/{token_id}")
    def revoke(token_id: Annotated[str, Path(max_length=64)], who: anyone) -> TokenRow:
        now = service.clock()
        return token_row(replace(service.revoke_token(token_id, who.person), revoked_at=now), now)
