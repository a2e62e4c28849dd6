"""Pages, API and health endpoints under uvicorn, with the cycle thread in one process."""

import asyncio
import contextlib
import logging
import signal
import sys
from collections.abc import AsyncIterator

import uvicorn
from starlette.applications import Starlette
from starlette.datastructures import URL
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp

from dashboard.api.app import build_api
from dashboard.api.http.authentication import WebCallers
from dashboard.api.http.context import ApiWorld
from dashboard.mcp.server import MCP_PATH, AssistantDoor
from dashboard.web.access.context import WebWorld
from dashboard.web.access.request_filter import API_PATH, Admission, allow_descriptors
from dashboard.web.access.session_cookies import SecureCookies
from dashboard.web.access.sign_in import OpenIdRoutes
from dashboard.web.access.trusted_proxy import AuthMiddleware
from dashboard.web.findings.finding_rows import state_of
from dashboard.web.frame.navigation import FORMER_ADDRESSES, RENAMED
from dashboard.web.server.browser_rules import AddressScript, BrowserRules
from dashboard.web.server.connections import (
    TracebackLimit,
    limit_accept_errors,
    protocol_for,
)
from dashboard.web.server.port import require_free_port
from dashboard.web.server.probes import probes
from data.base.extras import absent_module
from data.settings.access import AccessSettings
from data.store import Store

logger = logging.getLogger(__name__)
_NOISY_LOGGERS = ("streamlit.error_util", "streamlit.components.v2.bidi_component.serialization")
"""Loggers that write a traceback for each odd message of a page's socket."""
_NO_PAGE = """Trimtab's API is at /api/v1 here, and its pages are not installed.
What the server wrote at its start says how they would be.
"""
_BACKLOG = 128
"""Connections that the kernel keeps for a server that is busy."""
_TURN_SECONDS = 0.0005
"""Time after which a thread that computes lets others run. At Python's default of 5 ms, fifty pages
that are drawn at once delay the thread that answers, and so the stop switch, by seconds."""


def _sign_in_routes(access: AccessSettings, store: Store) -> list[Route]:
    """Return the addresses of a sign-in by OpenID Connect. Errors: SettingsError."""
    return OpenIdRoutes(access, store.sign_ins).routes() if access.mode == "oidc" else []


def build_app(world: WebWorld) -> ASGIApp:
    """Return the ASGI application; the cycle thread runs while it does."""
    settings = world.settings.settings
    if settings.access.mode == "proxy" and not settings.access.names_hosts():
        logger.warning(
            "access.mode is proxy and access.public_url is empty: set it to the address that "
            "browsers use, or only localhost and this machine's own name and address are answered"
        )

    async def moved(request: Request) -> Response:
        former = request.url.path.rpartition("/")[2]
        view, extra = FORMER_ADDRESSES[former]
        names = RENAMED.get(former, {})
        query = {names.get(name, name): value for name, value in request.query_params.items()}
        if former == "recommendations" and "state" in query:
            query["state"] = state_of(query["state"])
        return RedirectResponse(
            URL(view or "./").include_query_params(**{**extra, **query}), status_code=308
        )

    api_world = ApiWorld(
        # Of its own: what is asked here turns nothing out that pages ask again.
        reader=world.store.reader_for_pages(),
        service=world.decision_service,
        clock=world.clock,
        caller=WebCallers(world.decision_service, settings.access.mode),
    )

    api = build_api(api_world)

    @contextlib.asynccontextmanager
    async def lifespan(_app: object) -> AsyncIterator[None]:
        limit_accept_errors(asyncio.get_running_loop())
        seldom = TracebackLimit()
        for module in _NOISY_LOGGERS:
            logging.getLogger(module).addFilter(seldom)
        with world.run_lifespan():
            yield

    async def no_page(_request: Request) -> Response:
        return PlainTextResponse(_NO_PAGE, status_code=404)

    middleware = [
        Middleware(BrowserRules),
        Middleware(SecureCookies, access=settings.access),
        Middleware(Admission, access=settings.access, listens_on=settings.serve.host),
        Middleware(AuthMiddleware, access=settings.access, guarded=settings.apply.enabled),
        Middleware(AddressScript),
    ]
    routes = [
        *probes(world),
        *(Route(f"/{former}", moved) for former in FORMER_ADDRESSES),
        *_sign_in_routes(settings.access, world.store),
        Mount(API_PATH.rstrip("/"), api),
        Route(MCP_PATH, AssistantDoor(api_world, api), methods=["POST"]),
    ]
    if absent_module("pages"):
        routes.append(Route("/{page:path}", no_page))
        return Starlette(lifespan=lifespan, middleware=middleware, routes=routes)
    from dashboard.web.server.pages import page_app

    return page_app(world, lifespan=lifespan, middleware=middleware, routes=routes)


def serve(world: WebWorld, *, host: str, port: int) -> None:
    """Serve until SIGTERM or Ctrl-C."""
    require_free_port(host, port)
    allow_descriptors()
    sys.setswitchinterval(_TURN_SECONDS)
    # uvicorn raises the signal again after its own shutdown: without a handler the process would
    # die there, with the store still open.
    signal.signal(signal.SIGTERM, lambda _number, _frame: sys.exit(0))
    # The peer's address decides whom to believe: uvicorn must not take it from a header.
    # Open pages have a moment to close; then the parts end, within `background.END_WITHIN`.
    uvicorn.run(
        build_app(world),
        host=host,
        port=port,
        http=protocol_for(world.settings.settings.access),
        backlog=_BACKLOG,
        log_config=None,  # its lines take the form of ours
        log_level="warning",
        proxy_headers=False,
        timeout_graceful_shutdown=5,
    )
