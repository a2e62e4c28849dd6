"""The resources under /api/v1. Everything is read and decided as the pages and commands do it."""

import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from importlib.metadata import version
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, Path, Query, Request, Response
from pydantic import TypeAdapter

from dashboard.api.dismissal_wishes import add_dismissals
from dashboard.api.docs_page import add_docs_page
from dashboard.api.documents import add_documents
from dashboard.api.events import add_events
from dashboard.api.finding_choice import FindingQuery, chosen_findings
from dashboard.api.kept_answers import Document, HeadAsGet, KeptAnswers, document, response
from dashboard.api.limits import RepeatedAsks, RequestLimit
from dashboard.api.lists import add_lists
from dashboard.api.pages_of_rows import PageOfRows, keyed, page_of
from dashboard.api.problems import (
    RESPONSES,
    PreconditionError,
    RepeatedParameterError,
    tell_problems,
)
from dashboard.api.questions import ChangePreview, add_questions, preview_of
from dashboard.api.rows import FindingRow, RecordRow, finding_row, record_of
from dashboard.api.submissions import IdempotencyKey, add_submissions
from dashboard.api.token_wishes import add_tokens
from dashboard.api.wishes import Wish, WishOutcome, carry_out
from dashboard.decision_service import DecisionService
from dashboard.decisions import preview
from dashboard.findings import FindingStatus, findings_now
from dashboard.rights import role_of
from data.errors import ChangeRefusedError, NotAllowedError, NotKnownError
from data.records.commands import Person
from data.records.plans import Plan
from data.store import StoreReader
from data.store.cached_reader import CachedReader

