"""Memory that runs out stands on its page: a larger GPU to approve, advice with no Apply."""

from datetime import timedelta
from pathlib import Path

import pytest
from browser.bed import Visitor, running_server
from browser.inbox import decide, open_row
from factories import make_collected, make_job
from memory_cases import climbing, free_board, world_of
from playwright.sync_api import expect

from dashboard.cycle import run_cycle
from data.clock import utc_now
from data.records.decisions import Action, Recommendation
from data.records.jobs import JobState, SchedulerFacts, WorkloadKind
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


def test_memory_that_runs_out_is_shown_with_what_can_be_done(
    empty_store: str, own_port: int, visitor: Visitor, tmp_path: Path
) -> None:
    """Both are findings with their chance; advice can be approved and has no change to make."""
    found = recommended(empty_store)
    assert set(found) == {Action.LARGER_GPU, Action.LESS_MEMORY}
    advice = found[Action.LESS_MEMORY]
    with running_server(empty_store, tmp_path, port=own_port) as server:
        visitor.open(f"{server.base}/findings")
        page = visitor.page
        expect(page.get_by_text("2 of them keep jobs from running out")).to_be_visible()
        panel, _reference = open_row(visitor, found[Action.LARGER_GPU].target)
        expect(panel.get_by_text("Larger GPU before memory runs out")).to_be_visible()
        panel, _reference = open_row(visitor, advice.target)
        expect(panel.get_by_text("in its own program").first).to_be_visible()
        decide(visitor, panel, "Approve")
        expect(panel.get_by_text("approved by Robin")).to_be_visible()
        expect(panel.get_by_role("button", name="Apply")).to_have_count(0)
        expect(panel.get_by_role("button", name="Write the change file")).to_have_count(0)
        visitor.open(f"{server.base}/job?job={advice.job_id}")
        expect(page.get_by_text("GPU memory runs out within").first).to_be_visible()
