"""Lets a page opened by its own address find the server at once.

Streamlit's page script guesses the server's address from its own path, asks /jobs/_stcore/health
before /_stcore/health, and leaves the failed guesses as errors on the console. Telling it the
address (its setting BACKEND_BASE_URL) spares the guesses.
"""

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

_SCRIPT = b"<head><script>window.__streamlit={BACKEND_BASE_URL:location.origin}</script>"


class TellAddress:
    """ASGI middleware: adds the script to every HTML page."""

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
                text = text.replace(b"<head>", _SCRIPT, 1)
                headers["content-length"] = str(len(text))
                del headers["etag"]
            await send({**started[0], "headers": headers.raw})
            await send({"type": "http.response.body", "body": text})

        await self._app({**scope, "headers": plain}, receive, send_changed)
