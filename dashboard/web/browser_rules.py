"""Tells browsers what other sites may do with these pages: nothing.

A page in a frame of another site could be clicked through (clickjacking). That no other site opens
the websocket is Streamlit's own check of the origin; `tests/browser/test_other_sites.py` holds it
to that.
"""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

RULES = {
    "Content-Security-Policy": "frame-ancestors 'none'",
    "X-Frame-Options": "DENY",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
}


class BrowserRules:
    """ASGI middleware: adds the rules to every answer."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass everything through; only the head of an answer changes."""

        async def send_with_rules(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(RULES)
            await send(message)

        await self._app(scope, receive, send_with_rules)
