"""What is not proposed for now: jobs that were not read lately, nodes that are out of service."""

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from factories import NOW, make_job, make_plan, make_recommendation

from dashboard.apply.resting import resting
from data.records.decisions import Action, Decision
from data.records.jobs import JobState, SchedulerFacts
from data.records.lifecycle import UNDER_WAY, State
from data.store import Store


@pytest.mark.parametrize(
    ("minutes", "scheduler", "rests"),
    [
        (0, None, False),
        (15, None, False),
        (16, None, True),
        (600, None, True),
        (600, SchedulerFacts(state=JobState.RUNNING), False),
    ],
)
def test_a_job_that_was_not_read_lately_may_be_over(
    store: Store, minutes: int, scheduler: SchedulerFacts | None, rests: bool
) -> None:
    """Nobody can be asked about a job that telemetry alone names; others their scheduler ends."""
    job = make_job(last_seen_at=NOW - timedelta(minutes=minutes), scheduler=scheduler)
    found = resting(store.reader, [job], NOW, NOW)
    assert (job.job_id in found) is rests
    assert "may be over" in found.get(job.job_id, "may be over")


@pytest.mark.parametrize("state", State)
def test_a_node_that_a_change_took_out_of_service_is_not_proposed_again(state: State) -> None:
    """For as long as the change stands or is under way, and nobody has changed it back."""
    node = make_recommendation(
        job_id="", action=Action.CONSOLIDATE, details=(("node", "gpu-7"),)
    )  # fmt: skip
    undone = SimpleNamespace(at=NOW - timedelta(days=2))
    reader: Any = SimpleNamespace(
        states=lambda: {node.digest: state},
        recommendation=lambda _digest, now: SimpleNamespace(recommendation=node),
        journal=lambda digest, events: [undone],
    )
    found = resting(reader, [], NOW)
    assert (node.target in found) is (state in UNDER_WAY - {State.ROLLBACK_REFUSED})


@pytest.mark.parametrize("state", [State.APPROVED, State.WRITTEN])
def test_nothing_else_is_proposed_while_an_approval_waits(store: Store, state: State) -> None:
    """Until it is made, is taken back or expires."""
    one = make_recommendation()
    store.keep_cycle(
        cycle_id="c1", started_at=NOW, finished_at=NOW, reports=(), forecasts=(),
        plan=make_plan(), recommendations=(one,),
    )  # fmt: skip
    job = make_job(scheduler=SchedulerFacts(state=JobState.RUNNING))
    assert resting(store.reader, [job], NOW, NOW) == {}
    for decision in (Decision.APPROVED, Decision.WRITTEN)[: 1 + (state is State.WRITTEN)]:
        store.append_decision(digest=one.digest, decision=decision, by="A", at=NOW, comment="")
    before, after = one.expires_at - timedelta(seconds=1), one.expires_at
    found = resting(store.reader, [job], before, NOW)
    assert found[one.target].startswith(f"a change of it is {state} and waits to be made")
    assert resting(store.reader, [job], after, NOW) == {}
    store.append_decision(digest=one.digest, decision=Decision.REJECTED, by="A", at=NOW, comment="")
    assert resting(store.reader, [job], before, NOW) == {}
