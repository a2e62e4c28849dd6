"""Decisions of people about findings, as a table: one row each.

The commands of `trimtab findings`, the wishes of the API and the buttons derive from its rows, and
what refuses one reads its states. Nothing heavy is imported: the parser reads it.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from data.records.lifecycle import COOLDOWN_STATES, REJECTABLE, REVERSIBLE, STANDING_STATES, State


class WishKind(StrEnum):
    """A request about a finding; a change that no applier makes can be written as a file."""

    APPROVE = "approve"
    APPROVE_AND_APPLY = "approve-and-apply"
    REJECT = "reject"
    KEEP = "keep"
    SNOOZE = "snooze"
    REOPEN = "reopen"
    WRITE = "write"
    APPLY = "apply"
    APPLY_OR_WRITE = "apply-or-write"
    ROLL_BACK = "roll-back"
    MAKE_AGAIN = "make-again"


@dataclass(frozen=True, slots=True, kw_only=True)
class DecisionRow:
    """One decision, whose word in the API is `wish`.

    It is offered in `states`, and taken in `again` as well, where it has been taken before;
    `refusal` is the hint in any other. `fields` are those of a wish that it keeps.
    `approves` asks for the right to approve, the others for the right to decide. `changes` needs an
    applier and touches the cluster. `by_risk`: the risk decides whether it is confirmed. With
    `command` it is a command, with `label` a button; `done` says what becomes of a finding.
    """

    wish: WishKind
    states: frozenset[State]
    again: frozenset[State] = frozenset()
    refusal: str = ""
    fields: tuple[str, ...] = ()
    approves: bool = False
    changes: bool = False
    by_risk: bool = False
    command: str = ""
    help: str = ""
    label: str = ""
    done: str = ""


_PROPOSED = frozenset({State.PROPOSED})
_APPROVED = frozenset({State.APPROVED, State.WRITTEN})
_ROWS = (
    DecisionRow(
        wish=WishKind.APPROVE_AND_APPLY,
        states=_PROPOSED,
        fields=("comment", "change_digest"),
        approves=True,
        changes=True,
        by_risk=True,
        label="Approve and apply",
        done="approved, and applied as soon as the limits allow",
    ),
    DecisionRow(
        wish=WishKind.APPROVE,
        states=_PROPOSED,
        refusal="Only a proposed one can be approved; see `trimtab findings list`.",
        fields=("comment", "change_digest"),
        approves=True,
        by_risk=True,
        command="approve",
        help="approve its change, as the newest plan has it",
        label="Approve",
        done="approved, and not changed yet",
    ),
    DecisionRow(
        wish=WishKind.APPLY,
        states=_APPROVED,
        changes=True,
        by_risk=True,
        label="Apply",
        done="applied as soon as the limits allow",
    ),
    DecisionRow(
        wish=WishKind.APPLY_OR_WRITE,
        states=_APPROVED,
        changes=True,
        command="apply",
        help="make its approved change; while applying is off, write the change file",
    ),
    DecisionRow(
        wish=WishKind.WRITE,
        states=frozenset({State.APPROVED}),
        again=frozenset({State.WRITTEN}),
        label="Write the change file",
        done="written into apply.directory",
    ),
    DecisionRow(
        wish=WishKind.SNOOZE,
        states=_PROPOSED,
        again=frozenset({State.SNOOZED}),
        refusal="Only a proposed one can be snoozed.",
        fields=("until", "comment"),
        command="snooze",
        help="do not propose it before a time",
        label="Snooze",
        done="kept from being proposed until the time is over",
    ),
    DecisionRow(
        wish=WishKind.REJECT,
        states=REJECTABLE,
        refusal="Only what is proposed, snoozed, approved or written can be dismissed.",
        fields=("reason", "comment"),
        command="dismiss",
        help="reject what it proposes, for a reason that is counted",
        label="Dismiss",
        done="dismissed; the reason keeps it from coming back at once",
    ),
    DecisionRow(
        wish=WishKind.REOPEN,
        states=COOLDOWN_STATES,
        refusal="Only what was snoozed, dismissed or undone can be reopened.",
        fields=("comment",),
        command="reopen",
        help="let it be proposed again",
        label="Reopen",
        done="open for the next cycle",
    ),
    DecisionRow(
        wish=WishKind.ROLL_BACK,
        states=REVERSIBLE - {State.ROLLED_BACK},
        refusal="Only an applied change can be undone; `trimtab findings reapply` makes one again.",
        changes=True,
        command="rollback",
        help="undo its change",
        label="Roll back",
        done="undone in the cluster",
    ),
    DecisionRow(
        wish=WishKind.MAKE_AGAIN,
        states=frozenset({State.ROLLED_BACK}),
        again=frozenset({State.ROLLING_BACK}),
        refusal="Only a rollback can be undone.",
        changes=True,
        command="reapply",
        help="undo its rollback: make the change again",
        label="Reapply",
        done="applied again",
    ),
    DecisionRow(
        wish=WishKind.KEEP,
        states=STANDING_STATES - {State.KEPT},
        again=frozenset({State.KEPT}),
        refusal="Only an applied change can be accepted.",
        fields=("comment",),
        command="accept",
        help="say that its applied change is to stay",
        label="Accept",
        done="kept, whatever is measured",
    ),
)
DECISIONS: Mapping[WishKind, DecisionRow] = {row.wish: row for row in _ROWS}
COMMANDS = tuple(row for row in _ROWS if row.command)
