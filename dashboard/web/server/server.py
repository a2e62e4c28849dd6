"""Streamlit under uvicorn, with health endpoints and the cycle thread in one process."""

import asyncio
import base64
import contextlib
import hashlib
import logging
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import streamlit
import uvicorn
from starlette.datastructures import URL, Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from streamlit import config
from streamlit.starlette import App

from dashboard.api.app import build_api
from dashboard.api.http.authentication import WebCallers
from dashboard.api.http.context import ApiWorld
from dashboard.mcp.server import MCP_PATH, AssistantDoor
from dashboard.web.access.context import WebWorld
from dashboard.web.access.identity import register
from dashboard.web.access.request_filter import API_PATH, Admission, allow_descriptors
from dashboard.web.access.session_cookies import SecureCookies
from dashboard.web.access.sign_in import OpenIdRoutes
from dashboard.web.access.trusted_proxy import AuthMiddleware
from dashboard.web.findings.finding_rows import state_of
from dashboard.web.frame.navigation import MOVED, RENAMED
from dashboard.web.server.connections import (
    SeldomTracebacks,
    protocol_for,
    tell_accept_errors_seldom,
)
from dashboard.web.server.port import require_free_port
from dashboard.web.server.probes import probes
from data.settings.access import AccessSettings, host_of
from data.store import Store

_SCRIPT = b"<script>window.__streamlit={BACKEND_BASE_URL:location.origin}</script>"
_INLINE = re.compile(rb"<script>(.*?)</script>", re.DOTALL)


def _policy() -> str:
    """Return the rules of what browsers load on a page: this server's files, nothing by `eval`.

    Streamlit imports the scripts of components as `blob:`, compiles WebAssembly, and writes styles;
    its one inline script and ours are named by their hash.
    """
    page = Path(streamlit.__file__).with_name("static").joinpath("index.html").read_bytes()
    hashes = {
        base64.b64encode(hashlib.sha256(text).digest()).decode()
        for text in _INLINE.findall(page + _SCRIPT)
    }
    inline = " ".join(f"'sha256-{digest}'" for digest in sorted(hashes))
    return "; ".join(
        (
            "default-src 'self'",
            f"script-src 'self' blob: 'wasm-unsafe-eval' {inline}",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "worker-src 'self' blob:",
            "object-src 'none'",
            "base-uri 'none'",
            "form-action 'self'",
            "frame-ancestors 'none'",
        )
    )


