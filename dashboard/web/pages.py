"""The pages, in the order of their navigation, and whose they are."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PageRow:
    """A page: its file in `views/`, and the section of the navigation that lists it.

    `for_owners`: whether an owner of jobs sees it, so that it shows them their own jobs alone. The
    others are the fleet's: they show the jobs of everybody.
    """

    view: str
    title: str
    section: str
    for_owners: bool


PAGES = (
    PageRow("overview", "Overview", "Now", for_owners=False),
    PageRow("findings", "Findings", "Now", for_owners=True),
    PageRow("fleet", "Fleet", "Now", for_owners=False),
    PageRow("facility", "Facility", "Now", for_owners=False),
    PageRow("jobs", "Jobs", "Now", for_owners=True),
    PageRow("job", "Job", "Now", for_owners=True),
    PageRow("serving", "Serving", "Now", for_owners=True),
    PageRow("forecasts", "Forecasts", "Next", for_owners=False),
    PageRow("plan", "Plan", "Next", for_owners=False),
    PageRow("new_job", "New job", "Next", for_owners=False),
    PageRow("costs", "Costs", "Account", for_owners=True),
    PageRow("savings", "Savings", "Account", for_owners=True),
    PageRow("energy", "Energy & ESG", "Account", for_owners=True),
    PageRow("reports", "Reports", "Account", for_owners=True),
    PageRow("audit", "Audit", "Trimtab", for_owners=False),
    PageRow("health", "Health", "Trimtab", for_owners=False),
    PageRow("settings", "Settings", "Trimtab", for_owners=False),
)


def navigation(role: str) -> dict[str, list[PageRow]]:
    """Return the pages that a role sees, by section; none for who is not signed in."""
    found: dict[str, list[PageRow]] = {}
    for row in PAGES if role != "none" else ():
        if role != "owner":
            found.setdefault(row.section, []).append(row)
        elif row.for_owners:
            found.setdefault("My jobs" if row.section == "Now" else row.section, []).append(row)
    return found
