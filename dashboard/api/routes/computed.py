"""Preview of a change, worked out when it is asked for."""

from dataclasses import asdict, dataclass
from typing import Any

from dashboard.api.http.context import ApiWorld
from dashboard.decisions.findings import FindingStatus
from dashboard.decisions.service import DecisionService
from data.base.errors import ApplyError, CollectorError
from data.records.changes import Change
from data.records.commands import Person


@dataclass(frozen=True, slots=True, kw_only=True)
class PreviewStep:
    """One command to a target; `text` is how a person would do the same by hand."""

    verb: str
    target: str
    field: str
    before: str | None
    after: str | None
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePreview:
    """The steps of a change as its applier would send them now, and what the target says to them.

    An approval with this `change_digest` is for these steps alone.
    """

    change_digest: str
    target: str
    steps: list[PreviewStep]
    undo: list[PreviewStep]
    notes: list[str]
    rehearsed: bool
    refusals: list[str]
    differences: list[tuple[str, str, str]]
    warnings: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangePreview:
    """The text of a change from what is stored, and its steps; `not_live` says why there are none.

    The target is looked at, and rehearses, only for who may decide about the change.
    """

    finding: str
    recommendation_id: str | None
    change: str | None
    live: LivePreview | None
    not_live: str


def preview_of(
    world: ApiWorld, status: FindingStatus, change: str | None, person: Person
) -> ChangePreview:
    """Return the effect of the change of a finding."""
    live, why, revision = None, "no revision of it is kept", status.revision
    if revision is not None:
        try:
            live, why = looked_at(world.service, revision.recommendation.digest, person), ""
        except (ApplyError, CollectorError) as error:
            why = str(error)
    return ChangePreview(
        finding=status.finding.reference,
        recommendation_id=None if revision is None else revision.recommendation.recommendation_id,
        change=change,
        live=live,
        not_live=why,
    )


def looked_at(service: DecisionService, digest: str, person: Person) -> LivePreview:
    """Return the result of a look at the target. Errors: those of `DecisionService.preview`."""
    preview = service.preview(digest, person)
    return LivePreview(
        **_change_fields(preview.change),
        rehearsed=preview.rehearsal.rehearsed,
        refusals=list(preview.rehearsal.refusals),
        differences=list(preview.rehearsal.differences),
        warnings=list(preview.rehearsal.warnings),
    )


def _change_fields(change: Change) -> dict[str, Any]:
    def steps(which: str) -> list[PreviewStep]:
        rows = [asdict(step) for step in getattr(change, which)]
        return [
            PreviewStep(**{name: step[name] for name in PreviewStep.__slots__}) for step in rows
        ]

    return {
        "change_digest": change.digest,
        "target": change.target.name,
        "steps": steps("steps"),
        "undo": steps("undo"),
        "notes": list(change.notes),
    }
