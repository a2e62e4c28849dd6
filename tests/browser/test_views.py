"""Every view in a real browser: its sentence, its pictures, its tables, and nothing else asked."""

import ast
import json
import re
import urllib.request
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlsplit

import pytest
from browser.bed import HOSTILE_JOB, Server, Visitor, running_server
from playwright.sync_api import expect

from dashboard.web.frame.navigation import FORMER_ADDRESSES, PAGES

pytestmark = pytest.mark.browser

WEB = Path(__file__).parents[2] / "dashboard/web"
RANGE = r"[\d,.]+ \([\d,.]+–[\d,.]+\)"


VIEWS = [
    ("Overview", "", r"[\d.]+ of \d+ GPUs are allocated, [\d.]+ are in use; of [\d.]+ GPUs", 1),
    ("Findings", "", r"\d+ findings? waits? for .* worth [\d,.]+ (\(.*?\) )?EUR", 1),
    ("Jobs", "Jobs", r"\d+ jobs? runs?; [\d,.]+ of their [\d,.]+ GPU-hours", 0),
    ("Jobs", "Services", r"[\d,]+ inference services? runs? on [\d,]+ replicas?; ", 2),
    ("Fleet", "GPUs", r"\d+ GPUs on \d+ nodes: [\d.]+ allocated, [\d.]+ in use, [\d.]+ alloc", 1),
    ("Fleet", "Racks and power", r"The fleet gives off [\d.]+ kW of heat; no rack is known", 0),
    ("Account", "Costs", r"20\d\d so far costs [\d,.]+ EUR, [\d,.]+ EUR of it idle GPUs", 1),
    ("Account", "Savings", r"Nothing was applied in \w+ 20\d\d", 0),
    ("Account", "Energy and emissions", rf"The GPUs used {RANGE} kWh .*{RANGE} kgCO2e", 1),
    (
        "Account",
        "Reports",
        r"On average [\d.,]+ of [\d.,]+ GPUs were allocated and [\d.]+ in use",
        1,
    ),
    ("New job", "", r"GPU", 0),
    ("Admin", "Health", r"sources? (answered|failed)", 0),
    ("Admin", "Forecast quality", r"[\d,]+ of [\d,]+ jobs? ha(s|ve) a forecast", 1),
    ("Admin", "Audit", r"Nothing has been decided yet", 0),
    ("Admin", "Settings", r"\d+ of \d+ settings changed from the default", 0),
]
"""Each page with each of its tabs: its sentence, and how many plots it has at least."""
FIRST_VIEWS = list({view[0]: view for view in reversed(VIEWS)}.values())[::-1]
"""Each page with the first of its tabs."""


def texts_alone() -> list[str]:
    """The first words of each text that stands alone in the script of a page."""
    return [
        str(ast.literal_eval(line.value)).strip()[:40]
        for row in PAGES
        for tab in row.tabs
        for line in ast.parse((WEB / row.file(tab)).read_text(encoding="utf-8")).body
        if isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant)
    ]


def test_every_view_opens_with_its_answer(server: Server, visitor: Visitor) -> None:
    """Walking through all views shows sentences with numbers and plots, without one complaint.

    Nothing has to be scrolled sideways on a laptop. Each view is opened at one width, by turns the
    larger and the smaller, and then gets the other.
    """
    widths, alone = (1360, 1000), texts_alone()
    visitor.open(server.base)
    for title, tab, sentence, plots in VIEWS:
        if title != "Overview":
            visitor.go(title, tab)
        expect(visitor.page.locator("h1")).to_have_text(re.compile(sentence))
        shown = visitor.page.locator(".js-plotly-plot:visible")
        if plots:
            expect(shown.nth(plots - 1)).to_be_visible()
        else:
            expect(shown).to_have_count(0)
        assert visitor.page.locator('[data-testid="stException"]').count() == 0
        shown_text = visitor.text()
        assert "Traceback" not in shown_text
        assert [text for text in alone if text in shown_text] == []
        assert not (beyond := visitor.overflow()), (title, tab, widths[0], beyond)
        visitor.resize(widths[1])
        assert not (beyond := visitor.overflow()), (title, tab, widths[1], beyond)
        widths = widths[::-1]