FindingName = Annotated[
    str, Path(max_length=128, description="TT-12, or what a recommendation's id begins with")
]
LIMITED = frozenset({"proxy", "token"})
"""Ways in by which others come than who has the store's file: these have a limit of requests."""
_TAG_LENGTH = 16
_OFFERED = (
    "findings", "events", "estimate", "submissions", "what-if", "jobs", "gpus", "nodes", "sources",
    "urgent", "plan", "idle", "forecasts", "memory", "energy", "reports/weekly", "savings", "audit",
    "dismissals",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class About:
    """What answers here."""

    name: str
    version: str
    resources: list[str]
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeFinding:
    """A finding with what was said of it, and the exact text of its change where it has one."""

    finding: FindingRow
    record: list[RecordRow]
    change: str | None


_WHOLE = TypeAdapter(WholeFinding)


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, with the role that the settings of the moment give."""

    person: Person
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiWorld:
    """What the API touches. `caller` tells who asks, and raises NotSignedInError for nobody."""

    reader: CachedReader
    service: DecisionService
    clock: Callable[[], datetime]
    caller: Callable[[Request], Person]
    asked: RepeatedAsks = field(default_factory=RepeatedAsks)
    limit: RequestLimit = field(default_factory=lambda: RequestLimit(time.monotonic))

    def let_in(self, request: Request) -> Caller:
        """Return who asks and may look, each parameter once.

        Errors: NotSignedInError, NotAllowedError, TooManyRequestsError, RepeatedParameterError.
        """
        who = self.known(request)
        if who.person.via in LIMITED:
            most = self.service.settings().access.requests_per_minute
            self.limit.take((who.person.via, who.person.name), most)
        given = [name for name, _ in request.query_params.multi_items()]
        if len(set(given)) < len(given):
            raise RepeatedParameterError("a parameter is given twice", "Give each of them once.")
        return who

    def known(self, request: Request) -> Caller:
        """Return who asks, who has a role. Errors: NotSignedInError, NotAllowedError."""
        person = self.caller(request)
        role = role_of(person, self.service.settings().access)
        if role == "none":
            raise NotAllowedError(f"{person.name} has no role here", "Ask one of the admins.")
        return Caller(person=person, role=role)

    def looks_around(self, request: Request) -> Caller:
        """Return who asks and may see the jobs of others. Errors: NotAllowedError."""
        who = self.let_in(request)
        if who.role == "owner":
            raise NotAllowedError(
                f"{who.person.name} is owner: owners see the findings of their own jobs only",
                "Ask for /api/v1/findings.",
            )
        return who

    @property
    def kept(self) -> KeptAnswers:
        """The answers that are given again while nothing changes."""
        return KeptAnswers(reader=self.reader, clock=self.clock)

    def page(
        self, key: tuple[Hashable, ...], make: Callable[[], PageOfRows[Any]], *, keep: bool
    ) -> Document:
        """Return a page, which `keep` has made once while it stays the same."""

        def made() -> Document:
            return document(make().model_dump_json().encode())

        return self.kept.get(("page", *key), made) if keep else made()

    def latest_plan(self) -> Plan:
        """Return the plan of the latest cycle. Errors: NotKnownError before the first."""
        found = self.reader.latest_plan()
        if found is None:
            raise NotKnownError("no cycle has planned yet", "Ask again after the first cycle.")
        return found

    def findings(self, who: Caller) -> tuple[FindingStatus, ...]:
        """Return the findings that who asks may see, the newest number first."""
        found = self.kept.get(("findings",), lambda: findings_now(self.reader, now=self.clock()))
        if who.role != "owner":
            return found
        revisions = [status.revision for status in found if status.revision is not None]
        mine = {stored.finding for stored in self.service.visible(who.person, revisions)}
        return tuple(status for status in found if status.finding.number in mine)

    def finding(self, named: str, who: Caller) -> FindingStatus:
        """Return one of them. Errors: NotKnownError, for what belongs to others too."""
        seen = {status.finding.number: status for status in self.findings(who)}
        with suppress(NotKnownError):
            number = self.reader.finding_number(named)
            if number in seen:
                return seen[number]
        raise NotKnownError(f"{named!r} names no finding", "/api/v1/findings lists them.")


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
        docs_url=None,  # its page asks a foreign server for its script: `docs_page` asks nobody
        redoc_url=None,
        responses=RESPONSES,
    )
    tell_problems(api)
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
            chosen = keyed(chosen_findings(world.findings(who), query), query.sort.key)
            return page_of(chosen, finding_row, query)

        keep = who.role != "owner" and query.is_first()
        return response(request, world.page(("findings", query), make, keep=keep))

    @api.get("/findings/{finding}", response_model=WholeFinding)
    def one_finding(request: Request, finding: FindingName, who: Anyone) -> Response:
        number = world.finding(finding, who).finding.number

        def made() -> Document:
            # Read anew: what was looked up above may be older than what this is kept under.
            return _whole_finding(world, world.finding(finding, who))

        return response(request, world.kept.get(("finding", number), made))

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

        return world.asked.once(who.person.name, idempotency_key, (finding, wish), done)

    @api.get("/findings/{finding}/preview")
    def preview_change(finding: FindingName, who: Anyone) -> ChangePreview:
        """Return what its change would do now, step by step; nothing is changed."""
        status = world.finding(finding, who)
        return preview_of(world, status, _change_text(world, status), who.person)

    add_questions(api, world, Viewer)
    add_submissions(api, world, Viewer)
    add_events(api, world, Anyone)
    add_dismissals(api, world.service, Viewer)
    add_tokens(api, world.service, Anyone)
    add_docs_page(api)
    add_lists(api, world, Viewer)
    add_documents(api, world, Viewer)
    return api


def _offered(role: str) -> tuple[str, ...]:
    """Return the resources that somebody of the role may use."""
    if role == "owner":
        return _OFFERED[:2]
    return (*_OFFERED, "tokens") if role == "admin" else _OFFERED


def _whole_finding(world: ApiWorld, status: FindingStatus) -> Document:
    whole = WholeFinding(
        finding=finding_row(status),
        record=record_of(world.reader, status.finding.number),
        change=_change_text(world, status),
    )
    return document(_WHOLE.dump_json(whole), tag_of(world.reader, status))


def _change_text(world: ApiWorld, status: FindingStatus) -> str | None:
    if status.revision is None:
        return None
    try:
        return preview(world.reader, status.revision.recommendation).text
    except ChangeRefusedError:
        return None


def _require_tag(reader: StoreReader, status: FindingStatus, wanted: str) -> None:
    if wanted.strip() not in ("*", tag_of(reader, status)):
        raise PreconditionError(
            f"{status.finding.reference} is not what If-Match names: it is {status.state} now",
            "Read it again, and decide on what it says.",
        )
