"""The life of a recommendation as a state machine: what may follow what, and nothing else.

States are never kept. They follow from the append-only rows of decisions, commands and journal,
folded in the order of the audit entries that cover them. Expired, superseded and snoozed are not
events of a recommendation: they follow from the clock, from a newer plan and from what was said of
the finding, for what has not been taken up.
"""

from collections.abc import Iterable
from enum import StrEnum


class State(StrEnum):
    """The state of a recommendation."""

    PROPOSED = "proposed"
    APPROVED = "approved"
    REJECTED = "rejected"
    WRITTEN = "written"
    APPLYING = "applying"
    APPLIED = "applied"
    APPLIED_DIFFERENTLY = "applied-differently"
    FAILING = "failing"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    VERIFIED = "verified"
    FELL_SHORT = "fell-short"
    KEPT = "kept"
    ROLLING_BACK = "rolling-back"
    ROLLED_BACK = "rolled-back"
    ROLLBACK_REFUSED = "rollback-refused"
    UNDONE_OUTSIDE = "undone-outside"
    CHANGED_OUTSIDE = "changed-outside"
    TARGET_GONE = "target-gone"
    REPLACED = "replaced"
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    SNOOZED = "snoozed"


CHANGED_TARGET = "the target moved"
"""Record of a refusal that says nothing of the next plan: the target was no more as it was."""


class LifecycleEvent(StrEnum):
    """An event that moves a recommendation from one state to another."""

    APPROVED = "approved"
    REJECTED = "rejected"
    WRITTEN = "written"
    KEPT = "kept"
    APPLY_ASKED = "apply-asked"
    ROLLBACK_ASKED = "rollback-asked"
    APPLIED = "applied"
    APPLIED_DIFFERENTLY = "applied-differently"
    FAILING = "failing"
    REFUSED = "refused"
    UNKNOWN = "unknown"
    VERIFIED = "verified"
    FELL_SHORT = "fell-short"
    ROLLED_BACK = "rolled-back"
    ROLLBACK_REFUSED = "rollback-refused"
    UNDONE_OUTSIDE = "undone-outside"
    CHANGED_OUTSIDE = "changed-outside"
    TARGET_GONE = "target-gone"
    REPLACED = "replaced"


_Event = LifecycleEvent


def _by(*events: LifecycleEvent) -> dict[LifecycleEvent, State]:
    """Return what each event leads to: the state of its name, or what it asks for."""
    asks = {_Event.APPLY_ASKED: State.APPLYING, _Event.ROLLBACK_ASKED: State.ROLLING_BACK}
    return {event: asks.get(event) or State(event) for event in events}


_STANDING = _by(
    *(_Event.FAILING, _Event.VERIFIED, _Event.FELL_SHORT, _Event.KEPT, _Event.ROLLBACK_ASKED),
    *(_Event.UNDONE_OUTSIDE, _Event.CHANGED_OUTSIDE, _Event.TARGET_GONE, _Event.REPLACED),
)
"""Events that may follow once a change stands in the cluster."""

