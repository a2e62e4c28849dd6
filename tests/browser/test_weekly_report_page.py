"""The weekly report as a file in a browser."""

import subprocess
import sys
from pathlib import Path

import pytest
from browser.bed import HOSTILE_JOB
from playwright.sync_api import Browser

pytestmark = pytest.mark.browser


def test_html_is_one_file_that_fetches_and_runs_nothing_foreign(
    filled_store: str, browser: Browser, tmp_path: Path
) -> None:
    """Chromium opens it, draws the plot, asks no host, logs no error, runs no label."""
    week = tmp_path / "week.html"
    subprocess.run(
        [
            Path(sys.executable).with_name("trimtab"),
            *("--store", filled_store),
            *("report", "weekly", "--format", "html", "--out", week),
        ],
        check=True,
        cwd=tmp_path,
        capture_output=True,
    )
    requests: list[str] = []
    complaints: list[str] = []
    with browser.new_context(offline=True) as context:
        page = context.new_page()
        page.on("request", lambda request: requests.append(request.url))
        page.on("console", lambda line: complaints.append(f"{line.type}: {line.text}"))
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.goto(week.as_uri())
        page.wait_for_selector(".js-plotly-plot .plot-container")
        text = page.inner_text("body")
        hacked = page.evaluate("window.hacked")
    assert [url for url in requests if not url.startswith(("file:", "data:", "blob:"))] == []
    assert [line for line in complaints if not line.startswith("info")] == []
    assert HOSTILE_JOB in text
    assert hacked is None
