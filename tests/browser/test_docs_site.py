"""The pages as a site: `make docs` finds every link, and no page asks another host."""

import re
import subprocess
import threading
from collections.abc import Iterator
from functools import partial
from html.parser import HTMLParser
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from browser.bed import Visitor
from playwright.sync_api import expect

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[2]
SITE = ROOT / "dist" / "site"
PARTS = ("Get started", "How-to", "Reference", "Explanation", "Contributing")
FOREIGN = re.compile(r"\s*(https?:)?//")


@pytest.fixture(scope="module")
def site() -> Path:
    """The site, built as a person builds it; a link to nowhere fails this."""
    # Setting up is not what is tried, and a changed lock would take minutes.
    done = subprocess.run(
        ["make", "--assume-old", ".venv/.setup-stamp", "docs"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return SITE


class Resources(HTMLParser):
    """What a browser fetches for a page by itself: links that a person follows are not counted."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Take note of the addresses of a tag."""
        names = {"src", "srcset", "data", "poster"} | ({"href"} if tag == "link" else set())
        self.found += [value for name, value in attrs if name in names and value]


def test_nothing_of_the_site_stands_on_another_host(site: Path) -> None:
    """No script, style, font or picture of any page or style sheet."""
    fetched = {
        f"{path.relative_to(site)}: {address}"
        for path in site.rglob("*.html")
        for address in Resources(path.read_text(encoding="utf-8")).found
        if FOREIGN.match(address)
    }
    fetched |= {
        f"{path.relative_to(site)}: {address}"
        for path in site.rglob("*.css")
        for address in re.findall(r"(?:url\(|@import)['\"\s]*([^'\")]+)", path.read_text("utf-8"))
        if FOREIGN.match(address)
    }
    assert fetched == set()


class Quiet(SimpleHTTPRequestHandler):
    """Serves files without a word."""

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Say nothing."""


@pytest.fixture
def address(site: Path) -> Iterator[str]:
    """Where the site is served."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(site)))
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_a_reader_finds_five_parts_and_searches_without_another_host(
    address: str, visitor: Visitor
) -> None:
    """The fixture fails when a request leaves loopback or a script complains."""
    page = visitor.page
    page.goto(address)
    tabs = page.locator(".md-tabs__link")
    expect(tabs).to_have_text(list(PARTS))
    query = page.locator("[data-md-component=search-query]")
    query.focus()  # the search reads its index then, and answers to keys alone
    expect(page.locator(".md-search-result__meta")).to_contain_text("Type to start searching")
    query.press_sequentially("kill switch")
    expect(page.locator(".md-search-result__link").first).to_be_visible()
    page.goto(f"{address}docs/settings/#store")
    expect(page.locator("#store")).to_be_visible()
