"""The New job page: a described job shows plans and memory, and the gate of its submission."""

import re

import pytest
from browser.bed import Server, Visitor
from playwright.sync_api import expect

pytestmark = pytest.mark.browser


def test_a_described_job_shows_its_plans(server: Server, visitor: Visitor) -> None:
    """The form gives plans on the fleet's GPU types, a memory bar for each, and the breakdown."""
    visitor.open(f"{server.base}/new_job")
    expect(visitor.page.locator("h1")).to_have_text(re.compile("no GPU has to be named"))
    visitor.page.get_by_role("button", name="Show the plans").click()
    visitor.settle()
    expect(visitor.page.locator("h1")).to_have_text(
        re.compile(
            r"my-job fits in \d+ ways on \d+ GPU types? with a probability of 95 % or more; "
            r"the first: \d+ x \S+ \([\d.]+ GiB expected, [\d.]+ at 95 %, [\d.]+ usable: "
        )
    )
    expect(visitor.page.locator(".js-plotly-plot:visible")).to_have_count(1)
    assert "GPU types of the fleet in the store. Tier C: nobody stated" in visitor.text()
    assert visitor.page.locator('[data-testid="stException"]').count() == 0


def test_the_submit_button_is_off_and_says_why(server: Server, visitor: Visitor) -> None:
    """While submission is switched off the button is disabled and the page names the setting."""
    visitor.open(f"{server.base}/new_job")
    visitor.page.get_by_role("button", name="Show the plans").click()
    visitor.settle()
    expect(visitor.page.get_by_role("button", name="Submit", exact=True)).to_be_disabled()
    assert "Submission is switched off: set submit.enabled" in visitor.text().replace("\u2060", "")


def test_what_cannot_be_is_said_in_words(server: Server, visitor: Visitor) -> None:
    """A name with markup is refused with the rule, and nothing of it is drawn."""
    visitor.open(f"{server.base}/new_job")
    visitor.page.get_by_role("textbox", name="Name of the job").fill("<b>x</b>")
    visitor.page.get_by_role("button", name="Show the plans").click()
    visitor.settle()
    assert "name of the job file is" in visitor.text()
    assert visitor.page.locator('[data-testid="stException"]').count() == 0
