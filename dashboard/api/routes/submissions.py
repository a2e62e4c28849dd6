"""Jobs that name no GPU: shown, then sent as they were shown, and listed; the size of any job.

Whoever may submit on the pages may here. A proposal names what else waits, so it is for who may
see the jobs of others. A size names nobody's jobs: anyone may ask.
"""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from fastapi import Body, FastAPI, Header, Query
from pydantic import BaseModel, ConfigDict, Field

from dashboard.api.http.context import ApiWorld, Caller
from dashboard.api.http.pagination import PageOfRows, PageQuery, keyed, page_of
from dashboard.common.rights import submit_refusal
from dashboard.submission.job.job_file import parsed_job, read_job
from dashboard.submission.job.model_source import config_from_text
from dashboard.submission.launchers.scheduled_job import read_object, read_script
from dashboard.submission.submit.size import SizeDocument, size_of
from dashboard.submission.submit.submission_rows import (
    PreviewDocument,
    SubmissionRow,
    proposal_document,
    proposal_now,
    shown_digest,
    submission_row,
)
from dashboard.submission.submit.submit import submission_refusal, submit
from dashboard.submission.targets.choose_target import target_name, target_of
from data.base.errors import ApplyError, ChangeRefusedError, NotAllowedError, StalePlanError
from data.settings.all_settings import Settings

if TYPE_CHECKING:
    from dashboard.submission.submit.proposal import SubmissionProposal
    from dashboard.submission.targets.target import SubmissionTarget

MAX_JOB = 50_000
Script = Annotated[str, Field(max_length=MAX_JOB)]
IdempotencyKey = Annotated[
    str | None,
    Header(min_length=1, max_length=128, description="what is asked again under it is done once"),
]


class JobWish(BaseModel):
    """A job as its author describes it.

    No file of the server is read for it: `model_shape` is the config.json of its model where the
    table `[model]` names no known one.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    job: Annotated[str, Field(max_length=MAX_JOB, description="text of a job file (TOML)")]
    target: Literal["", "kubernetes", "slurm"] = ""
    model_shape: Annotated[dict[str, Any] | None, Field(description="a config.json")] = None


class SubmissionWish(JobWish):
    """A job to be sent; `digest` is that of what was shown, so that nothing else is sent."""

    digest: Annotated[str, Field(min_length=64, max_length=64, pattern="^[0-9a-f]*$")]


def add_submissions(api: FastAPI, world: ApiWorld, *, anyone: Any, viewer: Any) -> None:
    """Add the resources; `viewer` lets in who may see the jobs of others."""

    @api.post("/size")
    def size(who: anyone, job: Annotated[dict[str, Any] | Script, Body()]) -> SizeDocument:
        """Return the size of a Kubernetes object, or (as text/plain) of a batch script."""
        request = read_script(job) if isinstance(job, str) else read_object(job)
        return size_of(request, world.reader, world.service.settings(), world.clock())

    @api.get("/submissions", response_model=PageOfRows[SubmissionRow])
    def submissions(who: viewer, query: Annotated[PageQuery, Query()]) -> PageOfRows[SubmissionRow]:
        """Return the submitted jobs, the newest first."""
        order = keyed(
            world.reader.submissions(),
            lambda submission: (-submission.created_at.timestamp(), submission.submission_id),
        )
        return page_of(order, submission_row, query)

    @api.post("/submissions/preview")
    def preview(wish: JobWish, who: viewer) -> PreviewDocument:
        """Return where a job would run, and exactly what would be sent; nothing is."""
        proposal, _target = _proposal(world, wish, who)
        digest = shown_digest(proposal)
        return proposal_document(PreviewDocument, proposal, cluster_says="", digest=digest)

    @api.post("/submissions", status_code=201)
    def send(
        wish: SubmissionWish, who: viewer, idempotency_key: IdempotencyKey = None
    ) -> SubmissionRow:
        """Send a job as it was shown."""

        def sent() -> SubmissionRow:
            settings, by = world.service.settings(), who.person.name
            _require_submitter(who, settings)
            if reason := submission_refusal(settings):
                raise ApplyError("the job was not submitted", reason)
            proposal, target = _proposal(world, wish, who)
            if shown_digest(proposal) != wish.digest:
                raise StalePlanError(
                    "what would be sent is not what was shown", "Ask for it again, and look at it."
                )
            store, now = world.service.store, world.clock()
            return submission_row(
                submit(proposal, target, store, settings=settings, by=by, now=now)
            )

        body = wish.model_dump_json()
        return world.requests.once(who.person.name, idempotency_key, body, sent)


def _proposal(
    world: ApiWorld, wish: JobWish, who: Caller
) -> "tuple[SubmissionProposal, SubmissionTarget]":
    """Return the place of a job, and the cluster. Errors: NotAllowedError and `propose`'s."""
    settings = world.service.settings()
    _require_submitter(who, settings)
    values = parsed_job(wish.job.encode(), label="the job")
    model = None
    if wish.model_shape is not None:
        model = config_from_text(json.dumps(wish.model_shape).encode(), name="model_shape")
    elif isinstance(model_table := values.get("model"), dict) and model_table.get("config"):
        raise ChangeRefusedError(
            "the job names a file of its model", "Give its text as model_shape."
        )
    job = read_job(values, folder=Path(), model=model)
    target = target_of(settings, target_name(settings, wish.target), clock=world.clock)
    return (
        proposal_now(job, target, world.reader, settings, by=who.person.name, now=world.clock()),
        target,
    )


def _require_submitter(who: Caller, settings: Settings) -> None:
    """Refuse (NotAllowedError) who may not submit, and (ChangeRefusedError) who has no name."""
    if refusal := submit_refusal(who.person, settings.access):
        raise NotAllowedError(refusal, "Ask for a role, or have the access settings changed.")
    if not who.person.name.strip():
        raise ChangeRefusedError(
            "a submission needs the name of who makes it", "Give the header X-Trimtab-By."
        )
