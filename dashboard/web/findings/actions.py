"""Buttons of decisions: which are offered for a finding, and what is asked before one posts.

Each posts its wish to the HTTP API, where every right is asked again.
"""

from collections.abc import Iterable
from datetime import timedelta

from dashboard.decisions.decision_table import DECISIONS, DecisionRow, WishKind
from dashboard.decisions.service import DecisionService
from data.base.errors import TrimtabError
from data.records.actions import Risk
from data.records.commands import Person
from data.records.lifecycle import State
from data.records.recommendations import Recommendation
from data.store import StoredRecommendation

SNOOZES = {
    "a day": timedelta(days=1),
    "a week": timedelta(days=7),
    "four weeks": timedelta(days=28),
}
BULK_WISHES = (WishKind.APPROVE_AND_APPLY, WishKind.APPROVE, WishKind.SNOOZE, WishKind.REJECT)
"""What may be done with several at once."""


ADVICE_LABELS = {WishKind.REJECT: "Done", WishKind.SNOOZE: "Not now"}
"""The decisions about advice, which a person follows by hand: done is a reason to dismiss it."""


def refusal_reason(
    service: DecisionService, wish: WishKind, stored: StoredRecommendation, person: Person
) -> str:
    """Return the reason against a decision, '' where none is known."""
    row = DECISIONS[wish]
    if stored.state not in row.states:
        return f"it is {stored.state}"
    if row.approves and stored.recommendation.is_advice:
        return "it is advice, which a person follows by hand"
    refusal = service.why_not(person, stored.recommendation, approving=row.approves)
    if refusal:
        return refusal
    if row.changes and not service.can_apply(stored.recommendation):
        return "no applier that is switched on makes this change"
    return ""


def offered(service: DecisionService, stored: StoredRecommendation) -> list[WishKind]:
    """Return the decisions that fit the state of a recommendation and its change."""
    can_apply = service.can_apply(stored.recommendation)
    rows = list(DECISIONS.values())
    if stored.recommendation.is_advice:
        rows.sort(key=lambda row: row.wish is not WishKind.REJECT)
    return [
        row.wish
        for row in rows
        if row.label and stored.state in row.states and _fits(service, row, stored, can_apply)
    ]


def _fits(
    service: DecisionService, row: DecisionRow, stored: StoredRecommendation, can_apply: bool
) -> bool:
    if row.approves and stored.recommendation.is_advice:
        return False
    if row.wish is WishKind.WRITE:
        return not can_apply and _has_text(service, stored)
    going_back = row.wish in (WishKind.ROLL_BACK, WishKind.MAKE_AGAIN)
    if going_back and stored.recommendation.cancels_job:
        return stored.state == State.APPLYING
    return can_apply or not row.changes or stored.state == State.APPLYING


def _has_text(service: DecisionService, stored: StoredRecommendation) -> bool:
    try:
        service.change_text(stored.recommendation.digest)
    except TrimtabError:
        return False
    return True


def needs_confirmation(wish: WishKind, revision: Recommendation) -> bool:
    """Return whether one finding is asked about once more: by its risk, or what has to be said."""
    row = DECISIONS[wish]
    return bool({"until", "reason"} & set(row.fields)) or (
        row.by_risk and revision.risk is not Risk.LOW
    )


def needs_tick(wish: WishKind, revisions: Iterable[Recommendation]) -> bool:
    """Return whether a person has to say that the risk was read: a high one that is applied."""
    row = DECISIONS[wish]
    return row.by_risk and row.changes and any(entry.risk is Risk.HIGH for entry in revisions)
