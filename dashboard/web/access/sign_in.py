"""Signing in and out by OpenID Connect: a session is a row of the store, and the cookie its id.

So groups may be many, every web process knows who is signed in, and an end is one everywhere.
"""

import importlib
import logging
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from dashboard.api.http.authentication import SIGN_IN_COOKIE
from dashboard.api.http.problems import problem, problem_of
from dashboard.api.http.rate_limits import RequestLimit, TooManyRequestsError
from data.base.clock import utc_now
from data.base.extras import require_extra
from data.records.commands import Person
from data.settings.access import AccessSettings
from data.store.record.tokens import SignIns

logger = logging.getLogger(__name__)
SIGN_IN_PATH = "/api/v1/sign-in"
ENDED_PATH = f"{SIGN_IN_PATH}/ended"
_CALLBACK = "/oauth2callback"
_HINT_COOKIE = "trimtab_id_token"
"""The provider's own token, by which some ask no question when somebody signs out."""
REFUSAL = "refused"
"""Name in a page's address of the reason for which a sign-in failed."""
_MOST_HINT = 3_500
_LOGOUT_EVENT = "http://schemas.openid.net/event/backchannel-logout"
_LEEWAY_SECONDS = 120
_KEY_FETCHES_PER_MINUTE = 6
"""How often a minute the provider is asked for keys that it had not before."""


def claimed(claims: Mapping[str, object], access: AccessSettings) -> Person | None:
    """Return the person of verified claims; None without a name or with an unverified address."""
    name = claims.get(access.oidc_name_claim)
    # A name with blanks around it or an odd character in it would look like another's.
    if not isinstance(name, str) or not name or name != name.strip() or not name.isprintable():
        return None
    if access.oidc_name_claim == "email" and claims.get("email_verified") is not True:
        return None
    groups = claims.get(access.oidc_groups_claim)
    entries = groups if isinstance(groups, list | tuple) else []
    return Person(
        name=name, groups=tuple(entry for entry in entries if isinstance(entry, str)), via="oidc"
    )


