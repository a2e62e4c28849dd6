"""Three clusters in one store, as a person sees them: told apart, filtered, and changed apart."""

import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

import pytest
from beds.clusters import SEEDS, changed_clusters, write_clusters
from browser.bed import Server, Visitor, running_server
from browser.inbox import answer, open_row, rows
from playwright.sync_api import expect

from dashboard.cycle.run_cycle import run_cycle
from dashboard.cycle.wiring import build_world
from data.base.clock import utc_now
from data.facts.cluster_names import MAIN_CLUSTER
from data.settings.load import load_settings
from data.store import open_store

pytestmark = pytest.mark.browser


@pytest.fixture
def clusters(own_port: int, tmp_path: Path) -> Iterator[Server]:
    """A server with three simulated clusters, after a first cycle."""
    url = f"duckdb:///{tmp_path}/store.duckdb"
    settings = load_settings(write_clusters(tmp_path, nodes=4), environ={}).settings
    with open_store(url) as store:
        run_cycle(build_world(settings, store=store), now=utc_now())
    with running_server(url, tmp_path, port=own_port) as running:
        yield running


def names_in(visitor: Visitor, key: str) -> list[str]:
    """The first column of a table, from the top, as a screen reader hears it."""
    told = visitor.page.locator(f".st-key-{key} table[role='grid'] tbody tr")
    expect(told.first).to_be_attached()
    cells = "rows => rows.map(row => row.children[0].textContent)"
    return [unquote(cell) for cell in told.evaluate_all(cells)]


def test_clusters_are_told_apart_filtered_and_changed_apart(
    clusters: Server, visitor: Visitor, tmp_path: Path
) -> None:
    """The filter of the header, a table of each kind, sums by cluster, and one change."""
    page = visitor.page
    visitor.open(f"{clusters.base}/jobs")
    page.get_by_role("button", name="All jobs").click()
    page.get_by_role("combobox", name=re.compile("Cluster")).click()
    options = page.get_by_role("option").all_text_contents()
    assert sorted(options) == sorted(["all", MAIN_CLUSTER, *filter(None, SEEDS)])
    page.get_by_role("option", name="paris", exact=True).click()
    expect(page).to_have_url(re.compile("cluster=paris"))
    visitor.settle()
    page.keyboard.press("Escape")
    assert [name for name in names_in(visitor, "jobs-rows") if "@paris" not in name] == []

    visitor.go("Fleet")
    expect(page.get_by_text("Filtered: cluster paris.")).to_be_visible()
    assert [name for name in names_in(visitor, "boards-rows") if "@paris" not in name] == []

    visitor.open(f"{clusters.base}/account?tab=energy&by=cluster")
    for name in (MAIN_CLUSTER, "paris", "lyon"):
        expect(page.get_by_text(name, exact=True).first).to_be_attached()

    visitor.open(f"{clusters.base}/findings?cluster=paris")
    assert all("@paris" in row for row in rows(visitor))
    panel, _reference = open_row(visitor, "Reclaim idle GPU")
    panel.get_by_role("button", name="Approve and apply").click()
    answer(visitor, name="Robin", clicks=2)
    expect(panel.get_by_text("applied by Robin")).to_be_visible()
    assert changed_clusters(tmp_path) == {"paris"}
    assert visitor.errors == []
