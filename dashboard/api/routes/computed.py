"""Preview of a change, worked out when it is asked for."""

from dataclasses import dataclass

from dashboard.api.http.context import ApiWorld
from dashboard.decisions.findings import FindingStatus
from dashboard.decisions.service import DecisionService
from data.base.errors import ApplyError, CollectorError
from data.base.rows import row_of
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
            live, why = preview_of_target(world.service, revision.recommendation.digest, person), ""
        except (ApplyError, CollectorError) as error:
            why = str(error)
    return ChangePreview(
        finding=status.finding.reference,
        recommendation_id=None if revision is None else revision.recommendation.recommendation_id,
        change=change,
        live=live,
        not_live=why,
    )


def preview_of_target(service: DecisionService, digest: str, person: Person) -> LivePreview:
    """Return the result of a look at the target. Errors: those of `DecisionService.preview`."""
    preview = service.preview(digest, person)
    change, rehearsal = preview.change, preview.rehearsal
    return LivePreview(
        change_digest=change.digest,
        target=change.target.name,
        steps=[row_of(PreviewStep, step) for step in change.steps],
        undo=[row_of(PreviewStep, step) for step in change.undo],
        notes=list(change.notes),
        rehearsed=rehearsal.rehearsed,
        refusals=list(rehearsal.refusals),
        differences=list(rehearsal.differences),
        warnings=list(rehearsal.warnings),
    )
