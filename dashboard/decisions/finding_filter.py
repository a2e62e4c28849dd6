"""Filter and order of listed findings, for the command line and the API."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from dashboard.decisions.findings import DISMISSED, OPEN, REOPENED, RESOLVED, FindingStatus
from data.records.actions import Action, Risk
from data.records.lifecycle import State

STATES = frozenset({OPEN, DISMISSED, REOPENED, RESOLVED, *map(str, State)})
_OF_REVISIONS: Mapping[str, str] = {
    State.PROPOSED: OPEN,
    State.REJECTED: DISMISSED,
    State.EXPIRED: RESOLVED,
    State.SUPERSEDED: RESOLVED,
}
"""States of a recommendation that its finding has by another word."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FindingChoice:
    """Filters, all of which a listed finding passes. Without `state` what is resolved is left out.

    `team` is a namespace.
    """

    state: str | None = None
    kind: Action | None = None
    team: str | None = None
    risk: Risk | None = None
    all: bool = False


class FindingOrder(StrEnum):
    """An order of findings: the largest saving of money, the number, the latest seen first.

    `urgent` is by saving too, after what keeps jobs from running out of memory.
    """

    URGENT = "urgent"
    SAVING = "saving"
    NUMBER = "number"
    SEEN = "seen"

    def key(self, status: FindingStatus) -> tuple[float, ...]:
        """Return the sort key of a finding."""
        number, seen_at = status.finding.number, status.finding.seen_at
        match self:
            case FindingOrder.NUMBER:
                return 0.0, number
            case FindingOrder.SEEN:
                return -seen_at.timestamp() if seen_at else 0.0, number
        revision = None if status.revision is None else status.revision.recommendation
        cost = None if revision is None else revision.savings.cost
        saving = (-cost.central if cost else 0.0, number)
        if self is FindingOrder.SAVING:
            return saving
        if revision is None or status.state != OPEN:
            return (True, 0.0, *saving)
        return (*revision.urgency, *saving)


def chosen_findings(items: Iterable[FindingStatus], choice: FindingChoice) -> list[FindingStatus]:
    """Return the findings that pass the filters, in the order given."""
    return [status for status in items if _is_chosen(status, choice)]


def _is_chosen(status: FindingStatus, choice: FindingChoice) -> bool:
    if choice.state is None and status.state == RESOLVED and not choice.all:
        return False
    revision = None if status.revision is None else status.revision.recommendation
    state = None if choice.state is None else _OF_REVISIONS.get(choice.state, choice.state)
    pairs = (
        (state, status.state),
        (choice.kind, status.finding.action),
        (choice.team, None if revision is None else revision.namespace),
        (choice.risk, None if revision is None else revision.risk),
    )
    return all(value in (None, has) for value, has in pairs)
