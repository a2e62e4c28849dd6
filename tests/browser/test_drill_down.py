"""From node to board, job and finding by clicks on rows, and back; every stop is a permalink."""

import re
from urllib.parse import parse_qs, quote, urlsplit

import pytest
from browser.bed import Server, Visitor
from playwright.sync_api import Locator, expect

pytestmark = pytest.mark.browser
_ROW_PIXELS, _FROM_THE_END = 35, 40
FLEET, JOB, FINDING, JOBS = "boards-rows", "held-boards-rows", "job-findings-rows", "jobs-rows"
PLAN = ".st-key-gantt"


def grid(visitor: Visitor, key: str) -> Locator:
    """The table of this key."""
    return visitor.page.locator(f".st-key-{key} [data-testid='stDataFrame']")


def click_row(visitor: Visitor, key: str, place: int = 0) -> None:
    """Click a row of a table at its right end: no column there is a link."""
    table, mouse = grid(visitor, key), visitor.page.mouse
    canvas = table.locator("canvas").first
    expect(table.locator("table[role='grid'] tbody tr").first).to_be_attached()
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box
    x = box["x"] + box["width"] - _FROM_THE_END
    y = box["y"] + _ROW_PIXELS * (place + 1.5)
    # The grid learns from the way to a cell which cell is meant.
    mouse.move(x - 5, y)
    mouse.move(x, y)
    mouse.down()
    mouse.up()
    visitor.settle()


def rows(visitor: Visitor, key: str) -> list[str]:
    """The rows of a table as a screen reader hears them."""
    told = grid(visitor, key).locator("table[role='grid'] tbody tr")
    expect(told.first).to_be_attached()
    return [str(row) for row in told.evaluate_all("rows => rows.map(row => row.textContent)")]


def asked(visitor: Visitor, name: str) -> str:
    """What the address says of a name."""
    (value,) = parse_qs(urlsplit(visitor.page.url).query)[name]
    return value


def test_from_a_node_to_its_finding_and_back(server: Server, visitor: Visitor) -> None:
    """Fleet, one node, its board, the job on it, its finding, the job again, its board again."""
    page = visitor.page
    visitor.open(f"{server.base}/fleet?q=notebook")
    place = next(n for n, row in enumerate(rows(visitor, FLEET)) if "notebook-" in row)
    click_row(visitor, FLEET, place)
    board = asked(visitor, "gpu")
    assert board in rows(visitor, FLEET)[place]

    visitor.open(page.url)
    assert asked(visitor, "gpu") == board
    held_by = page.locator(".st-key-held-by").get_by_role("link")
    job = held_by.last.inner_text().split("\n")[-1]
    held_by.last.click()
    page.wait_for_url(re.compile("/jobs[?].*job="))
    visitor.settle()
    assert asked(visitor, "job") == job

    visitor.open(page.url)
    found = rows(visitor, FINDING)[0]
    click_row(visitor, FINDING)
    page.wait_for_url(re.compile("/findings"))
    visitor.settle()
    assert asked(visitor, "finding") in found

    visitor.open(page.url)
    page.get_by_role("link", name="Open the job").click()
    page.wait_for_url(re.compile("/jobs[?].*job="))
    visitor.settle()
    assert asked(visitor, "job") == job
    click_row(visitor, JOB)
    page.wait_for_url(re.compile("/fleet"))
    visitor.settle()
    assert asked(visitor, "gpu") == board
    expect(page.get_by_role("textbox", name="Node or job")).not_to_have_value("")


def test_a_row_of_jobs_opens_its_job_and_back_stays_there(server: Server, visitor: Visitor) -> None:
    """Who goes back sees the list, and is not sent on again."""
    page = visitor.page
    visitor.open(f"{server.base}/jobs?q=notebook")
    first = rows(visitor, JOBS)[0]
    click_row(visitor, JOBS)
    page.wait_for_url(re.compile("/jobs[?].*job="))
    visitor.settle()
    assert quote(asked(visitor, "job"), safe="") in first
    page.go_back()
    page.wait_for_url(re.compile("/jobs(?!.*job=)"))
    visitor.settle()
    expect(page.locator("h1")).to_contain_text("GPU-hours of the last 24 h were idle")
    assert rows(visitor, JOBS)


def click_mark(visitor: Visitor, mark: Locator) -> None:
    """Click the middle of a mark of a chart."""
    mark.scroll_into_view_if_needed()
    visitor.settle()
    box = mark.bounding_box()
    assert box
    visitor.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)


def bars(visitor: Visitor, within: str = "") -> Locator:
    """The bars of a chart's first layer, once they are drawn; `within` is the key of its chart."""
    charts = visitor.page.locator(f"{within} .js-plotly-plot")
    marks = charts.locator(".barlayer .trace").first.locator("path")
    expect(marks.first).to_be_attached()
    return marks


