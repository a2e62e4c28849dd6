"""324 hostile texts on every page of a real Chromium: shown, and nothing else."""

import csv
import io
import json
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from beds.stores import Stores
from browser.bed import Server, Visitor, running_server, watched_tab
from browser.inbox import bulk, dialog, open_row, rows, tick
from hostile.fleet import fill
from hostile.payloads import PAYLOADS
from playwright.sync_api import Browser, Locator, expect

from data.base.clock import floor_to_slot, utc_now
from data.store import open_store

pytestmark = [pytest.mark.browser, pytest.mark.slow]

WATCH = """
(() => {
  const ran = what => () => { window.hacked = what };
  for (const name of ["alert", "confirm", "prompt", "print", "open"]) window[name] = ran(name);
  navigator.sendBeacon = ran("sendBeacon");
  window.addEventListener("error", event => {
    if (event instanceof ErrorEvent) window.complaint = event.message;
  });
  window.addEventListener("securitypolicyviolation", ran("policy"));
})();
"""
"""Set before any script of the page: what a text could call tells that it was called."""

FOUND = r"""
() => {
  const app = document.querySelector('[data-testid="stApp"]');
  const ours = 'a, img, em, del, pre, table, hr, blockquote, iframe, object, embed, form, input, '
    + 'script, style, svg, math, video, audio, base, link, meta, [role=img], .katex';
  const named = [...app.querySelectorAll('*')].filter(one =>
    [...one.attributes].some(each => /^on/i.test(each.name)));
  const reaching = [...app.querySelectorAll('[href], [src], [srcset], [*|href]')]
    .flatMap(one => [...one.attributes])
    .filter(one => /^(xlink:)?(href|src|srcset)$/.test(one.name)).map(one => one.value.trim())
    .filter(one => !one.startsWith('#'))
    .filter(one => !/^(http:\/\/127\.0\.0\.1:\d+)?\/?jobs\?job=[\w.~%*!'()+-]*$/.test(one))
    .filter(one => /evil|^(javascript|vbscript|data:text)/i.test(one));
  const marked = [...app.querySelectorAll('[data-testid="stMarkdownContainer"]')]
    .flatMap(one => [...one.querySelectorAll(ours)])
    .filter(one => !one.closest('[data-testid="stHeaderActionElements"]'))
    .filter(one => !one.matches('a[href="admin"]'));
  const drawn = [...app.querySelectorAll('.js-plotly-plot')].flatMap(one =>
    [...one.querySelectorAll('a, foreignObject, image[href*=evil], script, iframe')]);
  return {
    hacked: window.hacked ?? null,
    complaint: window.complaint ?? null,
    handlers: named.map(one => one.outerHTML.slice(0, 200)),
    addresses: reaching,
    markup: marked.map(one => one.outerHTML.slice(0, 200)),
    links: drawn.map(one => one.outerHTML.slice(0, 200)),
    frames: window.frames.length,
  };
}
"""
NOTHING = {
    "hacked": None,
    "complaint": None,
    "handlers": [],
    "addresses": [],
    "markup": [],
    "links": [],
    "frames": 0,
}


