"""Takes docs/images anew; collected by `make screenshots` only."""

from pathlib import Path

import pytest
from browser.bed import Server, Visitor

pytestmark = pytest.mark.browser
IMAGES = Path(__file__).parents[2] / "docs" / "images"
HEIGHTS = {"plan": 1620}
"""The Gantt chart stands below the demand."""


def test_pictures_for_the_documents(pictured_server: Server, visitor: Visitor) -> None:
    """The README's pictures show the demo's fleet."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name in ("overview", "recommendations", "job", "forecasts", "plan", "energy"):
        visitor.open(f"{pictured_server.base}/{name.replace('overview', '')}")
        visitor.page.set_viewport_size({"width": 1360, "height": HEIGHTS.get(name, 1000)})
        visitor.settle()
        visitor.page.screenshot(path=IMAGES / f"{name}.png")
