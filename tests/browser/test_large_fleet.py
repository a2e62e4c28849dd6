"""Every view of a large fleet in a real browser: light and dark, on a laptop and a wide screen."""

import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from browser.bed import Server, Visitor, running_server, watched_tab
from playwright.sync_api import Browser, expect

from benchmarks._stored_cycle import write_cycle
from benchmarks._stored_fleet import StoredFleet, write_facts
from data.base.clock import floor_to_slot, utc_now
from data.settings.all_settings import Settings
from data.store import open_store
from data.store.engine.duckdb_engine import open_engine
from data.store.engine.migrate import migrate

pytestmark = [pytest.mark.browser, pytest.mark.slow]
NODES = [200, pytest.param(1250, marks=pytest.mark.slow_end)]
"""Of eight boards each."""
PLANNED_JOBS = 200
WIDTHS = {"light": (1280, 1920), "dark": (1920, 1280)}
"""px: where a view is opened, and what its window is then made."""
VIEWS = [
    ("", r"of {boards} GPUs are allocated", 1),
    ("fleet", r"{boards} GPUs on {nodes} nodes", 2),
    ("jobs", r"[\d,]+ jobs run; ", 0),
    ("?week-ahead=true", r"of {boards} GPUs are allocated", 4),
    ("findings?over-time=true", r"finding", 3),
    ("findings", r"finding", 0),
    ("account", r"[A-Z][a-z]+ 20\d\d so far costs", 1),
    ("account?tab=energy", r"The GPUs used", 1),
    ("admin", r"1 of 1 source answered", 0),
]


@pytest.fixture(scope="module", params=NODES)
def nodes(request: pytest.FixtureRequest) -> int:
    """How many nodes the fleet has."""
    return int(request.param)


@pytest.fixture(scope="module")
def large_server(nodes: int, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Two days of the fleet, with a plan for some of its jobs."""
    folder = tmp_path_factory.mktemp("large")
    path, end = folder / "trimtab.duckdb", floor_to_slot(utc_now(), 300)
    engine = open_engine(path, create=True)
    migrate(engine)
    with engine.begin() as connection:
        fleet = StoredFleet(seed=7, nodes=nodes, days=2, end=end, sample_hours=1)
        write_facts(connection, fleet)
    engine.dispose()
    settings = Settings()
    planning = replace(settings.planning, budget_seconds=2.0)
    with open_store(f"duckdb:///{path}") as store:
        write_cycle(
            store,
            now=end,
            settings=replace(settings, planning=planning),
            most_jobs=PLANNED_JOBS,
        )
    with running_server(f"duckdb:///{path}", folder) as running:
        yield running


@pytest.fixture(scope="module", params=[pytest.param("light", marks=pytest.mark.slow_end), "dark"])
def scheme(request: pytest.FixtureRequest) -> str:
    """What the visitor's system asks for; `test_views` shows a small fleet in light."""
    return str(request.param)


@pytest.fixture(scope="module")
def tab(browser: Browser, scheme: str) -> Iterator[Visitor]:
    """A tab of that colour scheme."""
    with watched_tab(browser, color_scheme=scheme) as opened:
        yield opened


@pytest.mark.parametrize(
    ("path", "sentence", "plots"), VIEWS, ids=[view[0] or "overview" for view in VIEWS]
)
def test_a_view_of_a_large_fleet(
    large_server: Server,
    visitor: Visitor,
    nodes: int,
    scheme: str,
    path: str,
    sentence: str,
    plots: int,
) -> None:
    """In both widths it has its sentence and its plots, fits the window, and shows no error."""
    page, said = visitor.page, sentence.replace("{boards}", f"{8 * nodes:,}")
    said = said.replace("{nodes}", f"{nodes:,}")
    page.set_viewport_size({"width": WIDTHS[scheme][0], "height": 1000})
    visitor.open(f"{large_server.base}/{path}")
    for width in WIDTHS[scheme]:
        visitor.resize(width)
        expect(page.locator("h1")).to_have_text(re.compile(said))
        if plots:
            expect(page.locator(".js-plotly-plot:visible").nth(plots - 1)).to_be_visible()
        assert page.locator('[data-testid="stException"]').count() == 0
        assert "Traceback" not in visitor.text()
        assert not (beyond := visitor.overflow()), (width, beyond)


def test_jobs_are_paged_in_the_address(large_server: Server, visitor: Visitor) -> None:
    """Filters, order and page of the table are in the address, and hold when it is opened."""
    visitor.open(f"{large_server.base}/jobs?namespace=ads&order=energy&show=ever+seen&page=2")
    expect(visitor.page.get_by_text(re.compile(r"101–200 of [\d,]+ jobs"))).to_be_visible()
    assert "namespace=ads" in visitor.page.url
