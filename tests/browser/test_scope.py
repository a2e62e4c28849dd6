"""The time range and the filters of the header: on every page, in the address, and in its sums."""

import re

import pytest
from browser.bed import Server, Visitor
from playwright.sync_api import expect

pytestmark = pytest.mark.browser
FILTERED = "Filtered: namespace search. Sums are of these jobs alone."
FOLLOWING = (
    ("Findings", ""),
    ("Fleet", ""),
    ("Jobs", ""),
    ("Account", "Costs"),
    ("Account", "Savings"),
    ("Account", "Energy and emissions"),
    ("Admin", "Forecast quality"),
)
WHOLE = (("Account", "Reports"), ("Admin", "Settings"), ("Fleet", "Racks and power"))
NOTE = "The chosen namespace does not change this page."


def gpu_hours(visitor: Visitor) -> float:
    """The GPU-hours of the sentence of Jobs."""
    said = visitor.page.locator("h1").inner_text()
    found = re.search(r"of their ([\d,.]+) GPU-hours", said)
    assert found, said
    return float(found[1].replace(",", ""))


def test_what_is_chosen_holds_on_every_page(server: Server, visitor: Visitor) -> None:
    """It stays in the address and in force, and a page says when it does not follow it."""
    page = visitor.page
    visitor.open(f"{server.base}/jobs")
    whole = gpu_hours(visitor)
    page.get_by_role("button", name="All jobs").click()
    page.get_by_role("combobox", name=re.compile("Namespace")).click()
    page.get_by_role("option", name="search", exact=True).click()
    expect(page.get_by_text(FILTERED)).to_be_visible()
    visitor.settle()
    assert 0 < gpu_hours(visitor) < whole
    page.keyboard.press("Escape")
    visitor.go("Overview")
    page.get_by_role("combobox", name="Days").click()
    page.get_by_role("option", name="30", exact=True).click()
    expect(page).to_have_url(re.compile("days=30"))
    for title, tab in FOLLOWING:
        visitor.go(title, tab)
        expect(page.get_by_text(FILTERED)).to_be_visible()
        assert "namespace=search" in page.url, title
    for title, tab in WHOLE:
        visitor.go(title, tab)
        expect(page.get_by_text(NOTE)).to_be_visible()
    visitor.go("Fleet", "GPUs")
    expect(page.get_by_role("combobox", name="Days")).to_have_value("30")
    expect(page).to_have_url(re.compile("days=30"))
    expect(page.get_by_text(FILTERED)).to_be_visible()


def test_an_address_opens_what_it_says(server: Server, visitor: Visitor) -> None:
    """A colleague sees the same filter; a word that is none of its options is not taken."""
    page = visitor.page
    visitor.open(f"{server.base}/?namespace=search&days=1")
    expect(page.locator("h1")).to_contain_text("Jobs of namespace search had")
    expect(page.get_by_text(re.compile("last 1 d: GPUs allocated to these jobs"))).to_be_visible()
    visitor.open(f"{server.base}/?namespace=<b>nobody</b>&days=soon")
    expect(page.locator("h1")).to_contain_text("GPUs are allocated")
    expect(page.get_by_role("button", name="All jobs")).to_be_visible()