def test_a_block_of_the_plan_opens_its_job(server: Server, visitor: Visitor) -> None:
    """Who goes back sees Findings, and is not sent on again."""
    page = visitor.page
    visitor.open(f"{server.base}/findings?over-time=true")
    click_mark(visitor, bars(visitor, PLAN).last)
    page.wait_for_url(re.compile("/jobs[?].*job="))
    visitor.settle()
    assert asked(visitor, "job")
    page.go_back()
    page.wait_for_url(re.compile("/findings"))
    visitor.settle()
    expect(page.locator("h1")).to_contain_text("for a decision")
    assert "/findings" in page.url


def test_a_cell_of_the_map_opens_its_board(server: Server, visitor: Visitor) -> None:
    """All of the cell answers, not its middle alone: a corner of every cell of the last row."""
    page = visitor.page
    visitor.open(f"{server.base}/fleet")
    for place in range(2):
        plot = page.locator(".js-plotly-plot").first
        board, x, y = plot.evaluate(
            """(plot, place) => {
                const marks = plot.data.at(-1), {xaxis, yaxis} = plot._fullLayout
                const at = marks.customdata.length - 1 - place, box = plot.getBoundingClientRect()
                const pixel = (axis, value) => axis._offset + axis.d2p(value)
                return [marks.customdata[at][0], box.x + pixel(xaxis, marks.x[at] + 0.42),
                    box.y + pixel(yaxis, marks.y[at] - 0.4)]
            }""",
            place,
        )
        page.mouse.click(x, y)
        page.wait_for_url(re.compile(f"gpu={board}"))
        visitor.settle()


@pytest.mark.parametrize(
    ("where", "opened", "kept"),
    [
        ("jobs", "/jobs[?]", "job="),
        ("account?tab=energy&by=tenant", "/account[?]", "tenant="),
        ("account?tab=energy&by=model", "/jobs[?]", "model="),
        ("account", "/account[?]", "namespace=robotics"),
        ("findings?over-time=true", "/jobs[?]", "job="),
    ],
)
def test_a_click_leads_on_with_a_filter_chosen(
    server: Server, visitor: Visitor, where: str, opened: str, kept: str
) -> None:
    """A choice of the header is bound to its control: to write it into the address failed."""
    page = visitor.page
    mark = "&" if "?" in where else "?"
    visitor.open(f"{server.base}/{where}{mark}namespace=robotics")
    if where == "jobs":
        click_row(visitor, JOBS)
    elif where == "account":
        click_row(visitor, "costs-by-tenant-rows")
    else:
        click_mark(visitor, bars(visitor, PLAN if "over-time" in where else "").last)
    page.wait_for_url(re.compile(f"(?=.*{opened}).*{kept}"))
    visitor.settle()
    expect(page.get_by_test_id("stException")).to_have_count(0)


def test_why_nothing_is_recommended_is_two_clicks_away(server: Server, visitor: Visitor) -> None:
    """From Overview: the page Jobs, and the row of a job without a finding."""
    visitor.open(server.base)
    visitor.go("Jobs")
    place = next(n for n, row in enumerate(rows(visitor, JOBS)) if "TT-" not in row)
    click_row(visitor, JOBS, place)
    visitor.page.wait_for_url(re.compile("/jobs[?].*job="))
    visitor.settle()
    reason = visitor.page.get_by_text(re.compile(r"No change is recommended \(.+\)"))
    expect(reason).to_be_visible()


def test_from_the_costs_of_all_to_those_of_a_job_and_back(server: Server, visitor: Visitor) -> None:
    """The tenant that costs most, its first job, the job's models, and up again by links."""
    page = visitor.page
    visitor.open(f"{server.base}/account")
    click_row(visitor, "costs-by-tenant-rows")
    tenant = asked(visitor, "tenant")
    expect(page.locator("h1")).to_contain_text(f"{tenant}: ")
    if grid(visitor, "costs-by-application-rows").count():
        click_row(visitor, "costs-by-application-rows")
    click_row(visitor, "costs-by-job-rows")
    job = asked(visitor, "job")
    assert asked(visitor, "tenant") == tenant
    expect(page.get_by_role("heading", name="By model")).to_be_visible()
    expect(page.get_by_role("link", name="Open the job")).to_have_attribute(
        "href", re.compile(f"jobs.*job={re.escape(quote(job, safe=''))}")
    )
    page.get_by_test_id("stMain").get_by_role("link", name="All tenants").click()
    expect(page.get_by_role("heading", name="By tenant")).to_be_visible()
    expect(page).not_to_have_url(re.compile("tenant="), timeout=15_000)
