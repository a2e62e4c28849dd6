"""Applying in a real browser: one click changes the cluster once, and the page says so.

The cluster is a file, so that every command that ever arrived can be counted.
"""

import re
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from beds.file_cluster import FileCluster
from beds.sign_in_proxy import running_sign_in_proxy
from beds.small_page import wait_for
from beds.stores import Stores, on_both_engines
from browser.bed import PATIENCE, Server, Visitor, running_server
from browser.inbox import answer, decide, dialog, open_first, open_row, panel_of
from browser.test_decisions import stored
from playwright.sync_api import Browser, Locator, expect

from data.base.clock import utc_now
from data.store import open_store

pytestmark = pytest.mark.browser
PROGRAM = Path(__file__).parents[1] / "beds" / "serve_with_file_cluster.py"


@dataclass
class ApplyingServer:
    """A server that applies, and the cluster that it applies to."""

    server: Server
    cluster: FileCluster
    jobs: dict[str, str]

    def sent(self, chosen: str) -> list[str]:
        """The GPU counts that were ever sent for the finding of this number."""
        job = self.cluster.read(self.jobs[chosen])
        assert job is not None
        return [value for field, value in job["log"] if field == "gpus"]


@contextmanager
def applying_server(
    url: str, tmp_path: Path, *, port: int | None = None, **environ: str
) -> Iterator[ApplyingServer]:
    """A server with both switches on, and a cluster with every job that has a recommendation."""
    with open_store(url, create=False) as store:
        kept = store.reader.recommendations(now=utc_now())
    cluster = FileCluster(tmp_path / "cluster.json")
    cluster.create(
        {
            said.job_id: {"gpus": str(said.now.gpu_count), "model": "", "note": ""}
            for said in (stored.recommendation for stored in kept)
        }
    )
    with running_server(
        url,
        tmp_path,
        script=PROGRAM,
        port=port,
        TRIMTAB_TEST_CLUSTER=str(cluster.path),
        TRIMTAB_APPLY_ENABLED="true",
        TRIMTAB_APPLY_STOP_FILE=str(tmp_path / "STOP"),
        TRIMTAB_APPLY_MAX_NAMESPACE_SHARE_RATIO="1",
        **environ,
    ) as server:
        jobs = {stored.reference: stored.recommendation.job_id for stored in kept}
        yield ApplyingServer(server, cluster, jobs)


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


@pytest.fixture
def loaded(
    stores: Stores, filled_store: str, own_port: int, tmp_path: Path, visitor: Visitor
) -> Iterator[ApplyingServer]:
    """A server that applies and is slow to draw."""
    visitor.page.set_default_timeout(60_000)
    with (
        stores.copy_of(filled_store, tmp_path) as url,
        applying_server(url, tmp_path, port=own_port, TRIMTAB_TEST_SLOW="0.4") as running,
    ):
        yield running


@on_both_engines
def test_one_click_approves_and_applies(applying: ApplyingServer, visitor: Visitor) -> None:
    """The change reaches the cluster, the page sees it applied, and one more click undoes it."""
    visitor.open(f"{applying.server.base}/findings")
    panel, chosen = open_first(visitor)
    decide(visitor, panel, "Approve and apply")
    expect(panel.get_by_text("applied by Robin")).to_be_visible()
    assert len(applying.sent(chosen)) == 1
    panel.get_by_role("button", name="Roll back").click()
    expect(panel.get_by_text("rolled-back by Robin")).to_be_visible()
    assert len(applying.sent(chosen)) == 2
    assert stored(applying.server)[chosen].state == "rolled-back"


def test_a_double_click_and_two_tabs_give_one_change(
    applying: ApplyingServer, visitor: Visitor, browser: Browser
) -> None:
    """Four clicks on the same recommendation in two tabs: one command, one change."""
    visitor.open(f"{applying.server.base}/findings")
    with browser.new_context(viewport={"width": 1360, "height": 1000}) as context:
        other = Visitor(context.new_page())
        other.open(f"{applying.server.base}/findings")
        panel, chosen = open_first(visitor)
        twin, same = open_first(other)
        assert same == chosen
        for tab, entry in ((visitor, panel), (other, twin)):
            entry.get_by_role("button", name="Approve and apply").click()
            asked = dialog(tab)
            asked.get_by_label("Your name").fill("Robin")
            asked.get_by_label("Comment").fill("go")
            asked.get_by_text("I have read it").click()
            tab.settle()
        confirm = re.compile("^Confirm")
        dialog(visitor).get_by_role("button", name=confirm).dblclick()
        dialog(other).get_by_role("button", name=confirm).dblclick(timeout=PATIENCE)
        expect(panel.get_by_text("applied by Robin")).to_be_visible()
        other.settle()
    assert len(applying.sent(chosen)) == 1
    assert stored(applying.server)[chosen].state == "applied"


def about_to_approve(loaded: ApplyingServer, visitor: Visitor) -> tuple[Locator, str]:
    """The button that confirms, with a name typed, and the number of the first finding."""
    visitor.open(f"{loaded.server.base}/findings?state=all")
    panel, chosen = open_first(visitor)
    panel.get_by_role("button", name="Approve", exact=True).click()
    dialog(visitor).get_by_label("Your name").fill("Robin")
    return dialog(visitor).get_by_role("button", name=re.compile("^Confirm")), chosen


