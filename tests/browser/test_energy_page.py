"""The page of energy in a real browser: picture, table, method, permalinks, and its exports."""

import csv
import io
import json
import re
from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from beds.stores import Stores
from browser.bed import HOSTILE_JOB, HOSTILE_NAME, PATIENCE, Server, Visitor, running_server
from factories import make_collected, make_job, make_samples
from playwright.sync_api import Browser, Page, expect

from collectors.shared.collector import Window
from collectors.simulated.fleet import SimulatedFleet, SimulatedFleetCollector
from data.base.clock import floor_to_slot, utc_now
from data.store import open_store

pytestmark = pytest.mark.browser

WAIT = PATIENCE
FORMULA = "=cmd|' /C calc'!A0"


@pytest.fixture(scope="module")
def server(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server on eight days of a small fleet and a job of hostile names; no cycle was run."""
    folder = tmp_path_factory.mktemp("energy")
    now = floor_to_slot(utc_now(), 300)
    source = SimulatedFleetCollector(fleet=SimulatedFleet(seed=7, nodes=2), step_seconds=300)
    idle = make_samples(gpus=2, minutes=24 * 60, job_id=HOSTILE_JOB, end=now)
    hostile = make_job(
        HOSTILE_JOB, name=HOSTILE_NAME, namespace="<b onclick=window.hacked=4>", owner=FORMULA
    )
    with stores.empty(folder) as url:
        with open_store(url) as store:
            store.keep(source.collect(Window(start=now - timedelta(days=8), end=now)))
            store.keep(make_collected(idle, (hostile,)))
        with running_server(url, folder) as running:
            yield running


def opened(page: Page, address: str) -> None:
    """Open the page and wait until its last part, the method, is there and it is at rest.

    A press during the run that the address starts would be taken for the drawing before it.
    """
    page.goto(address)
    expect(page.get_by_text("Method and factors", exact=True)).to_be_visible(timeout=WAIT)
    expect(page.locator(".js-plotly-plot .plot-container").first).to_be_visible(timeout=WAIT)
    Visitor(page).settle()


def downloaded(page: Page, button: str) -> tuple[str, str]:
    """The name and text of the file that a button gives."""
    with page.expect_download(timeout=WAIT) as found:
        page.get_by_role("button", name=button, exact=True).first.click()
    return found.value.suggested_filename, Path(found.value.path()).read_text(encoding="utf-8")


def test_the_page_answers_and_exports_what_it_shows(server: Server, visitor: Visitor) -> None:
    """Hours as CSV, the whole statement as JSON; both add up, and no cell is a formula."""
    opened(visitor.page, f"{server.base}/account?tab=energy")
    expect(visitor.page.locator("h1")).to_have_text(
        re.compile(r"The GPUs used .* kWh .* kgCO2e location-based.*GPU-time was measured")
    )
    name, text = downloaded(visitor.page, "Hourly CSV")
    assert name == "energy-by-tenant-hourly.csv"
    hours = list(csv.DictReader(io.StringIO(text)))
    starts = {datetime.fromisoformat(row["start"]) for row in hours}
    assert len({(start.year, start.month) for start in starts}) == 1
    assert len(starts) * timedelta(hours=1) >= max(starts) - min(starts)
    name, text = downloaded(visitor.page, "Statement JSON")
    statement = json.loads(text, parse_constant=pytest.fail)
    total = statement["total"]["gpu_energy_kwh"]
    assert sum(float(row["gpu_energy_kwh"] or 0) for row in hours) == pytest.approx(total)
    assert sum(row["gpu_energy_kwh"] or 0 for row in statement["rows"]) == pytest.approx(total)
    assert {"method", "factors", "not_included", "unknown"} <= set(statement)


def test_hostile_owners_are_cells_and_text(server: Server, visitor: Visitor) -> None:
    """An owner that would be a formula is prefixed in the CSV; nothing runs on the page."""
    opened(visitor.page, f"{server.base}/account?tab=energy&by=owner")
    _name, text = downloaded(visitor.page, "Hourly CSV")
    owners = {row["group"] for row in csv.DictReader(io.StringIO(text))}
    assert f"'{FORMULA}" in owners
    assert not any(owner.startswith(("=", "+", "-", "@")) for owner in owners)
    assert visitor.page.evaluate("window.hacked") is None


def test_the_address_holds_grouping_length_and_quantity(server: Server, visitor: Visitor) -> None:
    """A link shows a colleague the same; what is pressed goes into the address."""
    link = f"{server.base}/account?tab=energy&by=model&every=week&show=kgCO2e+location-based"
    opened(visitor.page, link)
    picture = visitor.page.locator(".js-plotly-plot").first
    expect(picture).to_contain_text("emissions, location-based (kgCO2e)")
    expect(picture).to_contain_text("A100-SXM4-80GB")
    visitor.page.get_by_test_id("stRadio").get_by_text("node", exact=True).click()
    expect(visitor.page).to_have_url(re.compile("(?=.*by=node).*every=week"), timeout=WAIT)


def test_a_link_that_asks_for_nonsense_shows_the_usual(server: Server, visitor: Visitor) -> None:
    """No traceback, no script: unknown words and dates fall back."""
    opened(visitor.page, f"{server.base}/account?tab=energy&by=<b>&every=x&month=2999&show=y")
    for name, usual in (("By", "tenant"), ("Bars", "day"), ("Month", "this month")):
        group = visitor.page.get_by_role("radiogroup", name=name, exact=True)
        expect(group.get_by_label(usual, exact=True)).to_be_checked()
    assert visitor.page.locator('[data-testid="stException"]').count() == 0


@pytest.mark.parametrize(("scheme", "widths"), [("light", (1280, 1920)), ("dark", (1920, 1280))])
def test_light_and_dark_show_the_same_without_complaint(
    server: Server, browser: Browser, scheme: str, widths: tuple[int, int]
) -> None:
    """Picture, factors and unknowns are there, nothing is wider than the window, both widths."""
    size = {"width": widths[0], "height": 1000}
    with browser.new_context(viewport=size, color_scheme=scheme) as context:
        seen = Visitor(context.new_page())
        seen.watch()
        opened(seen.page, f"{server.base}/account?tab=energy")
        for width in widths:
            seen.resize(width)
            expect(seen.page.locator(".js-plotly-plot").first).to_contain_text("GPU energy (kWh)")
            expect(seen.page.get_by_text("market-based emissions: set").first).to_be_visible()
            assert not (beyond := seen.overflow()), (width, beyond)
        assert seen.hosts <= {"127.0.0.1"}
        assert seen.errors == []
