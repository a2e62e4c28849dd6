"""Which findings are listed, and in which order: for the command line and the API."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from dashboard.api.pages_of_rows import PageQuery
from dashboard.findings import DISMISSED, OPEN, REOPENED, RESOLVED, FindingStatus
from data.records.decisions import Action, Risk
from data.records.lifecycle import State

STATES = frozenset({OPEN, DISMISSED, REOPENED, RESOLVED, *map(str, State)})


def _state(text: str | None) -> str | None:
    """Return a state of findings. Errors: ValueError for any other word."""
    if text is not None and text not in STATES:
        raise ValueError(f"no finding is {text[:50]!r}: give one of {', '.join(sorted(STATES))}")
    return text


class FindingChoice(BaseModel):
    """Filters, all of which a listed finding passes. Without `state` what is resolved is left out.

    `team` is a namespace.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    state: Annotated[str | None, AfterValidator(_state)] = None
    kind: Action | None = None
    team: Annotated[str | None, Field(max_length=200)] = None
    risk: Risk | None = None
    all: Annotated[bool, Field(description="resolved ones too")] = False


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
        said = None if status.revision is None else status.revision.recommendation
        cost = None if said is None else said.savings.cost
        saving = (-cost.central if cost else 0.0, number)
        if self is FindingOrder.SAVING:
            return saving
        if said is None or status.state != OPEN:
            return (True, 0.0, *saving)
        return (*said.urgency, *saving)


class FindingQuery(FindingChoice, PageQuery):
    """Which findings are asked for, and which page of them."""

    sort: FindingOrder = FindingOrder.URGENT


def chosen_findings(found: Iterable[FindingStatus], choice: FindingChoice) -> list[FindingStatus]:
    """Return the findings that pass the filters, in the order given."""
    return [status for status in found if _is_chosen(status, choice)]


def _is_chosen(status: FindingStatus, choice: FindingChoice) -> bool:
    if choice.state is None and status.state == RESOLVED and not choice.all:
        return False
    said = None if status.revision is None else status.revision.recommendation
    wanted = (
        (choice.state, status.state),
        (choice.kind, status.finding.action),
        (choice.team, None if said is None else said.namespace),
        (choice.risk, None if said is None else said.risk),
    )
    return all(asked in (None, has) for asked, has in wanted)
