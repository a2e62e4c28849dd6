"""Rules for browsers: what a page may load, and where its server is."""

import base64
import hashlib
import re
from importlib.metadata import distribution
from pathlib import Path

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from data.base.extras import absent_module

_SCRIPT = b"<script>window.__streamlit={BACKEND_BASE_URL:location.origin}</script>"
_INLINE = re.compile(rb"<script>(.*?)</script>", re.DOTALL)


def _policy() -> str:
    """Return the rules of what browsers load on a page: this server's files, nothing by `eval`.

    Streamlit imports the scripts of components as `blob:`, compiles WebAssembly, and writes styles;
    its one inline script and ours are named by their hash.
    """
    page = b""
    if not absent_module("pages"):
        index = distribution("streamlit").locate_file("streamlit/static/index.html")
        page = Path(str(index)).read_bytes()
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


class AddressScript:
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
