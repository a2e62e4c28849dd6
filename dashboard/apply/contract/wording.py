"""Words for a change and its state: one for every action, direction and state."""

from collections.abc import Mapping

from data.records.commands import Command
from data.records.lifecycle import State
from data.records.recommendations import Recommendation

STATE_WORDS: Mapping[State, str] = {
    State.PROPOSED: "waits for a decision",
    State.APPROVED: "approved, and nobody has asked for it to be applied",
    State.REJECTED: "rejected",
    State.WRITTEN: "its change file is written; whether it was run is not known",
    State.APPLYING: "is being applied",
    State.APPLIED: "applied; its target is watched",
    State.APPLIED_DIFFERENTLY: "applied in part or with another value; its target is watched",
    State.FAILING: "applied, and the work fails; its target is watched",
    State.REFUSED: "refused: nothing was changed",
    State.UNKNOWN: "sent, and nobody knows yet whether it arrived; looked at again",
    State.VERIFIED: "applied and measured; its target is watched",
    State.FELL_SHORT: "applied, measured, and short of its promise; its target is watched",
    State.KEPT: "applied and kept; its target is watched",
    State.ROLLING_BACK: "is being rolled back",
    State.ROLLED_BACK: "rolled back; the work is watched",
    State.ROLLBACK_REFUSED: "its rollback was refused: the change stands",
    State.UNDONE_OUTSIDE: "was applied, and put back by others",
    State.CHANGED_OUTSIDE: "was applied, and changed by others",
    State.TARGET_GONE: "was applied; its target has ended or was deleted",
    State.REPLACED: "was applied, and replaced by a later change of the same fields",
    State.EXPIRED: "expired before anybody took it up",
    State.SUPERSEDED: "superseded by a newer plan",
    State.SNOOZED: "snoozed, not proposed for now",
}


def change_words(recommendation: Recommendation, *, back: bool) -> str:
    """Return the words for making the change, or for undoing it."""
    forward, backward = recommendation.action.spec.deeds
    return (backward if back else forward).format(
        target=recommendation.target,
        change=recommendation.change,
        now=recommendation.now.describe(),
        then=recommendation.proposed.describe(),
    )


def is_forward(command: Command, apply: Command) -> bool:
    """Return whether a command of a recommendation applies it, at first or again."""
    return not command.subject.startswith(f"{apply.command_id}:")
