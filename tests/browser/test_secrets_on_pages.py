"""A server with a canary in every secret: pages, health, metrics, log and arguments are clean."""

import re
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from beds.stores import Stores
from browser.bed import TRIMTAB, Server, Visitor, running_server
from factories import make_collected
from hostile.canaries import MARK, environment, running_adversary
from playwright.sync_api import expect

from data.store import open_store

pytestmark = [pytest.mark.browser, pytest.mark.slow]


@pytest.fixture(scope="module")
def guarded(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server whose every source refuses and says back what it was told."""
    folder = tmp_path_factory.mktemp("guarded")
    with stores.empty(folder) as url, running_adversary() as adversary:
        with open_store(url) as store:
            store.keep(make_collected())
        variables = environment(adversary, folder, "token")
        with running_server(url, folder, program=(TRIMTAB,), **variables) as server:
            yield server


def read(server: Server, path: str) -> str:
    """Return what a machine reads there."""
    with urllib.request.urlopen(f"{server.base}{path}", timeout=30) as answer:
        return str(answer.read().decode())


def test_no_page_and_no_path_tells_a_secret(guarded: Server, visitor: Visitor) -> None:
    """Every view after a cycle that failed, then what machines read, the log and the arguments."""
    for _tenth in range(1200):
        if '"state":"failed"' in (said := read(guarded, "/api/v1/sources")):
            break
        visitor.page.wait_for_timeout(100)
    assert MARK not in said
    visitor.open(f"{guarded.base}/health")
    failed = re.compile("sources failed in the last cycle")
    expect(visitor.page.locator("h1")).to_have_text(failed)
    views = ("settings", "audit", "reports", "recommendations")
    assert MARK not in visitor.page.content()
    for path in views:
        visitor.open(f"{guarded.base}/{path}")
        assert MARK not in visitor.page.content()
    for path in ("/metrics", "/readyz", "/livez"):
        assert MARK not in read(guarded, path)
    assert MARK not in guarded.log.read_text(encoding="utf-8")
    arguments = Path(f"/proc/{guarded.process.pid}/cmdline").read_bytes()
    assert MARK.encode() not in arguments


@pytest.mark.parametrize(
    "path",
    [
        "/../../../../../../etc/passwd",
        "/static/../../../../../../../../etc/passwd",
        "/static/..%2f..%2f..%2f..%2f..%2f..%2f..%2fetc%2fpasswd",
        "/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/app/static/../../../../etc/passwd",
        "/media/../../../../etc/passwd",
        "/component/x/../../../../../../etc/passwd",
        "//etc/passwd",
        "/..\\..\\..\\..\\etc\\passwd",
        "/static/%00/../../etc/passwd",
        "/_stcore/../../../../etc/passwd",
    ],
)
def test_no_path_leaves_the_pages(guarded: Server, path: str) -> None:
    """Sent as it stands, no client mending it: no file of the machine comes back."""
    port = urlsplit(guarded.base).port
    with socket.create_connection(("127.0.0.1", port), timeout=30) as raw:
        raw.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".encode())
        said = b""
        while data := raw.recv(65536):
            said += data
    assert said.startswith(b"HTTP/1.1 ")
    assert b"root:" not in said
