"""Callers of the HTTP API, identified by each way in that the settings allow."""

import hashlib
import json
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace
from ipaddress import ip_network
from urllib.parse import unquote

from starlette.requests import Request

from dashboard.api.http.rate_limits import RequestLimit
from dashboard.decisions.service import DecisionService
from data.base.clock import utc_now
from data.base.errors import NotSignedInError
from data.records.commands import Person
from data.store.handles.remote_store import BY_HEADER

PERSON_HEADER = "x-trimtab-person"
"""Of the middleware that believes a sign-in proxy; it takes out what anybody else sent."""
SIGN_IN_COOKIE = "trimtab_sign_in"
"""Its value names a session of the store, by OpenID Connect."""
_BEARER = "bearer "
GUESSES = 60
"""A minute of each address; all of them at once if it likes."""
_MAX_CACHED_TOKENS = 10_000
_HINT = "An admin makes a token: `trimtab token make --for NAME --role viewer --by NAME`."


OPEN = Person(name="anybody", via="open")
"""Who looks where everybody may."""


def proxied(stated: str) -> Person:
    """Return the person that the middleware wrote into its header."""
    fields = json.loads(stated)
    return Person(name=fields["name"], groups=tuple(fields["groups"]), via="proxy")


def carries_token(headers: "list[tuple[bytes, bytes]]") -> bool:
    """Return whether the request brings a token, and so needs no other sign-in."""
    stated = [value for name, value in headers if name.lower() == b"authorization"]
    return len(stated) == 1 and stated[0][: len(_BEARER)].lower() == _BEARER.encode()


def named(request: Request, via: str) -> Person:
    """Return the person that the request names; a decision refuses an empty name."""
    stated = request.headers.get(BY_HEADER, "").encode("latin-1").decode("utf-8", "replace")
    return Person(name=unquote(stated), via=via)


class WebCallers:
    """Tells who asks over the network: by a token, through the proxy, or alone on loopback.

    With a sign-in by OpenID Connect the pages ask by its cookie. `mode` is the sign-in that the
    server began with, as its other guards have it. Each look at the store for a token or cookie
    that never let anybody in counts against the address that sent it, and beyond `GUESSES` a
    minute there is none.
    """

    def __init__(
        self,
        service: DecisionService,
        mode: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._service = service
        self._mode = mode
        self._guesses = RequestLimit(clock)
        self._good: OrderedDict[bytes, None] = OrderedDict()

    def __call__(self, request: Request) -> Person:
        """Return the person who asks. Errors: NotSignedInError, TooManyRequestsError."""
        if carries_token(request.headers.raw):
            text = request.headers["authorization"][len(_BEARER) :].strip()
            return self._require_name(request, text, self._by_token)
        if self._mode == "local":
            if "authorization" in request.headers:
                # Whoever sends one means to be somebody, and not the admin that nobody is here.
                raise NotSignedInError("the Authorization header holds no token", _HINT)
            return replace(named(request, "local"), account=request.headers.get(PERSON_HEADER, ""))
        if self._mode == "open":
            return OPEN
        stated = request.headers.get(PERSON_HEADER)
        if self._mode == "proxy" and stated is not None:
            return proxied(stated)
        if self._mode == "oidc" and (session := request.cookies.get(SIGN_IN_COOKIE)):
            if request.method not in ("GET", "HEAD") and "origin" not in request.headers:
                # The cookie comes along whoever asks; each browser says which page it was that did.
                raise NotSignedInError("a browser's request needs its Origin", _HINT)
            return self._require_name(request, session, self._by_session)
        raise NotSignedInError("the API needs a token here (Authorization: Bearer …)", _HINT)

    def _require_name(self, request: Request, text: str, look: Callable[[str], Person]) -> Person:
        digest = hashlib.sha256(text.encode()).digest()
        if digest not in self._good:
            address = request.client.host if request.client else ""
            self._guesses.take(_network_of(address), GUESSES, what="unknown tokens in a minute")
        person = look(text)
        self._good[digest] = None
        while len(self._good) > _MAX_CACHED_TOKENS:
            self._good.popitem(last=False)
        return person

    def _by_session(self, text: str) -> Person:
        person = self._service.store.reader.signed_in(text, utc_now())
        if person is None:
            raise NotSignedInError(
                "the sign-in of the page has ended", "Open it again, and sign in."
            )
        return person

    def _by_token(self, text: str) -> Person:
        service, mode = self._service, self._mode
        token = service.store.reader.token_of(text)
        if token is None or token.mode != mode or not token.is_valid(service.clock()):
            why = "is not known" if token is None else "is revoked or has expired"
            if token is not None and token.mode != mode:
                why = f"was made while access.mode was {token.mode or 'not noted'}, and is void in "
                why += mode
            raise NotSignedInError(f"the token {why}", _HINT)
        return token.holder()


def _network_of(address: str) -> str:
    """Return the address, of IPv6 the network of one host's many (/64)."""
    try:
        return str(ip_network((address, 64 if ":" in address else 32), strict=False))
    except ValueError:
        return address