RULES = {
    "Content-Security-Policy": _policy(),
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class BrowserRules:
    """ASGI middleware: tells browsers that other sites may do nothing with these pages.

    A page in a frame of another site could be clicked through (clickjacking). That no other site
    opens the websocket is Streamlit's own check of the origin.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything through; only the head of an answer changes."""

        async def send_with_rules(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(RULES)
            await send(message)

        await self._app(scope, receive, send_with_rules)


class TellAddress:
    """ASGI middleware: adds to every HTML page a script that tells the server's address.

    Streamlit's page script guesses it from its own path, asks /jobs/_stcore/health before
    /_stcore/health, and leaves the failed guesses as errors on the console. Its setting
    BACKEND_BASE_URL spares the guesses.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything through; HTML is held back until it is whole."""
        if scope["type"] != "http" or "text/html" not in Headers(scope=scope).get("accept", ""):
            await self._app(scope, receive, send)
            return
        # A compressed page could not be changed.
        plain = [pair for pair in scope["headers"] if pair[0] != b"accept-encoding"]
        started: list[Message] = []
        body = bytearray()

        async def send_changed(message: Message) -> None:
            if message["type"] == "http.response.start":
                started.append(message)
                return
            body.extend(message.get("body", b""))
            if message.get("more_body"):
                return
            headers = MutableHeaders(raw=list(started[0]["headers"]))
            text = bytes(body)
            if headers.get("content-type", "").startswith("text/html"):
                text = text.replace(b"<head>", b"<head>" + _SCRIPT, 1)
                headers["content-length"] = str(len(text))
                del headers["etag"]
            await send({**started[0], "headers": headers.raw})
            await send({"type": "http.response.body", "body": text})

        await self._app({**scope, "headers": plain}, receive, send_changed)


logger = logging.getLogger(__name__)
_BACKLOG = 128
"""Connections that the kernel keeps for a server that is busy."""
_TURN_SECONDS = 0.0005
"""Time after which a thread that computes lets others run. At Python's default of 5 ms, fifty pages
that are drawn at once delay the thread that answers, and so the stop switch, by seconds."""

_TALKATIVE = ("streamlit.error_util", "streamlit.components.v2.bidi_component.serialization")
"""Loggers that write a traceback for each odd message of a page's socket."""

_OPTIONS: dict[str, Any] = {
    "browser.gatherUsageStats": False,
    # The grid's own export knows no formulas; ours (`page.table`) does.
    "client.disableDataExport": True,
    "client.showErrorDetails": "none",
    "client.toolbarMode": "minimal",
    "global.developmentMode": False,
    # Its tracebacks take the way of all lines of the log, where there is a limit of them.
    "logger.enableRich": False,
    # A full collection costs 0.2 s of every page, more than drawing it; Python does its own.
    "runner.postScriptGC": False,
    # A page shows what it is told to, not each text that stands alone in its script.
    "runner.magicEnabled": False,
    "server.fileWatcherType": "none",
    "server.enableStaticServing": False,
    "server.headless": True,
    "theme.light.primaryColor": "#0072B2",
    "theme.dark.primaryColor": "#1A78B0",
    # Small print is a faded text colour, and code in it a faded one of its own: both 4.5 to 1.
    "theme.light.textColor": "#10141A",
    "theme.light.codeTextColor": "#10141A",
    "theme.dark.codeTextColor": "#8FE3B8",
    "theme.headingFontSizes": ["1.6rem", "1.15rem", "1.05rem", "1rem", "1rem", "1rem"],
    "theme.metricValueFontSize": "1.4rem",
    "theme.paddingTop": "1rem",
}


def _forget_foreign_options() -> None:
    """Take back what Streamlit read of the working directory, the user's folder or an environment.

    Whoever writes `.streamlit/config.toml` where the server is started is not who configures it.
    """
    for name, option in config.get_config_options().items():
        if config.is_manually_set(name):
            config.set_option(name, option.default_val)


def _sign_in_routes(access: AccessSettings, store: Store) -> list[Route]:
    """Return the addresses of a sign-in by OpenID Connect. Errors: SettingsError."""
    if access.mode != "oidc":
        return []
    # What a browser began at one web process may come back to another.
    config.set_option("server.cookieSecret", access.oidc_cookie_secret)
    return OpenIdRoutes(access, store.sign_ins).routes()


def build_app(world: WebWorld) -> App:
    """Return the ASGI application; the cycle thread runs while it does."""
    settings = world.settings.settings
    public = settings.access.public_origins() or ("http://localhost",)
    if settings.access.mode == "proxy" and not settings.access.names_hosts():
        logger.warning(
            "access.mode is proxy and access.public_url is empty: set it to the address that "
            "browsers use, or only localhost and this machine's own name and address are answered"
        )
    # Without an address Streamlit looks for one over the network.
    address = {"browser.serverAddress": host_of(public[0].partition("://")[2])}
    _forget_foreign_options()
    for option, value in (_OPTIONS | address).items():
        config.set_option(option, value)
    register(world)

    async def moved(request: Request) -> Response:
        former = request.url.path.rpartition("/")[2]
        view, extra = MOVED[former]
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
    async def lifespan(_app: App) -> AsyncIterator[None]:
        tell_accept_errors_seldom(asyncio.get_running_loop())
        seldom = SeldomTracebacks()
        for module in _TALKATIVE:
            logging.getLogger(module).addFilter(seldom)
        with world.run_lifespan():
            yield

    return App(
        Path(__file__).parents[1] / "app.py",
        lifespan=lifespan,
        middleware=[
            Middleware(BrowserRules),
            Middleware(SecureCookies, access=settings.access),
            Middleware(Admission, access=settings.access, listens_on=settings.serve.host),
            Middleware(AuthMiddleware, access=settings.access, guarded=settings.apply.enabled),
            Middleware(TellAddress),
        ],
        routes=[
            *probes(world),
            *(Route(f"/{former}", moved) for former in MOVED),
            *_sign_in_routes(settings.access, world.store),
            Mount(API_PATH.rstrip("/"), api),
            Route(MCP_PATH, AssistantDoor(api_world, api), methods=["POST"]),
        ],
    )


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
