"""When Chromium first paints content of the demo's pages, and when a page's answer is there.

`python -m benchmarks.first_paint`. A page is opened by its address in a browser without a cache,
then again in the same one, as on every later day. Times are by the browser's clock, on a machine
that does nothing else; the median and the slowest of the openings are told.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from playwright.sync_api import Browser, Page, sync_playwright

from benchmarks.first_minute import PLANNED, PROGRAM, free_port

RESULTS = Path(__file__).parent / "results" / "first_paint.md"
PAGES = ("", "findings", "fleet", "jobs", "plan")
BROWSERS, AGAIN = 5, 2
_ABOUT = (
    f"`python -m benchmarks.first_paint`: seconds on the demo, median (slowest) of {BROWSERS} "
    f"openings without a cache and of {BROWSERS * AGAIN} with one; on {os.cpu_count()} cores that "
    "the server and Chromium share."
)
_FIRST_PAINT = """
() => Math.round(performance.getEntriesByName("first-contentful-paint")[0].startTime)
"""


@contextmanager
def demo_running() -> Iterator[str]:
    """Yield the address of a demo that has planned, on a store of its own."""
    port = free_port()
    with TemporaryDirectory() as folder:
        command = [PROGRAM, "demo", "--port", str(port), "--days", "2"]
        environment = os.environ | {"XDG_STATE_HOME": folder}
        demo = subprocess.Popen(  # noqa: S603 - our own program
            command, env=environment, stderr=subprocess.PIPE, text=True
        )
        try:
            for line in demo.stderr or ():
                print(line, end="", file=sys.stderr)
                if PLANNED in line:
                    break
            yield f"http://127.0.0.1:{port}"
        finally:
            demo.terminate()
            demo.communicate()


def opened(page: Page, address: str) -> tuple[float, float]:
    """Return the seconds to the first content, and to the page's answer."""
    page.goto(address, wait_until="commit")
    page.locator("h1").wait_for()
    answered = float(page.evaluate("performance.now()"))
    return float(page.evaluate(_FIRST_PAINT)) / 1000, answered / 1000


def rows(browser: Browser, base: str) -> Iterator[str]:
    """Yield a row of the results for every page."""
    for path in PAGES:
        first: list[tuple[float, float]] = []
        later: list[tuple[float, float]] = []
        for _ in range(BROWSERS):
            context = browser.new_context(viewport={"width": 1440, "height": 900})
            page = context.new_page()
            first.append(opened(page, f"{base}/{path}"))
            later += [opened(page, f"{base}/{path}") for _ in range(AGAIN)]
            context.close()
        yield f"| {path or 'overview'} | {_told(first)} | {_told(later)} |"


def _told(times: Sequence[tuple[float, float]]) -> str:
    """Return both medians, each with its slowest."""
    sides = zip(*times, strict=True)
    return " | ".join(f"{median(side):.2f} ({max(side):.2f})" for side in sides)


def main() -> None:
    """Print the results and write them to benchmarks/results/first_paint.md."""
    lines = [
        "# First paint",
        "",
        _ABOUT,
        "",
        "| page | no cache: content | no cache: answer | later: content | later: answer |",
        "|---|---:|---:|---:|---:|",
    ]
    with demo_running() as base, sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        for row in rows(browser, base):
            lines.append(row)
            print(row, flush=True)
        browser.close()
    RESULTS.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
