"""Single requests to a started server, header by header."""

import http.client
from urllib.parse import urlsplit

from browser.bed import Server


def answer(
    server: Server, path: str = "/", *, method: str = "GET", body: bytes = b"", **headers: str
) -> tuple[int, str]:
    """Send one request; give status and text."""
    parts = urlsplit(server.base)
    connection = http.client.HTTPConnection(str(parts.hostname), parts.port, timeout=60)
    try:
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        if body:
            connection.send(body)
        said = connection.getresponse()
        return said.status, said.read().decode()
    finally:
        connection.close()
