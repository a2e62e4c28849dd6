"""Resources that can be read: one row each, from which API, commands and assistants' tools derive.

A row stands beside what it reads; `listings` and `documents` of this room are the table.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, Generic, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dashboard.common.request_times import Moment
from dashboard.reports.week.editions import WHOLE, Edition
from data.base.errors import NotKnownError
from data.records.plans import Plan
from data.settings.all_settings import Settings
from data.store import StoreReader
from data.store.handles.cached_reader import CachedReader

_MAX_RANGE = timedelta(days=400)
Answer = TypeVar("Answer")
Query = TypeVar("Query", bound=BaseModel)


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """The store as who asks may see it, with the clock that its proposals go by."""

    reader: StoreReader
    settings: Settings
    clock: Callable[[], datetime]
    edition: Edition = WHOLE

    def latest_plan(self) -> Plan:
        """Return the plan of the latest cycle. Errors: NotKnownError before the first."""
        plan = self.reader.latest_plan()
        if plan is None:
            raise NotKnownError("no cycle has planned yet", "Ask again after the first cycle.")
        return plan

    def remember(self, key: Hashable, make: Callable[[], Answer]) -> Answer:
        """Return the result of `make`, kept while the data stay the same where the reader can."""
        if isinstance(self.reader, CachedReader):
            return self.reader.remember(key, make)
        return make()


class NoQuery(BaseModel):
    """The query of a resource that takes none."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)


class RangeQuery(NoQuery):
    """A range that is bounded; without one, the resource says which is meant."""

    start: Annotated[Moment | None, Field(alias="from")] = None
    end: Annotated[Moment | None, Field(alias="to")] = None

    @model_validator(mode="after")
    def _is_bounded(self) -> Self:
        if self.end is not None and self.start is None:
            return self
        if self.start is not None and self.end is None:
            raise ValueError("give `to` with `from`")
        if (
            self.start is not None
            and self.end is not None
            and not (self.start < self.end <= self.start + _MAX_RANGE)
        ):
            raise ValueError(f"give `from` before `to`, at most {_MAX_RANGE.days} days apart")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource(Generic[Query, Answer]):
    """One object that can be read: its name in addresses, its words, its query and its answer.

    `kind` is the type of the answer. `anyone` may read what they may see of it, or the fleet's
    viewers alone. `alone`: one is worked out at a time, as it takes a core for a while.
    """

    name: str
    about: str
    kind: Any
    query: type[Query]
    read: Callable[[View, Query], Answer]
    anyone: bool = True
    alone: bool = False


def parameters_of(query: BaseModel) -> dict[str, Any]:
    """Return a query as the parameters of an address."""
    values = query.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    return {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in values.items()
    }
