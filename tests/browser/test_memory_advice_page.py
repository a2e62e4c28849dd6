"""Memory that runs out stands on its page: a larger GPU to approve, advice with no Apply."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import timedelta

import pytest
from beds.stores import Stores
from browser.bed import Server, Visitor, running_server
from browser.inbox import decide, open_row
from browser.test_task_times import Person
from factories import make_collected, make_job
from memory_cases import climbing, free_board, world_of
from playwright.sync_api import Page, expect

from dashboard.cycle.run_cycle import run_cycle
from data.base.clock import utc_now
from data.facts.jobs import JobState, SchedulerFacts, WorkloadKind
from data.records.actions import Action
from data.records.recommendations import Recommendation
from data.store import open_store

pytestmark = pytest.mark.browser
SMALL, LARGE = "A100-SXM4-40GB", "A100-SXM4-80GB"


def recommended(url: str) -> dict[Action, Recommendation]:
    """What a cycle recommends for a service that may move and a pod that nobody restarts."""
    now = utc_now()
    kept = []
    for name in ("ml/deployment/serve", "ml/pod-7"):
        facts = SchedulerFacts(
            state=JobState.RUNNING,
            extra=(("pods", "1"), ("gpus_per_pod", "1"), ("gpu_containers", "1")),
        )
        job = make_job(
            name,
            gpu_model=SMALL,
            gpu_memory_mib=40_960.0,
            last_seen_at=now,
            scheduler=facts,
            kind=WorkloadKind.UNKNOWN,
        )
        frame = climbing(name, gpu_model=SMALL, memory_mib=40_960.0, end=now)
        kept.append(make_collected(frame.assign(gpu_uuid=f"GPU-{name}"), jobs=(job,)))
    free = free_board(gpu_model=LARGE, end=now)
    with open_store(url) as store:
        store.keep(*kept, make_collected(free, jobs=()))
        outcome = run_cycle(world_of(store), now=now + timedelta(seconds=1))
    return {recommendation.action: recommendation for recommendation in outcome.recommendations}


@dataclass
class RunningOut:
    """A server on what a cycle recommends for these two."""

    server: Server
    found: dict[Action, Recommendation]


@pytest.fixture(scope="module")
def running_out(
    stores: Stores, own_port: int, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningOut]:
    """One for both tests: each is about a finding of its own."""
    folder = tmp_path_factory.mktemp("running-out")
    with stores.empty(folder) as url:
        found = recommended(url)
        with running_server(url, folder, port=own_port) as server:
            yield RunningOut(server, found)


def test_memory_that_runs_out_is_shown_with_what_can_be_done(
    running_out: RunningOut, visitor: Visitor
) -> None:
    """Both are findings with their chance; advice can be approved and has no change to make."""
    assert set(running_out.found) == {Action.LARGER_GPU, Action.LESS_MEMORY}
    advice, base = running_out.found[Action.LESS_MEMORY], running_out.server.base
    visitor.open(f"{base}/findings")
    page = visitor.page
    expect(page.get_by_text("2 of them keep jobs from running out")).to_be_visible()
    panel, _reference = open_row(visitor, running_out.found[Action.LARGER_GPU].target)
    expect(panel.get_by_text("Larger GPU, for memory")).to_be_visible()
    panel, _reference = open_row(visitor, advice.target)
    expect(panel.get_by_text("in its own program").first).to_be_visible()
    decide(visitor, panel, "Approve")
    expect(panel.get_by_text("approved by Robin")).to_be_visible()
    expect(panel.get_by_role("button", name="Apply")).to_have_count(0)
    expect(panel.get_by_role("button", name="Write the change file")).to_have_count(0)
    visitor.open(f"{base}/jobs?job={advice.job_id}")
    expect(page.get_by_text("GPU memory runs out within").first).to_be_visible()


def test_an_urgent_finding_is_two_presses_away_from_every_page(
    running_out: RunningOut, visitor: Visitor
) -> None:
    """The alerts in the header of every page lead to it."""
    urgent = running_out.found[Action.LARGER_GPU]
    person, leads = Person(visitor), set[str | None]()
    link = visitor.page.get_by_role("alert").get_by_role("link", name=re.compile("^TT-")).first
    for path in ("jobs", "fleet", "account?tab=energy", "admin", ""):
        visitor.open(f"{running_out.server.base}/{path}")
        before = person.presses
        visitor.page.get_by_role("button", name=re.compile(r"\d alerts?$")).click()
        leads.add(link.get_attribute("href"))
    assert len(leads) == 1
    with visitor.page.context.expect_page() as opened:
        link.click()
    tab: Page = opened.value
    expect(tab.get_by_text(urgent.target).first).to_be_visible()
    expect(tab.get_by_role("button", name="Approve", exact=True)).to_be_visible()
    tab.close()
    assert person.presses == before + 2