@pytest.mark.parametrize("former", FORMER_ADDRESSES)
def test_a_former_address_leads_on(server: Server, visitor: Visitor, former: str) -> None:
    """To the page and the tab or drawer that have its content now, with its own words kept."""
    view, words = FORMER_ADDRESSES[former]
    visitor.open(f"{server.base}/{former}?days=30&namespace=search")
    address = urlsplit(visitor.page.url)
    assert address.path == f"/{view}"
    query = dict(parse_qsl(address.query))
    assert query.items() >= words.items()
    if visitor.page.get_by_test_id("stMain").get_by_role("button", name="search").count():
        assert query["namespace"] == "search"
    assert visitor.page.locator('[data-testid="stException"]').count() == 0
    if "tab" in words:
        tabs = visitor.page.locator(".st-key-tabs")
        (open_tab,) = tabs.locator("strong").all_text_contents()
        assert open_tab in [tab.title for row in PAGES for tab in row.tabs]


def test_a_former_address_of_a_job_leads_to_it(server: Server, visitor: Visitor) -> None:
    """By the word that stands for its id now."""
    visitor.open(f"{server.base}/job?id={quote(HOSTILE_JOB)}")
    assert dict(parse_qsl(urlsplit(visitor.page.url).query)) == {"job": HOSTILE_JOB}


def test_the_plan_is_a_picture(server: Server, visitor: Visitor) -> None:
    """Blocks of jobs, hatched idle GPUs, nodes on the axis; the model chosen is in the address."""
    visitor.open(f"{server.base}/findings?over-time=true&model=A100-SXM4-80GB")
    drawer = visitor.page.get_by_test_id("stExpander").filter(has_text="The plan over time")
    gantt = drawer.locator(".js-plotly-plot").nth(1)
    expect(gantt).to_contain_text("a100-0001")
    expect(gantt).not_to_contain_text("h100-0000")
    expect(gantt).to_contain_text("idle, node on")
    assert gantt.locator("g.bars path").count() > 5
    for heading in ("Lower bounds", "Nodes that can be off", "Lending and borrowing of quota"):
        expect(visitor.page.get_by_role("heading", name=heading)).to_be_visible()


def test_links_are_objects(server: Server, visitor: Visitor) -> None:
    """A filter and a job are in the address, so that a colleague sees the same."""
    visitor.open(f"{server.base}/jobs?namespace=robotics&q=notebook")
    expect(visitor.page.locator("h1")).to_contain_text(re.compile("jobs? runs? matching"))
    assert visitor.page.get_by_role("textbox", name="Search").input_value() == "notebook"
    visitor.open(f"{server.base}/jobs?job={quote(HOSTILE_JOB)}")
    expect(visitor.page.locator("h1")).to_contain_text("<img src=x onerror=")


@pytest.mark.parametrize("path", [f"jobs?job={quote(HOSTILE_JOB)}", "findings"])
def test_hostile_names_are_only_text(server: Server, visitor: Visitor, path: str) -> None:
    """A very long job name with HTML, script and Markdown runs nothing, links and widens nothing.

    Every page is in test_hostile_pages.py.
    """
    visitor.open(f"{server.base}/{path}")
    assert visitor.page.evaluate("window.hacked") is None
    assert visitor.page.locator("img[src='x']").count() == 0
    leading_away = "a[href*='evil.example']:not([href^='jobs?job='])"
    assert visitor.page.locator(f"a[href^='javascript'], {leading_away}").count() == 0
    assert visitor.overflow() == []
    visitor.resize(1000)
    assert visitor.overflow() == []


def test_the_server_tells_its_health(server: Server) -> None:
    """Liveness, readiness with the newest sample, and metrics answer beside the pages."""

    def answer(path: str) -> str:
        with urllib.request.urlopen(f"{server.base}{path}", timeout=30) as response:
            return response.read().decode()

    assert answer("/livez") == "ok\n"
    ready = json.loads(answer("/readyz"))
    assert ready["ready"] is True
    assert ready["newest_sample_at"]
    assert 'trimtab_store_rows{table="samples"}' in answer("/metrics")


@pytest.mark.parametrize(
    "views",
    [
        pytest.param(FIRST_VIEWS, id="pages"),
        pytest.param(VIEWS, id="tabs", marks=pytest.mark.slow_end),
    ],
)
def test_an_empty_store_says_what_to_do(
    empty_store: str,
    tmp_path: Path,
    visitor: Visitor,
    views: list[tuple[str, str, str, int]],
) -> None:
    """Without samples every view names the next command, and the server still ends cleanly."""
    with running_server(empty_store, tmp_path) as empty:
        visitor.page.goto(empty.base)
        for title, tab, _sentence, _plots in views:
            if title != "Overview":
                visitor.go(title, tab)
            if title != "New job" and tab not in ("Savings", "Audit", "Settings"):
                expect(visitor.page.get_by_text("trimtab import").first).to_be_visible()
            assert visitor.page.get_by_role("heading", level=1).count() == 1, (title, tab)
        visitor.go("Admin", "Health")
        assert "Traceback" not in visitor.text()
        assert empty.stop() == 0
