"""A real `trimtab serve` as a process, and a browser tab that remembers what it asked and said."""

import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from beds.forked_trimtab import Forked, fork_trimtab
from beds.ports import free_port
from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Request, WebSocket

from data.facts.cluster_names import named_in

HOSTILE_NAME = (
    "evil/<img src=x onerror=window.hacked=1>[x](javascript:window.hacked=2)"
    "<script>window.hacked=3</script> www.evil.example https://evil.example/x a@evil.example"
)
HOSTILE_JOB = named_in(HOSTILE_NAME, "")
"""An id that is made of it, as sources write it: no label names another cluster."""
STEADY_JOBS = "steady/"
"""What begins the names of jobs that are idle all day."""

TRIMTAB = Path(sys.executable).with_name("trimtab")
PATIENCE = 120_000
"""ms that a page may take on a machine that does much else; what is there ends the wait at once."""
_LAYOUT_SECONDS = 10.0
_TOO_WIDE = """main => {
    if (main.scrollWidth <= main.clientWidth) return [];
    const edge = main.getBoundingClientRect().right + 1;
    const right = element => element.getBoundingClientRect().right;
    const beyond = [...main.querySelectorAll("*")].filter(element => right(element) > edge);
    const widths = `${main.scrollWidth} of ${main.clientWidth} px`;
    return [widths, ...beyond.map(element => element.outerHTML.slice(0, 200)).slice(0, 5)];
}"""
_REFUSED = re.compile("status of (403|409|422)")
_END_SECONDS = 120
_UNHEARD_TENTHS = 300


def wait_until_ready(
    base: str, server: "subprocess.Popen[bytes] | Forked", *, log: Path, seconds: float = 400
) -> None:
    """Wait for /readyz; say what the server wrote when it does not come."""
    give_up_at = time.monotonic() + seconds
    while time.monotonic() < give_up_at and server.poll() is None:
        try:
            with urllib.request.urlopen(f"{base}/readyz", timeout=5) as answer:
                if answer.status == 200:
                    return
        except OSError:
            time.sleep(0.2)
    pytest.fail(f"the server did not come up: {log.read_text(encoding='utf-8')[-2000:]}")


