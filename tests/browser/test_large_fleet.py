"""Every view of 10,000 GPUs in a real browser: light and dark, on a laptop and a wide screen."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from browser.bed import Server, Visitor, running_server
from playwright.sync_api import Browser, expect

from benchmarks._stored_cycle import write_cycle
from benchmarks._stored_fleet import StoredFleet, write_facts
from data.clock import floor_to_slot, utc_now
from data.settings import Settings
from data.store import open_store
from data.store.engine import open_engine
from data.store.migrate import migrate

pytestmark = [pytest.mark.browser, pytest.mark.slow]
NODES = 1250
PLANNED_JOBS = 200
VIEWS = [
    ("", r"of 10000 GPUs are allocated", 1),
    ("fleet", r"10000 boards on 1250 nodes", 3),
    ("jobs", r"[\d,]+ jobs run; ", 0),
    ("job", r"holds \d+ × ", 3),
    ("forecasts", r"In the next 24 h jobs will hold", 3),
    ("plan", r"The next 24 h cost", 3),
    ("recommendations", r"recommendation", 0),
    ("energy", r"The GPUs used", 1),
    ("health", r"1 of 1 sources answered", 0),
]


@pytest.fixture(scope="module")
def large_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two days of 10,000 GPUs, with a plan for some of their jobs."""
    folder = tmp_path_factory.mktemp("large")
    path, end = folder / "trimtab.duckdb", floor_to_slot(utc_now(), 300)
    engine = open_engine(path, create=True)
    migrate(engine)
    with engine.begin() as connection:
        fleet = StoredFleet(seed=7, nodes=NODES, days=2, end=end, sample_hours=1)
        write_facts(connection, fleet)
    engine.dispose()
    settings = Settings()
    planning = replace(settings.planning, workers=1, budget_seconds=2.0)
    with open_store(f"duckdb:///{path}") as store:
        write_cycle(
            store,
            now=end,
            settings=replace(settings, planning=planning),
            most_jobs=PLANNED_JOBS,
        )
    with running_server(f"duckdb:///{path}", folder) as running:
        yield running


@pytest.fixture(params=["light", "dark"])
def scheme(request: pytest.FixtureRequest) -> str:
    """What the visitor's system asks for."""
    return str(request.param)


@pytest.fixture(params=[1280, 1920])
def large_visitor(
    browser: Browser, request: pytest.FixtureRequest, scheme: str
) -> Iterator[Visitor]:
    """A tab of that width and colour scheme that must not complain or ask another host."""
    size = {"width": int(request.param), "height": 1000}
    with browser.new_context(viewport=size, color_scheme=scheme) as context:
        seen = Visitor(context.new_page())
        seen.watch()
        yield seen
        assert seen.hosts <= {"127.0.0.1"}
        assert seen.errors == []


@pytest.mark.parametrize(
    ("path", "sentence", "plots"), VIEWS, ids=[one[0] or "overview" for one in VIEWS]
)
def test_a_view_of_ten_thousand_gpus(
    large_server: Server, large_visitor: Visitor, path: str, sentence: str, plots: int
) -> None:
    """It opens with its sentence and its plots, fits the window, and shows no error."""
    large_visitor.open(f"{large_server.base}/{path}")
    page = large_visitor.page
    expect(page.locator("h4").first).to_have_text(re.compile(sentence))
    if plots:
        expect(page.locator(".js-plotly-plot:visible").nth(plots - 1)).to_be_visible()
    assert page.locator('[data-testid="stException"]').count() == 0
    assert "Traceback" not in large_visitor.text()
    main = page.get_by_test_id("stMain")
    assert main.evaluate("main => main.scrollWidth <= main.clientWidth")


def test_jobs_are_paged_in_the_address(large_server: Server, large_visitor: Visitor) -> None:
    """Filters, order and page of the table are in the address, and hold when it is opened."""
    large_visitor.open(f"{large_server.base}/jobs?namespace=ads&order=energy&show=ever+seen&page=2")
    expect(large_visitor.page.get_by_text(re.compile(r"101–200 of [\d,]+ jobs"))).to_be_visible()
    assert "namespace=ads" in large_visitor.page.url
