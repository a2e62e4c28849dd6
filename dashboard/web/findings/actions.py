"""Actions on findings, as a table: one row a verb, for one finding or many at once.

A verb is a wish of the HTTP API, to which its button posts: every right is asked again there.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from dashboard.decisions.decision_table import WishKind
from dashboard.decisions.service import DecisionService
from data.base.errors import TrimtabError
from data.records.actions import Risk
from data.records.commands import Person
from data.records.lifecycle import HELD_BACK, REJECTABLE, REVERSIBLE, STANDING, State
from data.records.recommendations import Recommendation
from data.store import StoredRecommendation

SNOOZES = {
    "a day": timedelta(days=1),
    "a week": timedelta(days=7),
    "four weeks": timedelta(days=28),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One thing to do. `done` says what becomes of a finding, `states` where it may be done.

    `asks` names the fields of its dialog, which is always shown when there are any but a comment.
    `by_risk`: the risk decides whether it is confirmed. `approves` asks for the right to approve;
    `changes` needs an applier and touches the cluster.
    """

    label: str
    done: str
    wish: WishKind
    states: frozenset[State]
    asks: tuple[str, ...] = ()
    by_risk: bool = False
    approves: bool = False
    changes: bool = False


_PROPOSED = frozenset({State.PROPOSED})
VERBS: Mapping[str, Verb] = {
    "approve-and-apply": Verb(
        label="Approve and apply",
        done="approved, and applied as soon as the limits allow",
        wish=WishKind.APPROVE_AND_APPLY,
        states=_PROPOSED,
        asks=("comment",),
        by_risk=True,
        approves=True,
        changes=True,
    ),
    "approve": Verb(
        label="Approve",
        done="approved, and not changed yet",
        wish=WishKind.APPROVE,
        states=_PROPOSED,
        asks=("comment",),
        by_risk=True,
        approves=True,
    ),
    "snooze": Verb(
        label="Snooze",
        done="kept from being proposed until the time is over",
        wish=WishKind.SNOOZE,
        states=_PROPOSED,
        asks=("snooze", "comment"),
    ),
    "dismiss": Verb(
        label="Dismiss",
        done="dismissed; the reason keeps it from coming back at once",
        wish=WishKind.REJECT,
        states=REJECTABLE,
        asks=("reason", "comment"),
    ),
    "apply": Verb(
        label="Apply",
        done="applied as soon as the limits allow",
        wish=WishKind.APPLY,
        states=frozenset({State.APPROVED, State.WRITTEN}),
        by_risk=True,
        changes=True,
    ),
    "write": Verb(
        label="Write the change file",
        done="written into apply.directory",
        wish=WishKind.WRITE,
        states=frozenset({State.APPROVED}),
    ),
    "reopen": Verb(
        label="Reopen",
        done="open for the next cycle",
        wish=WishKind.REOPEN,
        states=HELD_BACK,
    ),
    "roll-back": Verb(
        label="Roll back",
        done="undone in the cluster",
        wish=WishKind.ROLL_BACK,
        states=frozenset(REVERSIBLE - {State.ROLLED_BACK} | {State.APPLYING}),
        changes=True,
    ),
    "roll-forward": Verb(
        label="Undo the rollback",
        done="applied again",
        wish=WishKind.MAKE_AGAIN,
        states=frozenset({State.ROLLED_BACK}),
        changes=True,
    ),
    "keep": Verb(
        label="Keep",
        done="kept, whatever is measured",
        wish=WishKind.KEEP,
        states=frozenset(STANDING - {State.KEPT}),
    ),
}
BULK = ("approve-and-apply", "approve", "snooze", "dismiss")
"""What may be done with several at once."""


def why_refused(
    service: DecisionService, verb: Verb, stored: StoredRecommendation, person: Person
) -> str:
    """Return the reason against a verb, '' where none is known."""
    if stored.state not in verb.states:
        return f"it is {stored.state}"
    if verb.approves and stored.recommendation.is_advice:
        return "it is advice, which a person follows by hand"
    refusal = service.why_not(person, stored.recommendation, approving=verb.approves)
    if refusal:
        return refusal
    if verb.changes and not service.can_apply(stored.recommendation):
        return "no applier that is switched on makes this change"
    return ""


def offered(service: DecisionService, stored: StoredRecommendation) -> list[str]:
    """Return the names of the verbs that fit the state of a recommendation and its change."""
    can_apply = service.can_apply(stored.recommendation)
    return [
        name
        for name, verb in VERBS.items()
        if stored.state in verb.states and _fits(service, name, stored, can_apply)
    ]


def _fits(
    service: DecisionService, name: str, stored: StoredRecommendation, can_apply: bool
) -> bool:
    if VERBS[name].approves and stored.recommendation.is_advice:
        return False
    if name == "write":
        return not can_apply and _has_text(service, stored)
    if name in ("roll-back", "roll-forward") and stored.recommendation.cancels_job:
        return stored.state == State.APPLYING
    return can_apply or not VERBS[name].changes or stored.state == State.APPLYING


def _has_text(service: DecisionService, stored: StoredRecommendation) -> bool:
    try:
        service.change_text(stored.recommendation.digest)
    except TrimtabError:
        return False
    return True


def needs_confirmation(name: str, revision: Recommendation) -> bool:
    """Return whether one finding is asked about once more: by its risk, or what has to be said."""
    verb = VERBS[name]
    if set(verb.asks) - {"comment"}:
        return True
    return verb.by_risk and revision.risk is not Risk.LOW


def needs_tick(name: str, revisions: Iterable[Recommendation]) -> bool:
    """Return whether a person has to say that the risk was read: a high one that is applied."""
    verb = VERBS[name]
    return verb.by_risk and verb.changes and any(entry.risk is Risk.HIGH for entry in revisions)