@dataclass
class Server:
    """A running `trimtab serve`."""

    base: str
    store_url: str
    changes: Path
    log: Path
    process: "subprocess.Popen[bytes] | Forked"

    def stop(self) -> int:
        """End it as a service manager would; give the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=_END_SECONDS)


@contextmanager
def running_server(
    store_url: str,
    folder: Path,
    *,
    script: Path | None = None,
    program: Sequence[str | Path] = (),
    port: int | None = None,
    options: Sequence[str] = (),
    **settings: str,
) -> Iterator[Server]:
    """Run `trimtab serve` on a store, in a folder of its own, until the block ends.

    `settings` are environment variables; `script` runs in the place of `trimtab`, and `port` is
    where it listens when that must be known before; `options` follow.
    It is a fork of a process that has imported everything, unless `program` says what to start.
    """
    port = port or free_port()
    log = folder / "server.log"
    environ = {name: value for name, value in os.environ.items() if not name.startswith("TRIMTAB")}
    environ |= {"TRIMTAB_APPLY_DIRECTORY": str(folder / "changes")} | settings
    words = ("--store", store_url, "serve", "--port", str(port), *options)
    process: subprocess.Popen[bytes] | Forked
    log.write_bytes(b"")
    if program:
        with log.open("wb") as sink:
            process = subprocess.Popen(
                [*program, *words], cwd=folder, env=environ, stdout=sink, stderr=subprocess.STDOUT
            )
    else:
        process = fork_trimtab(words, script=script, folder=folder, environ=environ, log=log)
    server = Server(f"http://127.0.0.1:{port}", store_url, folder / "changes", log, process)
    try:
        wait_until_ready(server.base, process, log=log)
        yield server
    finally:
        if process.poll() is None:
            process.terminate()
            process.wait(timeout=_END_SECONDS)


@dataclass
class Visitor:
    """A browser tab, with every request and every complaint it had."""

    page: Page
    hosts: set[str] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    unanswered: bool = False

    def __post_init__(self) -> None:
        """Be patient with every wait and click, and follow what the page tells the server."""
        self.page.set_default_timeout(PATIENCE)
        self.page.on("websocket", self._follow)

    def open(self, address: str) -> None:
        """Open a page and wait until its script has run."""
        self.page.goto(address)
        self.page.wait_for_selector("h1")
        self.settle()

    def go(self, title: str, tab: str = "") -> None:
        """Follow the navigation to a page, and to a tab of it."""
        sidebar = self.page.get_by_test_id("stSidebar")
        sidebar.get_by_role("link", name=title, exact=True).click()
        path = title.lower().replace(" ", "_").replace("overview", "")
        self.page.wait_for_url(re.compile(rf"\w/{path}([?]|$)"))
        self.settle()
        link = self.page.locator(".st-key-tabs").get_by_role("link", name=tab, exact=True)
        if tab and link.count():  # the tab that is open is no link
            link.click()
            self.page.wait_for_url(re.compile("[?&]tab="))
            self.settle()

    def settle(self) -> None:
        """Wait until the script of the page has run to its end, and answered twice in a row.

        A page at rest may be one whose last press the server has not heard of yet.
        """
        for _ in range(2):
            for _tenth in range(_UNHEARD_TENTHS):
                if not self.unanswered:
                    break
                self.page.wait_for_timeout(100)
            self.page.wait_for_selector(
                '[data-testid="stApp"][data-test-script-state="notRunning"]'
                ":not(:has([data-stale='true']))"
            )
            self.page.wait_for_timeout(300)

    def resize(self, width: int) -> None:
        """Make the window this wide, and wait until the page has taken it in."""
        height = (self.page.viewport_size or {"height": 1000})["height"]
        self.page.set_viewport_size({"width": width, "height": height})
        self.page.wait_for_function("width => window.innerWidth === width", arg=width)
        self.settle()

    def overflow(self) -> list[str]:
        """Return what still has to be scrolled sideways once the page has laid itself out."""
        return self.until_empty(self.page.get_by_test_id("stMain"), _TOO_WIDE)

    def until_empty(self, place: Page | Locator, script: str) -> list[str]:
        """Return what a script still lists of a place once the page had time to lay itself out.

        Tables and charts take in a new width only after the window has it, later on a busy machine.
        """
        deadline = time.monotonic() + _LAYOUT_SECONDS
        while rows := list(place.evaluate(script)):
            if time.monotonic() > deadline:
                break
            self.page.wait_for_timeout(100)
        return rows

    def text(self) -> str:
        """All that a person can read on the page."""
        return self.page.inner_text("body")

    def forget(self) -> None:
        """Leave the page, and forget what it asked, said and kept."""
        if self.page.url.startswith("http"):
            self.page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
        self.page.goto("about:blank")
        self.page.context.clear_cookies()
        self.page.set_default_timeout(PATIENCE)
        self.hosts.clear()
        self.errors.clear()
        self.unanswered = False

    def watch(self) -> None:
        """Note every request, every error on the console and every dialog from now on."""
        self.page.on("request", self._note_request)
        self.page.on("websocket", lambda socket: self._note_address(socket.url))
        self.page.on("console", self._note_message)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("dialog", lambda dialog: self.errors.append(f"dialog {dialog.message}"))

    def _follow(self, socket: WebSocket) -> None:
        def told(unanswered: bool) -> Callable[[object], None]:
            return lambda _frame: setattr(self, "unanswered", unanswered)

        socket.on("framesent", told(True))
        socket.on("framereceived", told(False))
        socket.on("close", told(False))

    def _note_request(self, request: Request) -> None:
        self._note_address(request.url)

    def _note_address(self, address: str) -> None:
        parts = urlsplit(address)
        if parts.scheme not in ("data", "blob"):
            self.hosts.add(parts.hostname or address)

    def _note_message(self, message: ConsoleMessage) -> None:
        address = urlsplit(message.location["url"])
        # What was refused of a press is told on the page.
        refused = address.path.startswith("/api/v1/") and _REFUSED.search(message.text)
        if message.type == "error" and not refused:
            self.errors.append(f"{message.text} {address.geturl()}")


@contextmanager
def watched_tab(browser: Browser, **options: Any) -> Iterator[Visitor]:
    """A tab without a past that notes what it asks and what it complains of."""
    with browser.new_context(**options) as context:
        seen = Visitor(context.new_page())
        seen.watch()
        yield seen
