"""Context of the HTTP API: the store, the services, and the check of who is let in."""

import time
from collections.abc import Callable, Hashable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Self

from fastapi import Request

from dashboard.api.http.cached_responses import Document, KeptAnswers, document
from dashboard.api.http.pagination import PageOfRows
from dashboard.api.http.problems import RepeatedParameterError
from dashboard.api.http.rate_limits import IdempotentRequests, RequestLimit
from dashboard.common.rights import role_of, view_of
from dashboard.decisions.findings import FindingStatus, findings_now
from dashboard.decisions.service import DecisionService
from dashboard.reports.week.editions import WHOLE, own_edition
from dashboard.resources.resource import View
from data.base.errors import NotAllowedError, NotKnownError
from data.records.commands import Person
from data.store.handles.cached_reader import CachedReader

REQUESTS_PER_MINUTE = 1200
"""Twenty a second: more than pages and scripts of one person send."""
LIMITED = frozenset({"proxy", "token", "oidc"})
"""Ways in by which others come than who has the store's file: these have a limit of requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Person who asks, with the role that the settings of the moment give."""

    person: Person
    role: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiWorld:
    """Context of the API. `caller` tells who asks, and raises NotSignedInError for nobody."""

    reader: CachedReader
    service: DecisionService
    clock: Callable[[], datetime]
    caller: Callable[[Request], Person]
    requests: IdempotentRequests = field(default_factory=IdempotentRequests)
    limit: RequestLimit = field(default_factory=lambda: RequestLimit(time.monotonic))

    def let_in(self, request: Request) -> Caller:
        """Return the caller, as `counted` does. A parameter here would be one of the address."""
        return self.counted(request, "")

    def counted(self, request: Request, bucket: str) -> Caller:
        """Return the caller, who may look, each parameter once; `bucket` has a limit of its own.

        Errors: NotSignedInError, NotAllowedError, TooManyRequestsError, RepeatedParameterError.
        """
        who = self.known(request)
        if who.person.via in LIMITED:
            self.limit.take((bucket, who.person.via, who.person.name), REQUESTS_PER_MINUTE)
        names = [name for name, _ in request.query_params.multi_items()]
        if len(set(names)) < len(names):
            raise RepeatedParameterError("a parameter is given twice", "Give each of them once.")
        return who

    def known(self, request: Request) -> Caller:
        """Return the caller, who has a role. Errors: NotSignedInError, NotAllowedError."""
        person = self.caller(request)
        role = role_of(person, self.service.settings().access)
        if role == "none":
            raise NotAllowedError(f"{person.name} has no role here", "Ask one of the admins.")
        return Caller(person=person, role=role)

    def looks_around(self, request: Request) -> Caller:
        """Return the caller, who may see the jobs of others. Errors: NotAllowedError."""
        who = self.let_in(request)
        if who.role == "owner":
            raise NotAllowedError(
                f"{who.person.name} is owner: owners see what is of their own jobs only",
                "Ask for /api/v1/ to read which resources these are.",
            )
        return who

    def of(self, who: Caller) -> Self:
        """Return the world as who asks may see it: an owner's has the rows of their own jobs."""
        if who.role != "owner":
            return self
        mine = view_of(who.person, self.service.settings().access, self.reader)
        return replace(self, reader=mine)

    @property
    def cache(self) -> KeptAnswers:
        """The answers that are given again while nothing changes."""
        return KeptAnswers(reader=self.reader, clock=self.clock)

    def page(
        self, key: tuple[Hashable, ...], make: Callable[[], PageOfRows[Any]], *, keep: bool
    ) -> Document:
        """Return a page, which `keep` has made once while it stays the same."""

        def compute() -> Document:
            return document(make().model_dump_json().encode())

        return self.cache.get(("page", *key), compute) if keep else compute()

    def view(self, who: Caller) -> View:
        """Return the store as who asks may see it, for the table of resources."""
        edition = own_edition(who.person.name) if who.role == "owner" else WHOLE
        return View(
            reader=self.of(who).reader,
            settings=self.service.settings(),
            clock=self.clock,
            edition=edition,
        )

    def findings(self, who: Caller) -> tuple[FindingStatus, ...]:
        """Return the findings that who asks may see, the newest number first."""
        mine = self.of(who)

        def now() -> tuple[FindingStatus, ...]:
            return findings_now(mine.reader, now=self.clock())

        statuses = mine.cache.get(("findings",), now)
        if who.role != "owner":
            return statuses
        revisions = [status.revision for status in statuses if status.revision is not None]
        visible = {stored.finding for stored in self.service.visible(who.person, revisions)}
        return tuple(status for status in statuses if status.finding.number in visible)

    def finding(self, reference: str, who: Caller) -> FindingStatus:
        """Return one of them. Errors: NotKnownError, for what belongs to others too."""
        visible = {status.finding.number: status for status in self.findings(who)}
        with suppress(NotKnownError):
            number = self.reader.finding_number(reference)
            if number in visible:
                return visible[number]
        raise NotKnownError(f"{reference!r} names no finding", "/api/v1/findings lists them.")
