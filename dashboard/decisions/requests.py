"""Requests of people about a finding, and the one way in which they are carried out.

The command line with the store open and the HTTP API call the same function, so that both refuse
and answer alike.
"""

from datetime import datetime
from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from dashboard.common.request_times import Moment
from dashboard.decisions.decision_table import DECISIONS, WishKind
from dashboard.decisions.findings import REOPENED
from dashboard.decisions.service import DecisionService
from data.base.errors import ChangeRefusedError
from data.records.commands import MAX_REMARK, Person
from data.records.findings import DismissalReason
from data.records.lifecycle import COOLDOWN_STATES
from data.records.recommendations import Decision
from data.store.record.commands import CommandRequest


class Wish(BaseModel):
    """A decision about a finding, or a command for its change."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    decision: WishKind
    comment: Annotated[str, Field(max_length=MAX_REMARK, description="why")] = ""
    reason: Annotated[DismissalReason | None, Field(description="of a rejection")] = None
    until: Annotated[Moment | None, Field(description="end of a snooze")] = None
    change_digest: Annotated[
        str, Field(max_length=128, description="of the change that was shown, for an approval")
    ] = ""


class WishOutcome(BaseModel):
    """What came of a wish: the recommendation that it is about, as it stands now.

    A command that was asked for is carried out by the apply worker; `fresh` is false when somebody
    had asked for it before, and `file` is the change file that was written.
    """

    model_config = ConfigDict(frozen=True)

    finding: str
    recommendation_id: str
    digest: str
    state: str
    by: str
    at: datetime
    until: datetime | None = None
    file: str | None = None
    fresh: bool = True


def carry_out(service: DecisionService, reference: str, wish: Wish, person: Person) -> WishOutcome:
    """Carry a wish out for a person; `reference` is TT-12 or what an id begins with.

    Errors: NotKnownError, NotAllowedError, StalePlanError, ApprovalMissingError,
    ChangeRefusedError, StoreError.
    """
    _require_fields(wish)
    by, at, file, fresh = person.name, service.clock(), None, True
    match wish.decision:
        case WishKind.APPROVE:
            digest = service.decide(
                reference, Decision.APPROVED, person, wish.comment, wish.change_digest
            )
        case WishKind.REJECT:
            digest = service.decide(
                reference, Decision.REJECTED, person, wish.comment, reason=wish.reason
            )
        case WishKind.KEEP:
            digest = service.decide(reference, Decision.KEPT, person, wish.comment)
        case WishKind.SNOOZE:
            digest = service.snooze(reference, wish.until or at, person, wish.comment).digest
        case WishKind.REOPEN:
            digest = service.reopen(reference, person, wish.comment).digest
        case WishKind.WRITE:
            digest, file = _written(service, reference, person)
        case WishKind.APPLY_OR_WRITE if not service.will_apply(reference):
            digest, file = _written(service, reference, person)
        case _:
            request = _command(service, reference, wish, person)
            command = request.command
            digest, fresh = command.digest, request.fresh
            by, at = command.person.name, command.asked_at
    stored = service.stored(digest)
    # Nothing proposes it again before the next cycle does.
    reopened = wish.decision is WishKind.REOPEN and stored.state in COOLDOWN_STATES
    return WishOutcome(
        finding=stored.reference,
        recommendation_id=stored.recommendation.recommendation_id,
        digest=digest,
        state=REOPENED if reopened else stored.state,
        by=by,
        at=at,
        until=wish.until,
        file=file,
        fresh=fresh,
    )


def _written(service: DecisionService, reference: str, person: Person) -> tuple[str, str]:
    """Write the change file; give the digest of the change and the whole path of the file."""
    file = service.write_change(reference, person)
    return service.stored(reference).recommendation.digest, str(file.absolute())


def _command(
    service: DecisionService, reference: str, wish: Wish, person: Person
) -> CommandRequest:
    kind = wish.decision
    if kind is WishKind.APPROVE_AND_APPLY:
        return service.approve_and_apply(reference, person, wish.comment, wish.change_digest)
    if kind in (WishKind.APPLY, WishKind.APPLY_OR_WRITE):
        return service.apply(reference, person)
    return service.roll_back(reference, person, again=kind is WishKind.MAKE_AGAIN)


def _require_fields(wish: Wish) -> None:
    """Refuse (ChangeRefusedError) what a wish of its kind lacks, or would silently ignore."""
    kind = wish.decision
    if kind is WishKind.SNOOZE and wish.until is None:
        raise ChangeRefusedError("a snooze needs its end", "Give `until`, a time with its zone.")
    fields = ("decision", "comment", *DECISIONS[kind].fields)
    for name in Wish.model_fields:
        if name not in fields and getattr(wish, name):
            raise ChangeRefusedError(
                f"{name!r} does not belong to the decision '{kind}'", "Leave it out."
            )