class OpenIdRoutes:
    """The addresses by which browsers sign in and out, and providers end sessions."""

    def __init__(self, access: AccessSettings, sign_ins: SignIns) -> None:
        self._access = access
        self._sign_ins = sign_ins
        self._client = _client_of(access)
        self._unbelieved, self._too_large = _errors()
        self._key_looks = RequestLimit(time.monotonic)

    def routes(self) -> list[Route]:
        """Return the routes; they come before those of the API."""
        return [
            Route(SIGN_IN_PATH, self.begin, methods=["POST"]),
            Route(SIGN_IN_PATH, self.end, methods=["DELETE"]),
            Route(ENDED_PATH, self.ended, methods=["POST"]),
            Route(_CALLBACK, self.come_back, methods=["GET"]),
        ]

    async def begin(self, request: Request) -> Response:
        """Return the address where the browser signs in."""
        if "origin" not in request.headers:
            return _needs_origin()
        try:
            redirect = await self._client.authorize_redirect(
                request, self._access.oidc_redirect_uri
            )
        except self._unbelieved:
            logger.exception("no sign-in can begin: %s", self._access.oidc_metadata_url)
            return _next(_page("answer"))
        return _next(redirect.headers["location"])

    async def come_back(self, request: Request) -> Response:
        """Take in what the provider says of a browser that comes back."""
        if not {"code", "error"} & set(request.query_params):
            return RedirectResponse("/", status_code=302)
        try:
            token = await self._client.authorize_access_token(request)
            claims = dict(token["userinfo"])
            issuer = str((await self._client.load_server_metadata())["issuer"])
        except self._unbelieved as error:
            logger.warning("a sign-in is not believed", exc_info=True)
            refusal = "size" if isinstance(error, self._too_large) else "answer"
            return RedirectResponse(_page(refusal), status_code=302)
        person = claimed(claims, self._access)
        if person is None:
            return RedirectResponse(_page("name"), status_code=302)
        now, issued = utc_now(), claims.get("iat")
        begun = min(now.timestamp(), issued) if isinstance(issued, int | float) else 0.0
        life = timedelta(hours=self._access.oidc_session_hours)
        ends_at = datetime.fromtimestamp(begun, UTC) + life
        if ends_at <= now:
            return RedirectResponse(_page("old"), status_code=302)
        text = await run_in_threadpool(
            self._sign_ins.begin,
            person,
            issuer=issuer,
            subject=str(claims.get("sub", "")),
            provider_session=str(claims.get("sid", "")),
            now=now,
            ends_at=ends_at,
        )
        await self._end_here(request)
        answer = RedirectResponse("/", status_code=302)
        seconds = int((ends_at - now).total_seconds())
        _set_cookie(answer, SIGN_IN_COOKIE, text, seconds=seconds, path="/")
        hint = str(token["id_token"])
        if len(hint) <= _MOST_HINT:
            _set_cookie(answer, _HINT_COOKIE, hint, seconds=seconds, path=SIGN_IN_PATH)
        return answer

    async def end(self, request: Request) -> Response:
        """End the session of the browser, and say where it signs out of the provider."""
        if "origin" not in request.headers:
            return _needs_origin()
        await self._end_here(request)
        answer = _next(await self._end_at_provider(request.cookies.get(_HINT_COOKIE)))
        answer.delete_cookie(SIGN_IN_COOKIE, path="/")
        answer.delete_cookie(_HINT_COOKIE, path=SIGN_IN_PATH)
        return answer

    async def _end_here(self, request: Request) -> None:
        if session := request.cookies.get(SIGN_IN_COOKIE):
            await run_in_threadpool(self._sign_ins.end, session)

    async def _end_at_provider(self, hint: str | None) -> str:
        try:
            metadata = await self._client.load_server_metadata()
            if not metadata.get("end_session_endpoint"):
                return "/"
            ending = await self._client.create_logout_url(
                post_logout_redirect_uri=self._access.oidc_redirect_uri,
                id_token_hint=hint,
                client_id=self._client.client_id,
            )
        except self._unbelieved:  # the session here has ended already
            logger.warning("the provider is not told of a sign-out", exc_info=True)
            return "/"
        return str(ending["url"])

    async def ended(self, request: Request) -> Response:
        """End what the provider says has ended (OpenID Connect Back-Channel Logout 1.0)."""
        async with request.form(max_files=0, max_fields=10) as form:
            token = form.get("logout_token")
        try:
            claims = await self._ending(str(token or ""))
        except TooManyRequestsError as error:
            return problem_of(error)
        except self._unbelieved as error:
            logger.warning("a provider's end of a session is not believed: %r", error)
            return problem(400, "invalid_request", "the logout token cannot be believed")
        await run_in_threadpool(
            self._sign_ins.end_at_provider,
            issuer=claims["iss"],
            subject=claims.get("sub", ""),
            provider_session=claims.get("sid", ""),
        )
        return Response(headers={"Cache-Control": "no-store"})

    async def _ending(self, token: str) -> dict[str, Any]:
        """Return the claims of a logout token, all of them checked."""
        from joserfc import jwt
        from joserfc.errors import InvalidClaimError, InvalidKeyIdError
        from joserfc.jwk import KeySet
        from joserfc.jws import JWSRegistry

        metadata = await self._client.load_server_metadata()
        algorithms = metadata.get("id_token_signing_alg_values_supported") or ["RS256"]
        # "none" is one that a provider may list, and no registry here takes.
        signed = JWSRegistry(
            algorithms=[name for name in algorithms if name[:2] in ("RS", "PS", "ES", "Ed")],
            strict_check_header=False,
        )
        keys = KeySet.import_key_set(await self._client.fetch_jwk_set())
        try:
            content = jwt.decode(token, keys, registry=signed)
        except InvalidKeyIdError:
            self._key_looks.take("keys", _KEY_FETCHES_PER_MINUTE)
            keys = KeySet.import_key_set(await self._client.fetch_jwk_set(force=True))
            content = jwt.decode(token, keys, registry=signed)
        claims = content.claims
        jwt.JWTClaimsRegistry(
            leeway=_LEEWAY_SECONDS,
            iss={"essential": True, "value": metadata["issuer"]},
            aud={"essential": True, "value": self._client.client_id},
            iat={"essential": True},
            exp={"essential": True},
            jti={"essential": True},
            events={"essential": True},
        ).validate(claims)
        names = [claims[name] for name in ("sub", "sid") if name in claims]
        if not names or not all(isinstance(name, str) and name for name in names):
            raise InvalidClaimError("sub")
        if not isinstance(claims["events"], dict) or _LOGOUT_EVENT not in claims["events"]:
            raise InvalidClaimError("events")
        if "nonce" in claims:  # an id token, which browsers see, is no order to end anything
            raise InvalidClaimError("nonce")
        return claims


def _client_of(access: AccessSettings) -> Any:
    """Return the client of the provider. Errors: SettingsError without its library."""
    require_extra("auth", "access.mode is oidc")
    library = importlib.import_module("authlib.integrations.starlette_client")
    return library.OAuth().register(
        "provider",
        client_id=access.oidc_client_id,
        client_secret=access.oidc_client_secret,
        server_metadata_url=access.oidc_metadata_url,
        authorize_params={"prompt": "select_account"},
        client_kwargs={"scope": "openid email profile", "code_challenge_method": "S256"},
    )


def _errors() -> tuple[tuple[type[Exception], ...], type[Exception]]:
    """Return the errors of a provider, or of the way to it, and that of a token too long.

    Three libraries have a base of their own; Python's are those of answers of another shape, and
    of metadata that name no address.
    """
    authlib = importlib.import_module("authlib.common.errors")
    from httpx import HTTPError, InvalidURL
    from joserfc.errors import ExceededSizeError, JoseError

    of_libraries = (authlib.AuthlibBaseError, JoseError, HTTPError, InvalidURL)
    return (
        *of_libraries,
        OSError,
        ValueError,
        TypeError,
        KeyError,
        RuntimeError,
    ), ExceededSizeError


def _page(refusal: str) -> str:
    return f"/?{REFUSAL}={refusal}"


def _next(address: str) -> Response:
    """Return the address that the page's script opens: a redirect would answer the script."""
    return Response(status_code=204, headers={"X-Trimtab-Next": address})


def _needs_origin() -> Response:
    return problem(403, "not allowed", "a browser's request needs its Origin")


def _set_cookie(answer: Response, name: str, text: str, *, seconds: int, path: str) -> None:
    answer.set_cookie(name, text, max_age=seconds, path=path, httponly=True, samesite="lax")
