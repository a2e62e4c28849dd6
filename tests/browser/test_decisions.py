"""Decisions in a real browser: what a click means is what the store then says."""

import re

import pytest
from browser.bed import Server, Visitor
from browser.inbox import answer, bulk, decide, dialog, open_first, panel_of, rows, tick
from playwright.sync_api import expect

from data.base.clock import utc_now
from data.store import StoredRecommendation, open_store

pytestmark = pytest.mark.browser


def stored(server: Server) -> dict[str, StoredRecommendation]:
    """End the server, since it alone may hold the store, and read what it left, by finding."""
    status = server.stop()
    assert status == 0, server.log.read_text(encoding="utf-8")[-4000:]
    with open_store(server.store_url, create=False) as store:
        assert store.reader.verify_audit() == ()
        return {
            recommendation.reference: recommendation
            for recommendation in store.reader.recommendations(now=utc_now())
        }


def test_a_finding_is_snoozed_and_reopened_at_its_address_then_approved_and_written(
    own_server: Server, visitor: Visitor
) -> None:
    """Its number opens it in whatever state; the row stays and says who approved; all is kept."""
    visitor.open(f"{own_server.base}/recommendations?state=proposed")
    panel, chosen = open_first(visitor)
    assert f"finding={chosen}" in visitor.page.url
    decide(visitor, panel, "Snooze")
    expect(panel.get_by_text("snoozed until")).to_be_visible()
    visitor.open(f"{own_server.base}/recommendations?finding={chosen.lower()}")
    panel = panel_of(visitor, chosen)
    expect(panel.get_by_text("snoozed until")).to_be_visible()
    panel.get_by_role("button", name="Reopen").click()
    answer(visitor, name="Kim")
    expect(panel.get_by_role("button", name="Approve", exact=True)).to_be_visible()
    visitor.open(f"{own_server.base}/findings?finding=TT-99999")
    expect(visitor.page.get_by_text("TT-99999 is not known here")).to_be_visible()

    visitor.open(f"{own_server.base}/findings")
    panel, chosen = open_first(visitor)
    before = [row[:6] for row in rows(visitor)]
    decide(visitor, panel, "Approve", comment="agreed with the owner")
    expect(panel.get_by_text("approved by Robin")).to_be_visible()
    assert [row[:6] for row in rows(visitor)] == before
    assert chosen in next(row for row in rows(visitor) if "approved by Robin" in row)
    panel.get_by_text("The change file", exact=True).click()
    expect(panel.locator("code").first).not_to_be_empty()
    panel.get_by_role("button", name="Write the change file").click()
    expect(panel.get_by_text("written by Robin")).to_be_visible()
    kept = stored(own_server)[chosen]
    assert (kept.state, kept.decided_by) == ("written", "Robin")
    assert len(list(own_server.changes.iterdir())) == 1


def test_a_name_that_no_cluster_allows_gets_no_change_and_another_is_dismissed(
    own_server: Server, visitor: Visitor
) -> None:
    """Approved, it has a refusal for its change; a dismissal keeps who, why and the reason."""
    visitor.open(f"{own_server.base}/findings")
    panel, hostile = open_first(visitor, hostile=True)
    decide(visitor, panel, "Approve")
    expect(panel.get_by_text("approved by Robin")).to_be_visible()
    expect(panel.get_by_test_id("stAlert")).to_be_visible()
    expect(panel.get_by_role("button", name="Write the change file")).to_have_count(0)
    panel, dismissed = open_first(visitor)
    panel.get_by_role("button", name="Dismiss", exact=True).click()
    dialog(visitor).get_by_label("Reason").select_option("false positive")
    answer(visitor, comment="launch on Monday")
    expect(panel.get_by_text("dismissed by Robin: false positive")).to_be_visible()
    found = stored(own_server)
    assert found[hostile].state == "approved"
    kept = found[dismissed]
    assert (kept.state, kept.decided_by, kept.comment) == ("rejected", "Robin", "launch on Monday")
    with open_store(own_server.store_url, create=False) as store:
        (event,) = store.reader.finding_events(kept.finding)
    assert (event.kind, event.reason) == ("dismissed", "false-positive")


def test_a_decision_needs_a_name(own_server: Server, visitor: Visitor) -> None:
    """Without a name nothing is asked of the server; it is asked for once a session."""
    visitor.open(f"{own_server.base}/findings")
    panel, chosen = open_first(visitor)
    panel.get_by_role("button", name="Approve", exact=True).click()
    answer(visitor)
    expect(dialog(visitor).locator("input:invalid")).to_be_focused()
    answer(visitor, name="  ")
    expect(dialog(visitor).locator("input:invalid")).to_be_focused()
    dialog(visitor).get_by_role("button", name="Cancel").click()
    expect(dialog(visitor)).to_have_count(0)
    other, dismissed = open_first(visitor, hostile=True)
    decide(visitor, other, "Dismiss")
    expect(visitor.page.get_by_role("button", name="Robin")).to_be_visible()
    panel, _ = open_first(visitor)
    panel.get_by_role("button", name="Snooze", exact=True).click()
    expect(dialog(visitor).get_by_role("button", name=re.compile("^Confirm"))).to_be_visible()
    expect(dialog(visitor).get_by_label("Your name")).to_have_count(0)
    found = stored(own_server)
    assert (found[chosen].state, found[dismissed].state) == ("proposed", "rejected")


def test_several_are_decided_at_once(own_server: Server, visitor: Visitor) -> None:
    """The dialog sums up, names what is refused and why, and the rest is approved."""
    visitor.open(f"{own_server.base}/findings")
    panel, first = open_first(visitor)
    decide(visitor, panel, "Approve")
    tick(visitor, "steady/notebook-0", "steady/notebook-1")
    bulk(visitor, "Approve")
    asked = dialog(visitor)
    expect(
        asked.get_by_text(re.compile("1 change will be approved.* a day. Risk: 1 "))
    ).to_be_visible()
    expect(asked.get_by_text(f"{first} is refused: it is approved.")).to_be_visible()
    answer(visitor, comment="both looked at")
    expect(dialog(visitor)).to_have_count(0)
    told = [row for row in rows(visitor) if "approved by Robin" in row]
    assert len(told) == 2
    states = [entry.state for entry in stored(own_server).values()]
    assert states.count("approved") == 2


def test_filters_live_in_the_address(server: Server, visitor: Visitor) -> None:
    """A search and a state are in the address, and what does not fit them is not listed."""
    visitor.open(f"{server.base}/findings?q=steady/notebook-1")
    assert len(rows(visitor)) == 1
    visitor.page.get_by_role("textbox", name="Search").fill("steady")
    visitor.page.keyboard.press("Enter")
    visitor.settle()
    assert len(rows(visitor)) == 2
    assert "q=steady" in visitor.page.url
    visitor.open(f"{server.base}/recommendations?state=approved")
    expect(visitor.page.get_by_text("No finding fits these filters")).to_be_visible()


def test_the_evidence_is_behind_why(server: Server, visitor: Visitor) -> None:
    """Its plot is drawn, the change is a diff, and the evidence names the digest."""
    visitor.open(f"{server.base}/findings")
    panel, _chosen = open_first(visitor)
    expect(panel.locator(".js-plotly-plot")).to_have_count(1)
    expect(panel.get_by_text(re.compile("^- 2 × "))).to_be_visible()
    panel.get_by_text("Evidence", exact=True).click()
    expect(panel.get_by_text(re.compile("digest [0-9a-f]{64}"))).to_be_visible()