def test_a_decision_survives_another_control_right_after_it(
    loaded: ApplyingServer, visitor: Visitor
) -> None:
    """Name typed, confirmed, another finding opened while it draws: it is kept."""
    confirm, chosen = about_to_approve(loaded, visitor)
    confirm.click(no_wait_after=True)
    expect(dialog(visitor)).to_have_count(0)
    open_row(visitor, "evil/")
    assert stored(loaded.server)[chosen].state == "approved"


def test_a_decision_survives_going_to_another_page_right_after_it(
    loaded: ApplyingServer, visitor: Visitor
) -> None:
    """Name typed, confirmed, and gone while the page is still drawing: it is kept."""
    confirm, chosen = about_to_approve(loaded, visitor)
    confirm.click(no_wait_after=True)
    expect(dialog(visitor)).to_have_count(0)
    visitor.go("Admin", "Audit")
    assert stored(loaded.server)[chosen].state == "approved"


def test_a_decision_survives_a_tab_that_is_closed_right_after_it(
    loaded: ApplyingServer, visitor: Visitor
) -> None:
    """Pressed, and the page is gone before any answer: the post was made."""
    confirm, chosen = about_to_approve(loaded, visitor)
    confirm.evaluate("button => { button.click(); location.href = 'about:blank' }")
    wait_for(lambda: stored(loaded.server)[chosen].state == "approved")


def test_the_kill_switch_is_on_every_page_and_holds_what_is_asked(
    applying: ApplyingServer, visitor: Visitor
) -> None:
    """Stopped on one page, shown on another, nothing sent; resumed, and it is applied."""
    visitor.open(f"{applying.server.base}/health")
    visitor.page.get_by_role("button", name="Stop applying").click()
    expect(visitor.page.get_by_text(re.compile("Applying is stopped"))).to_be_visible()
    visitor.go("Findings")
    expect(visitor.page.get_by_text(re.compile("Applying is stopped"))).to_be_visible()
    panel, chosen = open_first(visitor)
    panel.get_by_role("button", name="Approve and apply").click()
    answer(visitor, name="Robin")
    expect(panel.get_by_text(re.compile("applying is stopped"))).to_be_visible()
    assert applying.sent(chosen) == []
    visitor.page.get_by_role("button", name="Resume applying").click()
    expect(panel.get_by_text("applied by Robin")).to_be_visible(timeout=60_000)
    assert len(applying.sent(chosen)) == 1
    visitor.go("Account", "Savings")
    expect(
        visitor.page.get_by_text(re.compile("1 change is applied; none can be measured yet"))
    ).to_be_visible()
    visitor.go("Admin", "Audit")
    expect(visitor.page.get_by_text(re.compile("entries, chain intact"))).to_be_visible()
    words = {entry.state for entry in stored(applying.server).values()}
    assert "applied" in words


@pytest.mark.parametrize(
    ("person", "sees"), [("robin", "approver"), ("kim", "viewer"), ("mallory", "none")]
)
def test_a_proxy_signs_people_in_with_their_role(
    stores: Stores, filled_store: str, tmp_path: Path, visitor: Visitor, person: str, sees: str
) -> None:
    """The approver decides under their own name, the viewer has no button, others see nothing."""
    with (
        stores.copy_of(filled_store, tmp_path) as url,
        running_server(
            url,
            tmp_path,
            TRIMTAB_ACCESS_MODE="proxy",
            TRIMTAB_ACCESS_PROXY_ADDRESSES="127.0.0.1",
            TRIMTAB_ACCESS_APPROVERS="robin",
            TRIMTAB_ACCESS_VIEWERS="kim",
            TRIMTAB_ACCESS_DEFAULT_ROLE="none",
        ) as server,
        running_sign_in_proxy(int(server.base.rpartition(":")[2]), person) as address,
    ):
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(server.base, timeout=10)
        if sees == "none":
            visitor.page.goto(address)
            expect(visitor.page.get_by_text("mallory has no role here")).to_be_visible()
            return
        visitor.open(f"{address}/findings")
        expect(visitor.page.get_by_text(f"{person}, {sees}")).to_be_visible()
        panel, chosen = open_first(visitor)
        if sees == "viewer":
            expect(panel.get_by_text(re.compile("only owners, approvers"))).to_be_visible()
            expect(panel.get_by_role("button", name="Approve", exact=True)).to_have_count(0)
            expect(visitor.page.get_by_role("button", name="Tick rows")).to_have_count(0)
            return
        panel.get_by_role("button", name="Approve", exact=True).click()
        expect(dialog(visitor).get_by_label("Your name")).to_have_count(0)
        answer(visitor)
        expect(panel_of(visitor, chosen).get_by_text(f"approved by {person}")).to_be_visible()
        visitor.page.goto("about:blank")
        one = stored(server)[chosen]
        assert (one.state, one.decided_by) == ("approved", person)
