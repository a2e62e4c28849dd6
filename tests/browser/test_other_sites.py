"""What a page of another site, open in the same browser, can do with the dashboard: nothing."""

import http.client
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import urlsplit

import pytest
from browser.bed import Server
from playwright.sync_api import Browser, expect

from dashboard.web.server.browser_rules import RULES

pytestmark = pytest.mark.browser


def handshake(server: Server, **headers: str) -> int:
    """Ask for the websocket as a browser does; give the status."""
    host, port = urlsplit(server.base).hostname, urlsplit(server.base).port
    connection = http.client.HTTPConnection(str(host), port, timeout=60)
    asked = {
        "Connection": "Upgrade",
        "Upgrade": "websocket",
        "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "dHJpbXRhYiB0cmltdGFiIQ==",
    }
    try:
        connection.request("GET", "/_stcore/stream", headers=asked | headers)
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.fixture
def other_site(server: Server) -> Iterator[str]:
    """A site of another origin whose page frames the dashboard."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(f"<h1>other</h1><iframe src='{server.base}/'></iframe>".encode())

        def log_message(self, *_arguments: object) -> None:
            """Nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as site:
        threading.Thread(target=site.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{site.server_port}/"
        site.shutdown()


@pytest.mark.parametrize(
    "origin",
    ["http://evil.example", "https://evil.example:8501", "null", "http://127.0.0.1.evil.example"],
)
def test_no_other_site_opens_the_websocket(server: Server, origin: str) -> None:
    """Its origin is refused, also where its name was made to lead here; our own page's is not."""
    assert handshake(server, Origin=origin) == 403
    assert handshake(server, Origin=origin, Host=origin.rpartition("/")[2]) in (400, 403)
    assert handshake(server, Origin=server.base) == 101


def test_every_answer_carries_the_rules(server: Server) -> None:
    """Pages, machines' paths and what is not there alike."""
    host, port = urlsplit(server.base).hostname, urlsplit(server.base).port
    for path in ("/", "/jobs", "/metrics", "/livez", "/nothing"):
        connection = http.client.HTTPConnection(str(host), port, timeout=60)
        connection.request("GET", path, headers={"Accept": "text/html"})
        answer = connection.getresponse()
        assert {name: answer.headers[name] for name in RULES} == RULES
        connection.close()


def test_no_other_site_frames_a_page(other_site: str, browser: Browser) -> None:
    """The frame stays empty: nothing of the dashboard can be clicked through."""
    with browser.new_context() as context:
        page = context.new_page()
        refused: list[str] = []
        page.on("console", lambda said: refused.append(said.text))
        page.goto(other_site)
        expect(page.get_by_role("heading", name="other")).to_be_visible()
        page.wait_for_timeout(1500)
        assert any("frame-ancestors" in name or "X-Frame-Options" in name for name in refused)
        assert page.frames[-1].locator("[data-testid='stApp']").count() == 0
