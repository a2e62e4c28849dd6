"""The resources under /api/v1. Everything is read and decided as the pages and commands do it."""

import json
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import version
from typing import Annotated

from fastapi import Depends, FastAPI, Header, Path, Query, Request, Response
from pydantic import TypeAdapter

from dashboard.api.http.cached_responses import Document, HeadAsGet, document, response
from dashboard.api.http.context import ApiWorld, Caller
from dashboard.api.http.finding_query import FindingQuery
from dashboard.api.http.pagination import PageOfRows, keyed, page_of
from dashboard.api.http.problems import RESPONSES, PreconditionError, add_problem_handlers
from dashboard.api.http.strict_body import StrictRoute
from dashboard.api.routes.computed import ChangePreview, preview_of
from dashboard.api.routes.documents import add_documents
from dashboard.api.routes.kill_switch import add_switch
from dashboard.api.routes.lists import add_lists
from dashboard.api.routes.samples import add_traces
from dashboard.api.routes.submissions import IdempotencyKey, add_submissions
from dashboard.decisions.finding_filter import chosen_findings
from dashboard.decisions.findings import FindingStatus
from dashboard.decisions.requests import Wish, WishOutcome, carry_out
from dashboard.resources.documents import DOCUMENTS
from dashboard.resources.listings import LISTINGS
from dashboard.resources.rows import FindingRow, finding_row
from dashboard.resources.token_requests import add_tokens
from dashboard.resources.whole_finding import WholeFinding, change_text, whole_finding
from data.store import StoreReader

FindingName = Annotated[
    str, Path(max_length=128, description="TT-12, or what a recommendation's id begins with")
]
_TAG_LENGTH = 16
_OF_ANYONE = ("findings", "size", "slots", "stop")
_OF_THE_FLEET = ("submissions", "samples")
"""Addresses outside the tables of resources: open to everybody, and closed to owners."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What answers here."""

    name: str
    version: str
    resources: list[str]
    role: str


_WHOLE = TypeAdapter(WholeFinding)


def tag_of(reader: StoreReader, status: FindingStatus) -> str:
    """Return the ETag of a finding: of the revision that counts, its state, and all that was done.

    The hash of the newest entry of the record about it covers every entry before.
    """
    revision, record = status.revision, reader.entries_about(status.finding.number)
    digest = "none" if revision is None else revision.recommendation.digest[:_TAG_LENGTH]
    newest = record[-1].entry_hash[:_TAG_LENGTH] if record else "none"
    return f'"{digest}:{status.state}:{newest}"'


def build_api(world: ApiWorld) -> FastAPI:
    """Return the application that is mounted under /api/v1."""
    api = FastAPI(
        title="Trimtab",
        version=version("trimtab"),
        summary="Findings, decisions and facts of a GPU fleet.",
        openapi_url=None,  # it would be made anew for each request, and counted for nobody
        docs_url=None,  # its page asks a foreign server for its script
        redoc_url=None,
        responses=RESPONSES,
    )
    api.router.route_class = StrictRoute
    add_problem_handlers(api)
    api.add_middleware(HeadAsGet)
    # Each endpoint is a plain function: it waits for the store in a thread of its own.
    Anyone = Annotated[Caller, Depends(world.let_in)]  # noqa: N806 - a type
    Viewer = Annotated[Caller, Depends(world.looks_around)]  # noqa: N806

    @api.get("/")
    def about(who: Anyone) -> About:
        return About(
            name="trimtab",
            version=version("trimtab"),
            resources=[f"/api/v1/{name}" for name in _offered(who.role)],
            role=who.role,
        )

    @api.get("/findings", response_model=PageOfRows[FindingRow])
    def findings(
        request: Request, who: Anyone, query: Annotated[FindingQuery, Query()]
    ) -> Response:
        def make() -> PageOfRows[FindingRow]:
            ordered = keyed(chosen_findings(world.findings(who), query.choice()), query.sort.key)
            return page_of(ordered, partial(finding_row, settings=settings), query)

        keep, settings = who.role != "owner" and query.is_first(), world.service.settings()
        key = ("findings", query, settings.statement.prices)
        return response(request, world.page(key, make, keep=keep))

    @api.get("/findings/{finding}", response_model=WholeFinding)
    def one_finding(request: Request, finding: FindingName, who: Anyone) -> Response:
        number, settings = world.finding(finding, who).finding.number, world.service.settings()

        def compute() -> Document:
            # Read anew: what was looked up above may be older than what this is kept under.
            status = world.finding(finding, who)
            answer = whole_finding(world.reader, status, settings)
            return document(_WHOLE.dump_json(answer), tag_of(world.reader, status))

        return response(
            request, world.cache.get(("finding", number, settings.statement.prices), compute)
        )

    @api.post("/findings/{finding}/decisions")
    def decide(
        finding: FindingName,
        wish: Wish,
        who: Anyone,
        if_match: Annotated[str | None, Header(max_length=256)] = None,
        idempotency_key: IdempotencyKey = None,
    ) -> WishOutcome:
        def done() -> WishOutcome:
            if if_match is not None:
                _require_tag(world.reader, world.finding(finding, who), if_match)
            return carry_out(world.service, finding, wish, who.person)

        return world.requests.once(who.person.name, idempotency_key, (finding, wish), done)

    @api.get("/findings/{finding}/preview")
    def preview_change(finding: FindingName, who: Anyone) -> ChangePreview:
        """Return what its change would do now, step by step; nothing is changed."""
        status = world.finding(finding, who)
        return preview_of(world, status, change_text(world.reader, status), who.person)

    add_submissions(api, world, anyone=Anyone, viewer=Viewer)
    add_tokens(api, world.service, Anyone)
    add_switch(api, world)
    _add_schema(api, world)
    add_lists(api, world, anyone=Anyone, viewer=Viewer)
    add_documents(api, world, anyone=Anyone, viewer=Viewer)
    add_traces(api, world, anyone=Anyone, viewer=Viewer)
    return api


def _add_schema(api: FastAPI, world: ApiWorld) -> None:
    """Add the schema, made once. It names no person and no job."""

    @cache
    def schema(root: str) -> bytes:
        servers = {"servers": [{"url": root}]} if root else {}
        document = api.openapi() | servers
        return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()

    @api.get("/openapi.json", include_in_schema=False, dependencies=[Depends(world.let_in)])
    def openapi(request: Request) -> Response:
        root = str(request.scope.get("root_path", ""))
        return Response(schema(root), media_type="application/json")


def _offered(role: str) -> tuple[str, ...]:
    """Return the resources that somebody of the role may use."""
    flags = {name: listing.anyone for name, listing in LISTINGS.items()}
    flags |= {resource.name: resource.anyone for resource in DOCUMENTS}
    mine = (*_OF_ANYONE, *(name for name, is_for_anyone in flags.items() if is_for_anyone))
    if role == "owner":
        return mine
    others = (*_OF_THE_FLEET, *(name for name, is_for_anyone in flags.items() if not is_for_anyone))
    return (*mine, *others, *(("tokens",) if role == "admin" else ()))


def _require_tag(reader: StoreReader, status: FindingStatus, tag: str) -> None:
    if tag.strip() not in ("*", tag_of(reader, status)):
        raise PreconditionError(
            f"{status.finding.reference} is not what If-Match names: it is {status.state} now",
            "Read it again, and decide on what it says.",
        )
