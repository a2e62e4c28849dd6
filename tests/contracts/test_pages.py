"""Every page of the dashboard has a row that says whose it is."""

from pathlib import Path

from dashboard.web.frame.navigation import PAGES, navigation

WEB = Path(__file__).parents[2] / "dashboard/web"
OWNERS = {"findings", "jobs", "job", "serving", "costs", "savings", "energy", "reports"}
"""What an owner of jobs may open, each with their own jobs alone (tests/browser/test_roles.py)."""


def shown(role: str) -> set[str]:
    """The pages of a role."""
    return {row.view for rows in navigation(role).values() for row in rows}


def test_every_page_has_one_row() -> None:
    """Each names a file; `tests/test_house.py` finds a file that no row and no module names."""
    assert [row.file for row in PAGES if not (WEB / row.file).is_file()] == []
    assert len({row.title for row in PAGES}) == len({row.view for row in PAGES}) == len(PAGES)


def test_an_owner_sees_the_pages_that_are_named_here() -> None:
    """Where a page stands in the navigation does not decide who sees it."""
    told = (
        "a page for owners shows them their own jobs alone: if that is so, add it to OWNERS in "
        "this file and OWN_PAGES in tests/browser/test_roles.py; else for_owners=False in its row"
    )
    assert shown("owner") == OWNERS, told


def test_who_is_not_signed_in_sees_no_page() -> None:
    """The others see all."""
    assert shown("none") == set()
    for role in ("viewer", "approver", "admin"):
        assert shown(role) == {row.view for row in PAGES}
