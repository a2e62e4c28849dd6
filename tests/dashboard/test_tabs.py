"""A page computes the tab and the drawers that are open, and nothing of the others."""

import sys
from collections.abc import Iterator
from dataclasses import replace

import pytest
from beds.page_world import page_at, register_world
from factories import NOW, make_collected, make_job, make_plan, make_samples
from streamlit import config

from dashboard.web.frame.navigation import PAGES, place_of
from data.settings.all_settings import Settings
from data.store import Store, open_store

DRAWERS = {
    "week-ahead": ("overview", "dashboard.web.overview.week_ahead.show_week_ahead"),
    "over-time": ("findings", "dashboard.web.findings.plan.show_plan"),
    "keep": ("costs", "dashboard.accounting.facility.capacity.capacity_rows"),
}
"""Word of the address, the tab of the drawer, and what it computes."""
TABS = {
    "serving": "dashboard.serving.outlook.service_history",
    "facility": "dashboard.accounting.facility.heat.heat_rows",
    "costs": "dashboard.web.account.cost_parts.view_of_month",
    "savings": "dashboard.accounting.savings.ledger.ledger",
    "energy": "dashboard.web.account.energy_parts.comparable",
    "reports": "dashboard.reports.week.weekly_report.make_weekly_report",
    "health": "dashboard.web.admin.contradiction_section.contradiction_section",
    "settings": "data.settings.load.setting_rows",
}
"""Tabs, and what each of them alone asks for."""


class OpenedError(Exception):
    """What a tab or drawer that must stay closed would have computed."""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A job and a plan."""
    with open_store(f"duckdb:///{tmp_path_factory.mktemp('tabs')}/t.duckdb") as opened:
        opened.keep(make_collected(make_samples(minutes=60), (make_job(),)))
        opened.keep_cycle(
            cycle_id="c1", started_at=NOW, finished_at=NOW, forecasts=(),
            plan=replace(make_plan(), created_at=NOW), recommendations=(),
        )  # fmt: skip
        yield opened


def forbid(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """Let what is asked for fail."""

    def refuse(*_given: object, **_named: object) -> None:
        raise OpenedError(name)

    monkeypatch.setattr(name, refuse)


@pytest.fixture
def drawable(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Pages show the store, and errors in full: a server of this process shows none."""
    config.set_option("client.showErrorDetails", "full")
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    register_world(store, Settings(), clock=lambda: NOW)


@pytest.mark.usefixtures("drawable")
@pytest.mark.parametrize("word", DRAWERS)
def test_a_drawer_computes_once_it_is_open(word: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Closed it is a line; an address opens it."""
    view, name = DRAWERS[word]
    forbid(monkeypatch, name)
    assert not page_at(view).run().exception
    (error,) = page_at(view, **{word: "true"}).run().exception
    assert name in error.message


@pytest.mark.usefixtures("drawable")
@pytest.mark.parametrize("view", TABS)
def test_a_tab_computes_once_it_is_open(view: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each other tab of its page stands without it, and names it in a link."""
    row, _words = place_of(view)
    forbid(monkeypatch, TABS[view])
    for tab in row.tabs:
        if tab.view in (view, "settings", row.subject):  # this world's settings have no origin
            continue
        assert not page_at(tab.view).run().exception, tab.view


@pytest.mark.usefixtures("drawable")
@pytest.mark.parametrize("view", sorted(tab.view for row in PAGES for tab in row.tabs))
def test_every_tab_has_one_answer(view: str) -> None:
    """One heading of the first rank; the open tab is text, the others lead on."""
    row, _words = place_of(view)
    app = page_at(view, **({"job": make_job().job_id} if view == row.subject else {})).run()
    if view != "settings":
        assert not app.exception
        assert len([entry for entry in app.markdown if entry.value.startswith("# ")]) == 1
    titles = {tab.title for tab in row.tabs if tab.title}
    open_title = next(tab.title for tab in row.tabs if tab.view == view) or row.subject.capitalize()
    if len(row.tabs) > 1:
        assert f"**{open_title}**" in [entry.value for entry in app.markdown]
        links = {link.proto.label for link in app.get("page_link")}
        assert titles - {open_title} <= links
        assert {page.title for page in PAGES} <= links
