"""Questions that are worked out when they are asked: what-if, estimate, preview of a change."""

import threading
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request, Response
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import to_json

from dashboard.api.http.cached_responses import Document, document, response
from dashboard.api.http.context import ApiWorld
from dashboard.api.http.rate_limits import TooManyRequestsError
from dashboard.common.what_if_document import WhatIfDocument
from dashboard.decisions.findings import FindingStatus
from dashboard.decisions.service import DecisionService
from dashboard.submission.estimates.query import AskedEstimate, EstimateDocument, estimate_answer
from dashboard.submission.job.model_source import read_model
from data.base.errors import ApplyError, CollectorError, ImpossibleProblemError, SettingsError
from data.records.changes import Change
from data.records.commands import Person

Knob = Annotated[float | None, Field(ge=0, le=1e9, allow_inf_nan=False)]
Count = Annotated[int | None, Field(ge=1, le=65_536)]
Word = Annotated[str, Field(max_length=100)]


class WhatIfQuery(BaseModel):
    """What to turn in a copy of the plan's problem, as `trimtab plan --what-if` has it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    headroom: Knob = None
    shortfall_price: Annotated[Knob, Field(alias="shortfall-price")] = None
    churn: Knob = None
    carbon_price: Annotated[Knob, Field(alias="carbon-price")] = None
    electricity_price: Annotated[Knob, Field(alias="electricity-price")] = None

    @property
    def knobs(self) -> dict[str, float]:
        """Settings turned, by the names of `dashboard.cycle.what_if`."""
        return self.model_dump(by_alias=True, exclude_none=True)


class EstimateQuery(BaseModel):
    """A training job of a known model, and which plans of it, as `trimtab estimate` has them."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: Annotated[str, Field(max_length=100, description="a known model: llama3-8b")]
    batch: Annotated[int, Field(ge=1, le=10**7, description="sequences of a whole step")]
    seq: Annotated[int, Field(ge=1, le=10**8, description="tokens of a sequence")]
    framework: Word = ""
    optimizer: Word = ""
    precision: Word = ""
    quantization: Word = ""
    method: Literal["full", "adapter"] = "full"
    adapter_rank: Annotated[Count, Field(alias="adapter-rank")] = None
    lengths: Literal["fixed", "vary"] | None = None
    recompute: Literal["none", "attention", "operators", "full"] | None = None
    micro_batch: Annotated[Count, Field(alias="micro-batch")] = None
    gpu: Annotated[str, Field(max_length=100, description="only this GPU type; '' for all")] = ""
    gpus: Annotated[int, Field(ge=1, le=1024, description="GPUs at most")] = 64
    data: Count = None
    tensor: Count = None
    pipeline: Count = None
    tokens: Annotated[float | None, Field(gt=0, le=1e17, description="of the whole run")] = None
    time_limit: Annotated[float | None, Field(gt=0, le=24 * 365, alias="time-limit")] = None
    top: Annotated[int, Field(ge=1, le=100, description="plans given at most")] = 10


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


def add_questions(api: FastAPI, world: ApiWorld, viewer: Any) -> None:
    """Add the resources; `viewer` lets in who may see the jobs of others."""
    solving = threading.Lock()

    @api.get("/what-if", response_model=WhatIfDocument)
    def would_be(
        request: Request, _who: viewer, query: Annotated[WhatIfQuery, Query()]
    ) -> Response:
        """Return the plan in force and a copy under other settings, of which nothing is kept."""
        settings = world.service.settings()

        def compute() -> Document:
            from dashboard.cycle.what_if import (
                MAX_SECONDS,
                in_force,
                read_basis,
                what_if,
                what_if_document,
            )

            if not solving.acquire(blocking=False):
                raise TooManyRequestsError(
                    "another what-if is being solved", retry_after_seconds=int(MAX_SECONDS)
                )
            try:
                # Kept once, not for every minute: it holds the history of the fleet.
                read = partial(read_basis, world.reader, settings)
                basis = world.reader.remember(("what-if", settings), read)
                result = what_if(basis, settings, query.knobs)
            except SettingsError as error:
                raise ImpossibleProblemError(error.message, error.hint) from error
            finally:
                solving.release()
            return document(to_json(what_if_document(result, query.knobs, in_force(basis))))

        world.latest_plan()
        return response(request, world.cache.get(("what-if", query, settings), compute))

    @api.get("/estimate", response_model=EstimateDocument)
    def estimate(
        request: Request, _who: viewer, query: Annotated[EstimateQuery, Query()]
    ) -> Response:
        """Return the peak GPU memory of a training job, and the plans that fit the fleet."""

        def compute() -> Document:
            fields = query.model_dump() | {"gpu": (query.gpu,) if query.gpu else ()}
            model = read_model(name=query.model, config="", folder=Path(), place="model")
            answer = estimate_answer(AskedEstimate.of(fields), model, world.reader)
            return document(to_json(answer.document(), inf_nan_mode="null"))

        return response(request, world.cache.get(("estimate", query), compute))
