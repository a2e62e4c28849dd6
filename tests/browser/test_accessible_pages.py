"""Every page in light and dark, on a phone, a tablet and a laptop: no barrier, and nothing cut."""

from collections.abc import Iterator
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from browser.bed import HOSTILE_JOB, Server, Visitor, watched_tab
from playwright.sync_api import Browser

pytestmark = pytest.mark.browser

WIDTHS = (1440, 800, 390)
GRAVE = {"serious", "critical"}
PAGES = (
    "",
    "?week-ahead=true",
    "findings",
    "findings?over-time=true",
    "fleet",
    "fleet?tab=facility",
    "jobs",
    f"jobs?job={quote(HOSTILE_JOB)}",
    "jobs?tab=serving",
    "new_job",
    "account",
    "account?tab=savings",
    "account?tab=energy",
    "account?tab=reports",
    "admin",
    "admin?tab=quality",
    "admin?tab=audit",
    "admin?tab=settings",
)
CUT = """() => {
  const cut = new Set();
  const clips = ["hidden", "clip"], scrolls = ["auto", "scroll"];
  for (const main of document.querySelectorAll("[data-testid=stMain]")) {
    const texts = document.createTreeWalker(main, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
      const text = texts.currentNode, holder = text.parentElement;
      if (!text.data.trim() || holder.closest("canvas, style, script, title")) continue;
      if (!holder.checkVisibility({opacityProperty: true, visibilityProperty: true})) continue;
      const range = document.createRange();
      range.selectNodeContents(text);
      const box = range.getBoundingClientRect();
      if (box.width < 2) continue;
      for (let frame = holder; frame !== main.parentElement; frame = frame.parentElement) {
        const style = getComputedStyle(frame), edge = frame.getBoundingClientRect();
        if (edge.width <= 2 || edge.height <= 2) break;  // words for screen readers
        if (scrolls.includes(style.overflowX) && frame !== main) break;
        const held = clips.includes(style.overflowX) || frame === main
          || (frame instanceof SVGSVGElement && style.overflow !== "visible");
        if (held && (box.right > edge.right + 1 || box.left < edge.left - 1)) {
          cut.add(text.data.trim().slice(0, 80));
          break;
        }
      }
    }
  }
  return [...cut];
}"""
"""The texts that stand out of what holds them and cannot be scrolled to."""


@pytest.fixture(scope="module", params=["light", "dark"])
def tab(request: pytest.FixtureRequest, browser: Browser) -> Iterator[Visitor]:
    """A tab of that colour scheme."""
    with watched_tab(browser, color_scheme=request.param) as opened:
        yield opened


def barriers(visitor: Visitor) -> list[str]:
    """What axe-core finds grave, with the place and the measure of each."""
    found = Axe().run(visitor.page, options={"resultTypes": ["violations"]}).response
    return [
        f"{rule['id']}: {node['target']} {node['failureSummary']}"
        for rule in found["violations"]
        if rule["impact"] in GRAVE
        for node in rule["nodes"]
    ]


@pytest.mark.parametrize(
    "path", PAGES, ids=[path.partition("%")[0] or "overview" for path in PAGES]
)
def test_a_page_has_no_barrier_and_nothing_cut(server: Server, visitor: Visitor, path: str) -> None:
    """At each width axe-core finds nothing grave, no text is cut, nothing scrolls sideways."""
    visitor.page.set_viewport_size({"width": WIDTHS[0], "height": 900})
    visitor.open(f"{server.base}/{path}")
    for width in WIDTHS:
        visitor.resize(width)
        assert barriers(visitor) == [], width
        assert not (cut := visitor.until_empty(visitor.page, CUT)), (width, cut)
        assert not (beyond := visitor.overflow()), (width, beyond)


def test_no_toolbar_lies_over_a_legend_on_a_phone(server: Server, visitor: Visitor) -> None:
    """The toolbar of a chart is there on a laptop alone, as soon as the chart is pointed at."""
    shown = "() => [...document.querySelectorAll('.modebar')].map(bar => bar.checkVisibility())"
    visitor.page.set_viewport_size({"width": WIDTHS[0], "height": 900})
    visitor.open(f"{server.base}/jobs?tab=serving")
    visitor.page.wait_for_selector(".js-plotly-plot .legend")
    for width in WIDTHS:
        visitor.resize(width)
        bars = visitor.page.evaluate(shown)
        assert bars, width
        assert set(bars) == {width > 640}, width
