"""The seven pages with their tabs, in the order of the navigation, and whose they are."""

from collections.abc import Mapping
from dataclasses import dataclass

JOBS = frozenset({"namespace", "team", "model", "cluster"})
"""Filters of jobs, as an address calls them."""
DAYS, MONTH = "days", "month"


@dataclass(frozen=True, slots=True)
class Tab:
    """A part of a page: its file, its title, and what it follows of the choices in the header.

    One without a title is not listed: an address opens it.
    """

    view: str
    title: str
    follows: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class PageRow:
    """A page: the last part of its address and its folder, its title and tabs, the first as start.

    `for_owners`: whether an owner of jobs sees it, so that it shows them their own jobs alone. The
    others are the fleet's: they show the jobs of everybody.
    `subject` is a word of the address that opens the tab of the same name.
    """

    view: str
    title: str
    tabs: tuple[Tab, ...]
    for_owners: bool = False
    subject: str = ""

    def tab(self, words: Mapping[str, str]) -> Tab:
        """Return the tab that the words of an address open."""
        view = self.subject if words.get(self.subject) else words.get("tab", "")
        return next((tab for tab in self.tabs if tab.view == view), self.tabs[0])

    def file(self, tab: Tab) -> str:
        """Return the file of a tab, as `dashboard/web/app.py` names it."""
        return f"{self.view}/{tab.view}.py"


PAGES = (
    PageRow("overview", "Overview", (Tab("overview", "", JOBS | {DAYS}),)),
    PageRow("findings", "Findings", (Tab("findings", "", JOBS),), for_owners=True),
    PageRow(
        "jobs",
        "Jobs",
        (
            Tab("jobs", "Jobs", JOBS),
            Tab("serving", "Services", JOBS),
            Tab("job", "", frozenset({DAYS})),
        ),
        for_owners=True,
        subject="job",
    ),
    PageRow(
        "fleet", "Fleet", (Tab("fleet", "GPUs", JOBS | {DAYS}), Tab("facility", "Racks and power"))
    ),
    PageRow(
        "account",
        "Account",
        (
            Tab("costs", "Costs", JOBS | {MONTH}),
            Tab("savings", "Savings", JOBS | {MONTH}),
            Tab("energy", "Energy and emissions", JOBS | {MONTH}),
            Tab("reports", "Reports", frozenset({MONTH})),
        ),
        for_owners=True,
    ),
    PageRow("new_job", "New job", (Tab("new_job", ""),)),
    PageRow(
        "admin",
        "Admin",
        (
            Tab("health", "Health"),
            Tab("quality", "Forecast quality", JOBS),
            Tab("audit", "Audit"),
            Tab("settings", "Settings"),
        ),
    ),
)
FORMER_ADDRESSES: Mapping[str, tuple[str, Mapping[str, str]]] = {
    "recommendations": ("findings", {}),
    "plan": ("findings", {"over-time": "true"}),
    "forecasts": ("", {"week-ahead": "true"}),
    "job": ("jobs", {}),
    "serving": ("jobs", {"tab": "serving"}),
    "facility": ("fleet", {"tab": "facility"}),
    "costs": ("account", {}),
    "savings": ("account", {"tab": "savings"}),
    "energy": ("account", {"tab": "energy"}),
    "reports": ("account", {"tab": "reports"}),
    "health": ("admin", {}),
    "audit": ("admin", {"tab": "audit"}),
    "settings": ("admin", {"tab": "settings"}),
}
"""Former addresses: that of the page that each leads on to, and the words that it adds."""
RENAMED: Mapping[str, Mapping[str, str]] = {"job": {"id": "job"}}
"""Words of a former address that have another name now."""


def place_of(view: str) -> tuple[PageRow, dict[str, str]]:
    """Return the page that has a tab, and the words of its address that open it.

    Errors: StopIteration for a view that is not a tab.
    """
    row = next(row for row in PAGES if view in [tab.view for tab in row.tabs])
    return row, {} if view in (row.tabs[0].view, row.subject) else {"tab": view}


def pages_of(role: str) -> tuple[PageRow, ...]:
    """Return the pages that a role sees; none for who is not signed in."""
    if role == "none":
        return ()
    return tuple(row for row in PAGES if row.for_owners or role != "owner")
