"""That cookies leave by https alone where the dashboard's address is one of https."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from data.settings.access import AccessSettings


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
