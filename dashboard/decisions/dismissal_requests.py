"""Dismissals by pattern: made, listed and ended, by the HTTP API and the command line."""

from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Annotated, Any

from fastapi import FastAPI, Path
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from dashboard.decisions.dismissals import active_patterns, dismiss_matching, end_dismissal
from dashboard.decisions.service import DecisionService
from data.records.commands import MAX_REMARK, Person
from data.records.findings import DismissalPattern, DismissalReason


class DismissalWish(BaseModel):
    """What is not to be proposed before `until`: what matches all that is given."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    namespace: Annotated[str, Field(max_length=200)] = ""
    job: Annotated[str, Field(max_length=200, description="a glob, such as search/*")] = ""
    kind: Annotated[str, Field(max_length=50, description="such as fewer-gpus")] = ""
    reason: DismissalReason
    until: AwareDatetime
    comment: Annotated[str, Field(max_length=MAX_REMARK, description="why")] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DismissalRow:
    """A pattern that is in force; `id` ends it."""

    id: str
    namespace: str
    job: str
    kind: str
    reason: str
    until: datetime
    at: datetime
    by: str
    comment: str


def dismissal_row(pattern: DismissalPattern) -> DismissalRow:
    """Return the row of a pattern."""
    fields = asdict(pattern)
    return DismissalRow(id=fields.pop("pattern_id"), **fields)


def dismissal_rows(service: DecisionService) -> list[DismissalRow]:
    """Return the patterns in force, the oldest first."""
    return [
        dismissal_row(pattern) for pattern in active_patterns(service.store.reader, service.clock())
    ]


def make_dismissal(service: DecisionService, wish: DismissalWish, by: Person) -> DismissalRow:
    """Dismiss by pattern. Errors: NotAllowedError, ChangeRefusedError."""
    pattern = dismiss_matching(
        service.store,
        **{name: getattr(wish, name) for name in DismissalWish.model_fields},
        by=by,
        now=service.clock(),
        access=service.settings().access,
    )
    return dismissal_row(pattern)


def stop_dismissal(service: DecisionService, pattern_id: str, by: Person) -> DismissalRow:
    """Let what a pattern matches be proposed again. Errors: NotAllowedError, NotKnownError."""
    access = service.settings().access
    return dismissal_row(
        end_dismissal(service.store, pattern_id, by=by, now=service.clock(), access=access)
    )


def add_dismissals(api: FastAPI, service: DecisionService, viewer: Any) -> None:
    """Add the resource; `viewer` lets in who may see the jobs of others."""

    @api.get("/dismissals")
    def dismissals(_who: viewer) -> list[DismissalRow]:
        """Return what is dismissed by pattern now."""
        return dismissal_rows(service)

    @api.post("/dismissals", status_code=201)
    def make(wish: DismissalWish, who: viewer) -> DismissalRow:
        """Keep from being proposed what matches, until a time."""
        return make_dismissal(service, wish, who.person)

    @api.delete("/dismissals/{dismissal_id}")
    def end(dismissal_id: Annotated[str, Path(max_length=64)], who: viewer) -> DismissalRow:
        """Let what a pattern matches be proposed again."""
        return stop_dismissal(service, dismissal_id, who.person)
