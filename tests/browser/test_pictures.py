"""Takes docs/images anew; collected by `make screenshots` only."""

from pathlib import Path

import pytest
from browser.bed import Server, Visitor

pytestmark = pytest.mark.browser
IMAGES = Path(__file__).parents[2] / "docs" / "images"


def test_pictures_for_the_documents(pictured_server: Server, visitor: Visitor) -> None:
    """The README's pictures show the demo's fleet."""
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name in ("overview", "recommendations", "job", "forecasts", "energy"):
        visitor.open(f"{pictured_server.base}/{name.replace('overview', '')}")
        visitor.page.screenshot(path=IMAGES / f"{name}.png")
