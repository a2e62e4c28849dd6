"""Query of findings in the API."""

from typing import Annotated

from pydantic import AfterValidator, Field

from dashboard.api.http.pagination import PageQuery
from dashboard.common.request_times import Moment
from dashboard.decisions.finding_filter import (
    STATES,
    WORDS,
    FindingChoice,
    FindingOrder,
    states_of,
)
from data.records.actions import Action, Risk


def _state(state: str | None) -> str | None:
    """Return a state of findings. Errors: ValueError for any other word."""
    if state is not None and state not in STATES:
        raise ValueError(f"no finding is {state[:50]!r}: give one of {', '.join(sorted(STATES))}")
    return state


_Word = Annotated[str, Field(max_length=200)]


class FindingQuery(PageQuery):
    """The filters of `FindingChoice`, an order, and which page."""

    state: Annotated[str | None, AfterValidator(_state)] = None
    kind: Action | None = None
    risk: Risk | None = None
    team: Annotated[_Word, Field(description="a namespace")] = ""
    namespace: _Word = ""
    account: _Word = ""
    owner: _Word = ""
    cluster: _Word = ""
    model: _Word = ""
    node: _Word = ""
    since: Moment | None = None
    search: _Word = ""
    all: Annotated[bool, Field(description="resolved ones too")] = False
    sort: FindingOrder = FindingOrder.URGENT

    def choice(self) -> FindingChoice:
        """Return the filters."""
        values = {name: getattr(self, name) for name in ("kind", "risk", "all", "since", *WORDS)}
        return FindingChoice(states=states_of(self.state), **values)
