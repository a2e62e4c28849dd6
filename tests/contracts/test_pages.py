"""Every page of the dashboard has a row that says whose it is, and each of its tabs a file."""

from pathlib import Path

from dashboard.web.frame.navigation import FORMER_ADDRESSES, PAGES, RENAMED, pages_of, place_of

WEB = Path(__file__).parents[2] / "dashboard/web"
OWNERS = {"findings", "jobs", "account"}
"""What an owner of jobs may open, each with their own jobs alone (tests/browser/test_roles.py)."""


def shown(role: str) -> set[str]:
    """The pages of a role."""
    return {row.view for row in pages_of(role)}


def test_there_are_seven_pages() -> None:
    """Whoever adds one takes another away."""
    assert [row.title for row in PAGES] == [
        "Overview", "Findings", "Jobs", "Fleet", "Account", "New job", "Admin"
    ]  # fmt: skip


def test_every_tab_has_one_file() -> None:
    """`tests/test_house.py` finds a file that no row and no module names."""
    tabs = [(row, tab) for row in PAGES for tab in row.tabs]
    assert [row.file(tab) for row, tab in tabs if not (WEB / row.file(tab)).is_file()] == []
    assert len({tab.view for _row, tab in tabs}) == len(tabs)
    for row, tab in tabs:
        assert place_of(tab.view)[0] is row
        assert tab.title or len(row.tabs) == 1 or tab.view == row.subject


def test_an_address_opens_the_tab_that_it_names() -> None:
    """A word that names none opens the first; a job is opened by its name alone."""
    for row in PAGES:
        for tab in row.tabs:
            words = {row.subject: "x"} if tab.view == row.subject else place_of(tab.view)[1]
            assert row.tab(words) is tab
        assert row.tab({"tab": "<b>"}) is row.tab({}) is row.tabs[0]
    jobs = place_of("jobs")[0]
    assert jobs.tab({"job": ""}).view == "jobs"
    assert jobs.tab({"job": "x", "tab": "serving"}).view == "job"


def test_every_former_address_leads_to_a_page_of_today() -> None:
    """None of them is one of today, which would be lost."""
    views = {row.view: row for row in PAGES}
    assert not FORMER_ADDRESSES.keys() & views.keys()
    assert FORMER_ADDRESSES.keys() >= RENAMED.keys()
    for view, words in FORMER_ADDRESSES.values():
        row = views[view or PAGES[0].view]
        assert row.tab(words).view == words.get("tab", row.tabs[0].view)


def test_an_owner_sees_the_pages_that_are_named_here() -> None:
    """Where a page stands in the navigation does not decide who sees it."""
    advice = (
        "a page for owners shows them their own jobs alone: if that is so, add it to OWNERS in "
        "this file and OWN_PAGES in tests/browser/test_roles.py; else leave for_owners out"
    )
    assert shown("owner") == OWNERS, advice


def test_who_is_not_signed_in_sees_no_page() -> None:
    """The others see all."""
    assert shown("none") == set()
    for role in ("viewer", "approver", "admin"):
        assert shown(role) == {row.view for row in PAGES}