@pytest.fixture(scope="module")
def hostile_server(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server on a fleet whose every name is hostile."""
    folder = tmp_path_factory.mktemp("hostile")
    with stores.empty(folder) as url:
        with open_store(url) as store:
            fill(store, folder, floor_to_slot(utc_now(), 300))
        with running_server(url, folder) as running:
            yield running


@pytest.fixture(scope="module")
def tab(browser: Browser) -> Iterator[Visitor]:
    """A tab whose every page notes what runs."""
    with watched_tab(browser) as opened:
        opened.page.add_init_script(WATCH)
        yield opened


@pytest.fixture
def watched(visitor: Visitor) -> Visitor:
    """That tab; requests, dialogs and complaints are noted by its maker."""
    return visitor


def only_text(visitor: Visitor) -> None:
    """Nothing ran, nothing links out, and no name became markup."""
    assert visitor.page.evaluate(FOUND) == NOTHING
    assert visitor.page.locator('[data-testid="stException"]').count() == 0
    assert "Traceback" not in visitor.text()


def sweep(plot: Locator, *, columns: int, rows: int) -> None:
    """Move the pointer over a plot, so that its labels are drawn."""
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    assert box
    for row in range(rows):
        for column in range(columns):
            x = box["x"] + box["width"] * (column + 0.5) / columns
            plot.page.mouse.move(x, box["y"] + box["height"] * (row + 0.5) / rows)


@pytest.mark.parametrize(
    "path",
    [
        "",
        "?week-ahead=true",
        "fleet?tab=facility",
        "jobs",
        "jobs?tab=serving",
        "account",
        "account?tab=savings",
        "account?tab=reports",
        "new_job",
        "admin",
        "admin?tab=quality",
        "admin?tab=audit",
        "admin?tab=settings",
    ],
)
def test_pages_show_names_as_text(hostile_server: Server, watched: Visitor, path: str) -> None:
    """The page stands, with all of the names in it, and none of them did anything."""
    watched.open(f"{hostile_server.base}/{path}")
    only_text(watched)


@pytest.mark.parametrize("state", ["proposed", "approved", "rejected"])
def test_cards_show_names_reasons_and_comments_as_text(
    hostile_server: Server, watched: Visitor, state: str
) -> None:
    """The list, three findings of it opened with evidence and record, and what is asked of each."""
    watched.open(f"{hostile_server.base}/recommendations?state={state}")
    told = rows(watched)
    assert len(told) >= 9
    watched.page.get_by_text("Evidence", exact=True).click()
    watched.page.get_by_text("Record", exact=True).click()
    buttons = watched.page.locator("[class*='st-key-finding-'] [data-testid='stButton'] button")
    for row in told[:3]:
        open_row(watched, row)
        only_text(watched)
        if buttons.count():
            buttons.first.click()
            watched.settle()
            only_text(watched)
            watched.page.keyboard.press("Escape")
            watched.settle()
    tick(watched, *told[:3])
    bulk(watched, "Dismiss")
    expect(dialog(watched)).to_be_visible()
    only_text(watched)


def test_labels_of_the_fleet_map_are_text(hostile_server: Server, watched: Visitor) -> None:
    """Forty nodes on the axis, and the pointer over their boards."""
    watched.open(f"{hostile_server.base}/fleet")
    plot = watched.page.locator(".js-plotly-plot").first
    sweep(plot, columns=9, rows=30)
    only_text(watched)
    watched.page.mouse.move(0, 0)


def test_labels_of_the_plan_are_text(hostile_server: Server, watched: Visitor) -> None:
    """The pointer over the blocks of the Gantt: job, place and reason of each."""
    watched.open(f"{hostile_server.base}/findings?over-time=true")
    plots = watched.page.locator(".js-plotly-plot")
    for number in range(plots.count()):
        sweep(plots.nth(number), columns=6, rows=24)
    only_text(watched)


def test_names_in_the_picture_of_energy_are_text(hostile_server: Server, watched: Visitor) -> None:
    """By tenant, owner, job, node and GPU model: the legend, and the pointer over the bars."""
    watched.open(f"{hostile_server.base}/account?tab=energy")
    for key in ("tenant", "owner", "job", "node", "model"):
        watched.page.get_by_test_id("stRadio").get_by_text(key, exact=True).click()
        watched.settle()
        sweep(watched.page.locator(".js-plotly-plot").first, columns=24, rows=2)
        only_text(watched)


FAMILIES = sorted({payload.family for payload in PAYLOADS})


@pytest.mark.parametrize(
    "quarter", [0, *(pytest.param(index, marks=pytest.mark.slow_end) for index in range(1, 4))]
)
def test_one_job_is_text_whatever_its_name(
    hostile_server: Server, watched: Visitor, quarter: int
) -> None:
    """A job of every family by its permalink: heading, notes, scheduler's words, cards."""
    for family in FAMILIES[quarter::4]:
        number = next(at for at, payload in enumerate(PAYLOADS) if payload.family == family)
        pod, namespace = (PAYLOADS[at % len(PAYLOADS)].text.strip() for at in (number, number + 1))
        name = f"{namespace}/{pod}".replace("\0", "\ufffd")
        watched.open(f"{hostile_server.base}/jobs?job={quote(name)}")
        only_text(watched)


@pytest.mark.parametrize(
    "address",
    [
        "jobs?q={}",
        "jobs?namespace={0}&owner={0}&show={0}&order={0}&page={0}",
        "account?tab=energy&by={0}&every={0}&month={0}",
        "jobs?job={}",
        "fleet?q={0}&gpu={0}&model={0}&colour={0}&order={0}",
        "?week-ahead=true&group={}",
        "findings?state={0}&q={0}&kind={0}&owner={0}&sort={0}&finding={0}",
        "admin?tab=audit&head={}",
        "admin?tab={0}&q={0}",
        "account?tab=reports&week={}",
    ],
)
def test_an_address_is_text(hostile_server: Server, watched: Visitor, address: str) -> None:
    """A link that somebody sends does nothing but choose what is shown.

    What can be read is one text; what a parser may stumble over, and then show no more, another.
    """
    shown = "[x](javascript:window.hacked=1) :material/check: $x$ www.evil.example "
    for text in (
        f"{shown}<img src=x onerror=window.hacked=1>",
        "\u202e\x00\x1b[2J'; DROP TABLE jobs; --",
    ):
        watched.open(f"{hostile_server.base}/{address.format(quote(text, safe=''))}")
        only_text(watched)


def test_the_grids_export_nothing_past_the_prefix(hostile_server: Server, watched: Visitor) -> None:
    """The button of a table that would write cells as they are is gone; ours prefixes them."""
    watched.open(f"{hostile_server.base}/jobs?show=ever%20seen")
    watched.page.locator('[data-testid="stDataFrame"]').first.hover()
    assert watched.page.get_by_label(re.compile("download", re.IGNORECASE)).count() == 0
    with watched.page.expect_download() as waiting:
        watched.page.get_by_role("button", name="CSV", exact=True).first.click()
    text = Path(waiting.value.path()).read_bytes().decode()
    cells = [cell for line in csv.reader(io.StringIO(text, newline="")) for cell in line]
    assert len(cells) > 1000
    assert [cell for cell in cells if cell[:1] in tuple("=+-@\t\r\n\0")] == []
    with watched.page.expect_download() as waiting:
        watched.page.get_by_role("button", name="JSON", exact=True).first.click()
    rows = json.loads(Path(waiting.value.path()).read_text(encoding="utf-8"))
    assert len(rows) >= len(PAYLOADS) / 2


def test_the_report_of_hostile_names_is_one_quiet_file(
    hostile_server: Server, watched: Visitor, tmp_path: Path
) -> None:
    """The HTML report opened as a file: its plot drawn, no host asked, nothing run."""
    watched.open(f"{hostile_server.base}/account?tab=reports")
    with watched.page.expect_download() as waiting:
        watched.page.get_by_role("button", name="HTML", exact=True).click()
    week = tmp_path / "week.html"
    waiting.value.save_as(week)
    watched.page.goto(week.as_uri())
    watched.page.wait_for_selector("svg[role=img]")
    watched.hosts.discard(week.as_uri())
    assert watched.page.evaluate("window.hacked ?? null") is None
    assert watched.page.locator("iframe, object, embed, form, img, link[href*=evil]").count() == 0
    assert watched.page.locator("td a, td *[onerror], td script, td style").count() == 0
    assert "<script>window.hacked=1</script>" in watched.text()