TRANSITIONS: dict[State, dict[LifecycleEvent, State]] = {
    State.PROPOSED: _by(_Event.APPROVED, _Event.REJECTED),
    State.APPROVED: _by(_Event.REJECTED, _Event.WRITTEN, _Event.APPLY_ASKED),
    State.WRITTEN: _by(_Event.REJECTED, _Event.APPLY_ASKED),
    State.APPLYING: _by(
        *(_Event.APPLIED, _Event.APPLIED_DIFFERENTLY, _Event.FAILING, _Event.REFUSED),
        *(_Event.UNKNOWN, _Event.ROLLBACK_ASKED),
    ),
    State.APPLIED: _STANDING,
    State.APPLIED_DIFFERENTLY: _STANDING,
    State.UNKNOWN: _STANDING
    | _by(
        *(_Event.APPLIED, _Event.APPLIED_DIFFERENTLY, _Event.REFUSED),
        *(_Event.ROLLED_BACK, _Event.ROLLBACK_REFUSED),
    ),
    State.FAILING: _STANDING | _by(_Event.APPLIED, _Event.ROLLED_BACK),
    State.VERIFIED: _STANDING,
    State.FELL_SHORT: _STANDING,
    State.KEPT: {**_STANDING, _Event.VERIFIED: State.KEPT},
    State.ROLLING_BACK: _by(
        *(_Event.ROLLED_BACK, _Event.ROLLBACK_REFUSED, _Event.APPLIED),
        *(_Event.APPLIED_DIFFERENTLY, _Event.FAILING, _Event.UNKNOWN, _Event.ROLLBACK_ASKED),
    ),
    State.ROLLED_BACK: _by(_Event.FAILING, _Event.ROLLBACK_ASKED),
    State.ROLLBACK_REFUSED: _STANDING,
    State.UNDONE_OUTSIDE: _by(_Event.ROLLBACK_ASKED),
    State.CHANGED_OUTSIDE: _by(_Event.ROLLBACK_ASKED),
    State.REPLACED: _by(_Event.ROLLBACK_ASKED),
    State.TARGET_GONE: {},
    State.REFUSED: {},
    State.REJECTED: {},
    State.EXPIRED: {},
    State.SUPERSEDED: {},
    State.SNOOZED: {},
}
"""APPLIED after ROLLING_BACK: a rollback was itself rolled back. ROLLBACK_ASKED while a command is
under way ends that one: what it did is undone. REPLACED: a later recommendation changed the same
field of the same object."""

OPEN = frozenset({State.APPLYING, State.ROLLING_BACK})
"""A command is under way."""
STANDING_STATES = frozenset(
    state for state, after in TRANSITIONS.items() if LifecycleEvent.KEPT in after
)
"""The change, or part of it, is in the cluster and can be kept or rolled back."""
ACTIVE_STATES = OPEN | STANDING_STATES | {State.APPROVED, State.WRITTEN}
"""Somebody said yes, and it is not over."""
REVERSIBLE = frozenset(
    state for state, after in TRANSITIONS.items() if LifecycleEvent.ROLLBACK_ASKED in after
)
"""A rollback can be asked for; of what was rolled back it applies again."""
REJECTABLE = frozenset(
    {State.SNOOZED}
    | {state for state, after in TRANSITIONS.items() if LifecycleEvent.REJECTED in after}
)
"""Nothing was sent yet, and a person may say no to it."""
COOLDOWN_STATES = frozenset(
    {State.SNOOZED, State.REJECTED, State.ROLLED_BACK, State.ROLLBACK_REFUSED, State.FELL_SHORT}
    | {State.UNDONE_OUTSIDE, State.CHANGED_OUTSIDE}
)
"""What keeps a finding from being proposed for a while, unless it is reopened."""


class IllegalEventError(ValueError):
    """An event that may not follow the present state."""


def next_state(state: State, event: LifecycleEvent) -> State:
    """Return the state after the event. Errors: IllegalEventError."""
    after = TRANSITIONS[state].get(event)
    if after is None:
        allowed = ", ".join(TRANSITIONS[state]) or "nothing"
        raise IllegalEventError(f"{event} cannot follow {state}; only {allowed} can")
    return after


def state_after(events: Iterable[str]) -> State:
    """Fold the events of one recommendation, oldest first; words that move nothing are skipped.

    An event that may not follow (a row that was tampered with) leaves the state as it is:
    `trimtab audit verify` names such rows.
    """
    state = State.PROPOSED
    for word in events:
        if word in _WORDS:
            state = TRANSITIONS[state].get(LifecycleEvent(word), state)
    return state


_WORDS = frozenset(map(str, LifecycleEvent))


def shown_state(state: State, *, expired: bool, superseded: bool, snoozed: bool = False) -> State:
    """Return the displayed state: one without a decision expires, is superseded or snoozed."""
    if snoozed and state is State.PROPOSED:
        return State.SNOOZED
    if expired and state in (State.PROPOSED, State.APPROVED):
        return State.EXPIRED
    if superseded and state is State.PROPOSED:
        return State.SUPERSEDED
    return state
