"""Every view in a real browser: its sentence, its pictures, its tables, and nothing else asked."""

import os
import re
import urllib.request
from pathlib import Path
from urllib.parse import quote

import pytest
from browser.bed import HOSTILE_JOB, Server, Visitor

from data.clock import utc_now
from data.store import open_store

pytestmark = pytest.mark.browser

IMAGES = Path(__file__).parents[2] / "docs/images"


def keep_picture(visitor: Visitor, name: str) -> None:
    """Save what the page looks like for the documents, when asked to."""
    if os.environ.get("TRIMTAB_SCREENSHOTS") == "1":
        IMAGES.mkdir(parents=True, exist_ok=True)
        visitor.page.screenshot(path=IMAGES / f"{name}.png")


VIEWS = [
    pytest.param("", r"[\d.]+ of \d+ GPUs are allocated, [\d.]+ do work; \d+ rec", 1, id="overview"),
    pytest.param("jobs", r"\d+ jobs run; \d+ of [\d,]+ GPU-hours", 0, id="jobs"),
    pytest.param("job", r"holds \d+ × .* did [\d.]+ GPUs' work", 3, id="job"),
    pytest.param("recommendations", r"\d+ recommendations? waits? ?.*save [\d.]+ EUR", 0, id="recs"),
    pytest.param("energy", r"The GPUs used [\d,.]+ \([\d,.]+–[\d,.]+\) kWh", 1, id="energy"),
    pytest.param("health", r"sources? ", 0, id="health"),
]


@pytest.mark.parametrize(("path", "sentence", "plots"), VIEWS)
def test_view_opens_with_its_answer(
    server: Server, visitor: Visitor, path: str, sentence: str, plots: int
) -> None:
    """Each view says its finding with numbers, draws its plots, and shows no error."""
    visitor.open(f"{server.base}/{path}")
    assert re.search(sentence, visitor.page.locator("h4").first.inner_text())
    assert visitor.page.locator(".js-plotly-plot").count() == plots
    assert visitor.page.locator('[data-testid="stException"]').count() == 0
    assert "Traceback" not in visitor.text()
    keep_picture(visitor, path or "overview")
