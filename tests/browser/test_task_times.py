"""What people come for, in presses of the mouse: a scripted person, think time left out.

The page itself counts: a press that a script makes up is no press.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest
from beds.stores import Stores
from browser.bed import Server, Visitor, running_server
from browser.inbox import dialog, open_row
from browser.test_applying import ApplyingServer, applying_server
from factories import make_collected, make_samples
from playwright.sync_api import expect

from data.base.clock import utc_now
from data.records.actions import Action
from data.store import open_store

pytestmark = pytest.mark.browser
_COUNT = """
if (!window.countsPresses) addEventListener("mousedown", event => {
  if (event.isTrusted) sessionStorage.presses = 1 + Number(sessionStorage.presses || 0);
}, true);
window.countsPresses = true;  // the tab of the tests is shared: a script may be there twice
"""


@dataclass
class Person:
    """A visitor whose presses are counted by the page."""

    visitor: Visitor

    def __post_init__(self) -> None:
        """Count from the next page on."""
        self.visitor.page.add_init_script(_COUNT)

    @property
    def presses(self) -> int:
        """How often the mouse was pressed in this tab."""
        return int(self.visitor.page.evaluate("Number(sessionStorage.presses || 0)"))


@pytest.fixture
def applying(
    stores: Stores, filled_store: str, own_port: int, tmp_path: Path
) -> Iterator[ApplyingServer]:
    """A server that applies."""
    with (
        stores.copy_of(filled_store, tmp_path) as url,
        applying_server(url, tmp_path, port=own_port) as running,
    ):
        yield running


def biggest_idle(url: str) -> str:
    """The number of the finding that takes the most GPU-hours from a job that does nothing."""
    with open_store(url, create=False) as store:
        found = {
            entry.reference: entry.recommendation.savings.gpu_hours
            for entry in store.reader.recommendations(now=utc_now())
            if entry.recommendation.action is Action.RECLAIM
        }
    return max(found, key=lambda reference: getattr(found[reference], "central", 0.0))


def test_the_biggest_idle_job_is_found_applied_and_verified(
    stores: Stores, filled_store: str, applying: ApplyingServer, visitor: Visitor, tmp_path: Path
) -> None:
    """Seven presses: page, finding, target, apply, name, tick, confirm. One more undoes it."""
    (tmp_path / "read").mkdir()
    with stores.copy_of(filled_store, tmp_path / "read") as url:
        chosen = biggest_idle(url)
    person, page = Person(visitor), visitor.page
    visitor.open(applying.server.base)
    visitor.go("Findings")
    panel, opened = open_row(visitor, "Reclaim idle GPU")
    assert opened == chosen  # the first one of its kind is the biggest
    expect(panel.get_by_text("Why", exact=True)).to_be_visible()
    panel.get_by_role("button", name="Look at the target").click()
    expect(panel.get_by_text(re.compile("^set gpus of .* to 0")).first).to_be_visible()
    panel.get_by_role("button", name="Approve and apply", exact=True).click()
    asked = dialog(visitor)
    asked.get_by_label("Your name").click()
    page.keyboard.type("Robin")
    asked.get_by_text("I have read it").click()
    asked.get_by_role("button", name=re.compile("^Confirm")).click()
    expect(panel.get_by_text("applied by Robin")).to_be_visible()
    assert len(applying.sent(chosen)) == 1
    assert person.presses <= 7
    panel.get_by_role("button", name="Roll back").click()
    expect(panel.get_by_text("rolled-back by Robin")).to_be_visible()
    assert len(applying.sent(chosen)) == 2
    assert person.presses <= 8
    visitor.go("Account", "Savings")
    expect(page.get_by_text("none can be measured yet")).to_be_visible()


def test_why_a_job_is_not_proposed_is_one_press_away(server: Server, visitor: Visitor) -> None:
    """The page Jobs says of each job what is proposed, or why nothing is."""
    person = Person(visitor)
    visitor.open(server.base)
    visitor.go("Jobs")
    rows = visitor.page.locator(".st-key-jobs-rows table[role='grid'] tbody tr")
    expect(rows.first).to_be_attached()
    told = [str(text) for text in rows.evaluate_all("rows => rows.map(row => row.textContent)")]
    assert any(re.search(r"TT-\d+", row) for row in told)
    reasons = ("no change reaches the job", "its peaks need", "no smaller")
    kept = [row for row in told if not re.search(r"TT-\d+", row)]
    assert any(reason in row for reason in reasons for row in kept)
    assert person.presses == 1


def test_slow_jobs_and_their_causes_are_two_presses_away(server: Server, visitor: Visitor) -> None:
    """The page Jobs, and those that are slow; how they are listed is tested by page."""
    person = Person(visitor)
    visitor.open(server.base)
    visitor.go("Jobs")
    visitor.page.get_by_role("radiogroup", name="Show").get_by_text("slow", exact=True).click()
    expect(visitor.page.locator("h1")).to_have_text(
        re.compile(r"\d+ of \d+ running jobs? (is|are) slow")
    )
    assert person.presses == 2


def test_a_job_is_submitted_to_the_simulated_cluster(
    stores: Stores, filled_store: str, own_port: int, visitor: Visitor, tmp_path: Path
) -> None:
    """Five presses: page, plans, name, preview, submit."""
    with (
        stores.copy_of(filled_store, tmp_path) as url,
        running_server(
            url,
            tmp_path,
            port=own_port,
            TRIMTAB_SIMULATED_FLEET_ENABLED="true",
            TRIMTAB_SIMULATED_FLEET_NODES="8",
            TRIMTAB_SIMULATED_FLEET_STATE_FILE=str(tmp_path / "cluster.json"),
            TRIMTAB_SUBMIT_ENABLED="true",
            TRIMTAB_SERVE_CYCLE_MINUTES="600",
        ) as server,
    ):
        person, page = Person(visitor), visitor.page
        visitor.open(server.base)
        visitor.go("New job")
        page.get_by_role("button", name="Show the plans").click()
        page.get_by_label("Your name").last.click()
        page.keyboard.type("Robin")
        page.keyboard.press("Tab")
        visitor.settle()
        page.get_by_role("button", name="Preview").click()
        expect(page.get_by_text('"gpu_model"')).to_be_visible()
        page.get_by_role("button", name="Submit", exact=True).click()
        expect(page.get_by_text(re.compile(r"^Submitted \w+ as default/my-job"))).to_be_visible()
        assert person.presses <= 6
        page.goto("about:blank")  # before the server goes


def test_the_cost_of_a_team_last_month_is_two_presses_away_from_every_page(
    empty_store: str, own_port: int, visitor: Visitor, tmp_path: Path
) -> None:
    """The page Account, and its last month: a row of the team."""
    now = utc_now()
    last_month = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0) - timedelta(days=2)
    held = make_samples(minutes=61, end=last_month, power_watts=700.0)
    with open_store(empty_store) as store:
        store.keep(make_collected(held))
        later = make_samples(minutes=61, end=now, job_id="ads/later")
        store.keep(make_collected(later, batch_id="now"))
    person, page = Person(visitor), visitor.page
    with running_server(empty_store, tmp_path, port=own_port) as server:
        link = page.get_by_test_id("stSidebar").get_by_role("link", name="Account", exact=True)
        for start in ("jobs", "fleet", "account?tab=energy", "admin", ""):
            visitor.open(f"{server.base}/{start}")
            expect(link).to_be_visible()
        before = person.presses
        visitor.go("Account", "Costs")
        page.get_by_role("radiogroup", name="Month").get_by_text("last month").click()
        expect(page.locator("h1")).to_have_text(
            re.compile(rf"{last_month:%B %Y} cost 2\.\d+ EUR, 1\.\d+ EUR of it idle GPUs")
        )
        assert person.presses == before + 2
        visitor.settle()
        with page.expect_download() as found:
            page.get_by_role("button", name="CSV", exact=True).click()
        text = found.value.path().read_text(encoding="utf-8")
        page.goto("about:blank")  # before the server goes
    (row,) = csv.DictReader(text.splitlines())
    assert (row["tenant"], row["GPU-hours"]) == ("search", "1.0")
    assert float(row["cost (EUR)"]) == pytest.approx(2.7156)
