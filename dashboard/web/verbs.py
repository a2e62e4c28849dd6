"""What people may do with a finding, as a table: one row a verb, for one finding or many at once.

A verb is asked for by its name alone. Who, which revision and which words are read when the press
is heard, and every right is asked again by the decision service.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta

from dashboard.decision_service import DecisionService
from dashboard.findings import HELD_BACK
from data.errors import TrimtabError
from data.records.commands import Person
from data.records.decisions import Decision, Recommendation, Risk
from data.records.findings import DismissalReason
from data.records.lifecycle import REJECTABLE, REVERSIBLE, STANDING, State
from data.store import StoredRecommendation

SNOOZES = {
    "a day": timedelta(days=1),
    "a week": timedelta(days=7),
    "four weeks": timedelta(days=28),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """What a press was made with: who, their remark, the digest of the change they were shown.

    `reason` is why it is dismissed, None when none was chosen; `snooze` how long it may rest.
    """

    person: Person
    remark: str = ""
    shown: str = ""
    reason: DismissalReason | None = None
    snooze: timedelta = SNOOZES["a week"]


Act = Callable[[DecisionService, StoredRecommendation, Given], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class Verb:
    """One thing to do. `done` says what becomes of a finding, `states` where it may be done.

    `asks` names the fields of its dialog, which is always shown when there are any but a comment.
    `by_risk`: the risk decides whether it is confirmed. `approves` asks for the right to approve;
    `changes` needs an applier and touches the cluster.
    """

    label: str
    done: str
    act: Act
    states: frozenset[State]
    asks: tuple[str, ...] = ()
    by_risk: bool = False
    approves: bool = False
    changes: bool = False


def _digest(stored: StoredRecommendation) -> str:
    return stored.recommendation.digest


def _decide(decision: Decision) -> Act:
    def act(service: DecisionService, stored: StoredRecommendation, given: Given) -> object:
        return service.decide(
            _digest(stored), decision, given.person, given.remark, given.shown, given.reason
        )

    return act


_PROPOSED = frozenset({State.PROPOSED})
VERBS: Mapping[str, Verb] = {
    "approve-and-apply": Verb(
        label="Approve and apply",
        done="approved, and applied as soon as the limits allow",
        act=lambda service, stored, given: service.approve_and_apply(
            _digest(stored), given.person, given.remark, given.shown
        ),
        states=_PROPOSED,
        asks=("comment",),
        by_risk=True,
        approves=True,
        changes=True,
    ),
    "approve": Verb(
        label="Approve",
        done="approved, and not changed yet",
        act=_decide(Decision.APPROVED),
        states=_PROPOSED,
        asks=("comment",),
        by_risk=True,
        approves=True,
    ),
    "snooze": Verb(
        label="Snooze",
        done="not proposed again before the time is over",
        act=lambda service, stored, given: service.snooze(
            _digest(stored), service.clock() + given.snooze, given.person, given.remark
        ),
        states=_PROPOSED,
        asks=("snooze", "comment"),
    ),
    "dismiss": Verb(
        label="Dismiss",
        done="dismissed; the reason keeps it from coming back at once",
        act=_decide(Decision.REJECTED),
        states=REJECTABLE,
        asks=("reason", "comment"),
    ),
    "apply": Verb(
        label="Apply",
        done="applied as soon as the limits allow",
        act=lambda service, stored, given: service.apply(_digest(stored), given.person),
        states=frozenset({State.APPROVED, State.WRITTEN}),
        by_risk=True,
        changes=True,
    ),
    "write": Verb(
        label="Write the change file",
        done="written into apply.directory",
        act=lambda service, stored, given: service.write_change(_digest(stored), given.person),
        states=frozenset({State.APPROVED}),
    ),
    "reopen": Verb(
        label="Reopen",
        done="open for the next cycle",
        act=lambda service, stored, given: service.reopen(
            _digest(stored), given.person, given.remark
        ),
        states=HELD_BACK,
    ),
    "roll-back": Verb(
        label="Roll back",
        done="undone in the cluster",
        act=lambda service, stored, given: service.roll_back(_digest(stored), given.person),
        states=frozenset(REVERSIBLE - {State.ROLLED_BACK} | {State.APPLYING}),
        changes=True,
    ),
    "roll-forward": Verb(
        label="Undo the rollback",
        done="applied again",
        act=lambda service, stored, given: service.roll_back(
            _digest(stored), given.person, again=True
        ),
        states=frozenset({State.ROLLED_BACK}),
        changes=True,
    ),
    "keep": Verb(
        label="Keep",
        done="kept, whatever is measured",
        act=_decide(Decision.KEPT),
        states=frozenset(STANDING - {State.KEPT}),
    ),
}
BULK = ("approve-and-apply", "approve", "snooze", "dismiss")
"""What may be done with several at once."""


def why_refused(
    service: DecisionService, verb: Verb, stored: StoredRecommendation, person: Person
) -> str:
    """Return why a verb would be refused, '' where nothing is known against it."""
    if stored.state not in verb.states:
        return f"it is {stored.state}"
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
    if name == "write":
        return not can_apply and _has_text(service, stored)
    if name in ("roll-back", "roll-forward") and stored.recommendation.cancels_job:
        return stored.state == State.APPLYING
    return can_apply or not VERBS[name].changes or stored.state == State.APPLYING


def _has_text(service: DecisionService, stored: StoredRecommendation) -> bool:
    try:
        service.change_text(_digest(stored))
    except TrimtabError:
        return False
    return True


def needs_confirmation(name: str, said: Recommendation) -> bool:
    """Tell whether one finding is asked about once more: by its risk, or what has to be said."""
    verb = VERBS[name]
    if set(verb.asks) - {"comment"}:
        return True
    return verb.by_risk and said.risk is not Risk.LOW


def needs_tick(name: str, found: Iterable[Recommendation]) -> bool:
    """Tell whether a person has to say that the risk was read: a high one that is applied."""
    verb = VERBS[name]
    return verb.by_risk and verb.changes and any(said.risk is Risk.HIGH for said in found)
