"""Query of findings in the API."""

from typing import Annotated

from pydantic import AfterValidator, Field

from dashboard.api.http.pagination import PageQuery
from dashboard.decisions.finding_filter import STATES, FindingChoice, FindingOrder
from data.records.actions import Action, Risk


def _state(state: str | None) -> str | None:
    """Return a state of findings. Errors: ValueError for any other word."""
    if state is not None and state not in STATES:
        raise ValueError(f"no finding is {state[:50]!r}: give one of {', '.join(sorted(STATES))}")
    return state


class FindingQuery(PageQuery):
    """The filters of `FindingChoice`, an order, and which page."""

    state: Annotated[str | None, AfterValidator(_state)] = None
    kind: Action | None = None
    team: Annotated[str | None, Field(max_length=200)] = None
    risk: Risk | None = None
    all: Annotated[bool, Field(description="resolved ones too")] = False
    sort: FindingOrder = FindingOrder.URGENT

    def choice(self) -> FindingChoice:
        """Return the filters."""
        return FindingChoice(
            state=self.state, kind=self.kind, team=self.team, risk=self.risk, all=self.all
        )
