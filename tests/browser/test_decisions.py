"""Decisions in a real browser: what a click means is what the store then says."""

import re

import pytest
from browser.bed import STEADY_JOBS, Server, Visitor
from playwright.sync_api import Locator, expect

from data.clock import utc_now
from data.store import StoredRecommendation, open_store

pytestmark = pytest.mark.browser


def stored(server: Server) -> dict[str, StoredRecommendation]:
    """End the server, since it alone may hold the store, and read what it left."""
    status = server.stop()
    assert status == 0, server.log.read_text(encoding="utf-8")[-4000:]
    with open_store(server.store_url, create=False) as store:
        assert store.reader.verify_audit() == ()
        return {
            stored.recommendation.recommendation_id: stored
            for stored in store.reader.recommendations(now=utc_now())
        }


def first_card(visitor: Visitor, *, hostile: bool = False) -> tuple[Locator, str]:
    """The first card of a well or a badly named job, and the id that it shows."""
    cards = visitor.page.locator("[class*='st-key-card-']")
    steady = cards.filter(has_text=STEADY_JOBS)
    others = steady if steady.count() else cards.filter(has_not_text="evil/")
    card = (cards.filter(has_text="evil/") if hostile else others).first
    found = re.search(r"\b[0-9a-f]{12}\b", card.inner_text())
    assert found
    return card, found.group()


def decide(card: Locator, button: str, *, comment: str = "") -> None:
    """Fill the card's form as a person would, and press the button."""
    card.get_by_label("Your name").fill("Robin")
    card.get_by_label("Comment").fill(comment)
    card.get_by_role("button", name=button, exact=True).click()


def show(visitor: Visitor, state: str) -> None:
    """Choose the state of the cards, once the page has taken in what was done before."""
    visitor.settle()
    visitor.page.get_by_test_id("stButtonGroup").get_by_text(state, exact=True).click()
    visitor.settle()


def test_approve_then_write_the_change_file(own_server: Server, visitor: Visitor) -> None:
    """An approval shows the change text; writing it makes the file and both are recorded."""
    visitor.open(f"{own_server.base}/recommendations")
    card, chosen = first_card(visitor)
    decide(card, "Approve", comment="agreed with the owner")
    expect(visitor.page.locator(f".st-key-card-list-{chosen}")).to_have_count(0)
    show(visitor, "approved")
    card, approved = first_card(visitor)
    assert approved == chosen
    expect(card.get_by_text("approved by Robin")).to_be_visible()
    expect(card.get_by_label("Your name")).to_have_value("Robin")
    expect(card.locator("code").first).not_to_be_empty()
    card.get_by_role("button", name="Write the change file").click()
    expect(visitor.page.get_by_text("None is approved.")).to_be_visible()
    one = stored(own_server)[chosen]
    assert (one.state, one.decided_by) == ("written", "Robin")
    assert len(list(own_server.changes.iterdir())) == 1


def test_reject_with_a_comment(own_server: Server, visitor: Visitor) -> None:
    """A rejection keeps who and why, and the reason that its finding is dismissed for."""
    visitor.open(f"{own_server.base}/recommendations")
    card, chosen = first_card(visitor, hostile=True)
    card.get_by_label("Reason, when rejected").click()
    visitor.page.get_by_role("option", name="false positive").click()
    decide(card, "Reject", comment="launch on Monday")
    expect(visitor.page.locator(f".st-key-card-list-{chosen}")).to_have_count(0)
    one = stored(own_server)[chosen]
    assert (one.state, one.decided_by, one.comment) == ("rejected", "Robin", "launch on Monday")
    with open_store(own_server.store_url, create=False) as store:
        (event,) = store.reader.finding_events(one.finding)
    assert (event.kind, event.reason) == ("dismissed", "false-positive")


def test_a_finding_has_an_address_and_can_be_snoozed(own_server: Server, visitor: Visitor) -> None:
    """Its number opens it in whatever state; reopened, it is proposed again at once."""
    visitor.open(f"{own_server.base}/recommendations")
    card, chosen = first_card(visitor)
    number = re.search(r"TT-\d+", card.inner_text())
    assert number
    decide(card, "Snooze a week")
    expect(visitor.page.locator(f".st-key-card-list-{chosen}")).to_have_count(0)
    visitor.open(f"{own_server.base}/recommendations?finding={number.group().lower()}")
    asked = visitor.page.locator(f".st-key-card-asked-{chosen}")
    expect(asked.get_by_text("snoozed")).to_be_visible()
    asked.get_by_label("Your name").fill("Kim")
    asked.get_by_role("button", name="Reopen").click()
    expect(asked.get_by_role("button", name="Approve", exact=True)).to_be_visible()
    visitor.open(f"{own_server.base}/recommendations?finding=TT-99999")
    expect(visitor.page.get_by_text("TT-99999 is not known here")).to_be_visible()
    assert stored(own_server)[chosen].state == "proposed"


def test_a_decision_needs_a_name(own_server: Server, visitor: Visitor) -> None:
    """Without a name nothing is decided, and the page says so."""
    visitor.open(f"{own_server.base}/recommendations")
    card, chosen = first_card(visitor)
    card.get_by_role("button", name="Approve", exact=True).click()
    expect(card.get_by_text("needs the name of who makes it")).to_be_visible()
    assert stored(own_server)[chosen].state == "proposed"


def test_the_evidence_is_behind_why(own_server: Server, visitor: Visitor) -> None:
    """Opening a card's evidence draws its plot and leaves the other cards as they are."""
    visitor.open(f"{own_server.base}/recommendations")
    card, _chosen = first_card(visitor)
    expect(card.locator(".js-plotly-plot")).to_have_count(0)
    card.get_by_text("Why", exact=True).click()
    expect(card.locator(".js-plotly-plot")).to_have_count(1)
    expect(card.get_by_text(re.compile("digest [0-9a-f]{64}"))).to_be_visible()


def test_no_change_is_written_for_a_name_that_no_cluster_allows(
    own_server: Server, visitor: Visitor
) -> None:
    """An approved job whose name could be read as code gets a refusal instead of a change."""
    visitor.open(f"{own_server.base}/recommendations")
    card, chosen = first_card(visitor, hostile=True)
    decide(card, "Approve")
    show(visitor, "approved")
    card, _ = first_card(visitor, hostile=True)
    expect(card.get_by_test_id("stAlert")).to_be_visible()
    expect(card.get_by_role("button", name="Write the change file")).to_have_count(0)
    assert stored(own_server)[chosen].state == "approved"
