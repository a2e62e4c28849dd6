"""The pages, in the order of their navigation, and whose they are."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PageRow:
    """A page: its file and the room of it, and the section of the navigation that lists it.

    `for_owners`: whether an owner of jobs sees it, so that it shows them their own jobs alone. The
    others are the fleet's: they show the jobs of everybody.
    """

    view: str
    room: str
    title: str
    section: str
    for_owners: bool

    @property
    def file(self) -> str:
        """The file, as `dashboard/web/app.py` names it."""
        return f"{self.room}/{self.view}.py"


PAGES = (
    PageRow("overview", "overview", "Overview", "Now", for_owners=False),
    PageRow("findings", "findings", "Findings", "Now", for_owners=True),
    PageRow("fleet", "fleet", "Fleet", "Now", for_owners=False),
    PageRow("facility", "fleet", "Facility", "Now", for_owners=False),
    PageRow("jobs", "jobs", "Jobs", "Now", for_owners=True),
    PageRow("job", "jobs", "Job", "Now", for_owners=True),
    PageRow("serving", "jobs", "Serving", "Now", for_owners=True),
    PageRow("forecasts", "jobs", "Forecasts", "Next", for_owners=False),
    PageRow("plan", "findings", "Plan", "Next", for_owners=False),
    PageRow("new_job", "new_job", "New job", "Next", for_owners=False),
    PageRow("costs", "account", "Costs", "Account", for_owners=True),
    PageRow("savings", "account", "Savings", "Account", for_owners=True),
    PageRow("energy", "account", "Energy & ESG", "Account", for_owners=True),
    PageRow("reports", "account", "Reports", "Account", for_owners=True),
    PageRow("audit", "admin", "Audit", "Trimtab", for_owners=False),
    PageRow("health", "admin", "Health", "Trimtab", for_owners=False),
    PageRow("settings", "admin", "Settings", "Trimtab", for_owners=False),
)


def page_file(view: str) -> str:
    """Return the file of a page. Errors: StopIteration for a view that is not a page."""
    return next(row.file for row in PAGES if row.view == view)


def navigation(role: str) -> dict[str, list[PageRow]]:
    """Return the pages that a role sees, by section; none for who is not signed in."""
    pages: dict[str, list[PageRow]] = {}
    for row in PAGES if role != "none" else ():
        if role != "owner":
            pages.setdefault(row.section, []).append(row)
        elif row.for_owners:
            pages.setdefault("My jobs" if row.section == "Now" else row.section, []).append(row)
    return pages
