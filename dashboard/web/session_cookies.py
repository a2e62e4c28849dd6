"""How long a sign-in by OpenID Connect lasts, and that its cookie leaves by https alone.

Streamlit (1.67) signs a cookie that holds the person's claims, believes it for 31 days and sends it
by http as well. So groups and the right to be here would be those of a month ago.
"""

import functools
import time
from collections.abc import Mapping
from datetime import timedelta

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit.web.server.starlette import starlette_app_utils, starlette_auth_routes

from data.access_settings import AccessSettings

_HOUR = 3600.0
_DECODE = starlette_app_utils.decode_signed_value


def shorten_sessions(access: AccessSettings) -> None:
    """Have Streamlit believe its cookies for as long as the settings say; it has no setting."""
    life = timedelta(hours=access.oidc_session_hours)
    decode = functools.partial(_DECODE, max_age_days=life / timedelta(days=1))
    for module in (starlette_app_utils, starlette_auth_routes):
        setattr(module, "decode_signed_value", decode)  # noqa: B010 - mypy: a function's name
    setattr(starlette_auth_routes, "AUTH_COOKIE_MAX_AGE_SECONDS", int(life.total_seconds()))  # noqa: B010


def sign_in_ends(claims: Mapping[str, object], access: AccessSettings) -> float:
    """Return when a sign-in ends, in s of the Unix epoch; 0 where nobody said when it began."""
    issued = claims.get("iat")
    return issued + access.oidc_session_hours * _HOUR if isinstance(issued, int | float) else 0.0


def is_fresh(claims: Mapping[str, object], access: AccessSettings) -> bool:
    """Return whether the provider said so recently enough: a tab may stay open for weeks."""
    return time.time() < sign_in_ends(claims, access)


class SecureCookies:
    """ASGI middleware: marks every cookie as one for https, where the dashboard's address is."""

    def __init__(self, app: ASGIApp, access: AccessSettings) -> None:
        self._app = app
        self._secure = any(origin.startswith("https:") for origin in access.public_origins())

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything through; only cookies that are set change."""

        async def send_secure(message: Message) -> None:
            if self._secure and message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                cookies = headers.getlist("set-cookie")
                del headers["set-cookie"]
                for cookie in cookies:
                    marked = "; secure" in cookie.lower()
                    headers.append("set-cookie", cookie if marked else f"{cookie}; Secure")
            await send(message)

        await self._app(scope, receive, send_secure)
