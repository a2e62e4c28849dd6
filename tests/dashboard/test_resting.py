"""What is not proposed for now: jobs that were not read lately, nodes that are out of service."""

import re
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from factories import NOW, make_job, make_plan, make_recommendation

from dashboard.accounting.savings.ledger import ledger
from dashboard.cycle.cooldowns import rejections, resting
from data.base.errors import NotKnownError
from data.facts.jobs import JobState, SchedulerFacts
from data.records.actions import Action
from data.records.lifecycle import ACTIVE_STATES, State
from data.records.plans import IdleCause
from data.records.recommendations import Decision
from data.store import Store
from data.store.facts.fact_reader import FactReader


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


def test_the_cause_claims_no_change_of_a_job_that_was_not_read_lately() -> None:
    """One cause covers every reason not to propose anything now; plans of before are read."""
    assert not re.search("changed|decided", IdleCause.RESTING)
    assert IdleCause("changed or decided lately") is IdleCause.RESTING


@pytest.mark.parametrize("state", State)
def test_a_node_that_a_change_took_out_of_service_is_not_proposed_again(state: State) -> None:
    """For as long as the change stands or is under way, and nobody has changed it back."""
    node = make_recommendation(
        job_id="", action=Action.CONSOLIDATE, details=(("node", "gpu-7"),)
    )  # fmt: skip
    undone = SimpleNamespace(
        at=NOW - timedelta(days=2), digest=node.digest, event=state, record="", detail=""
    )
    reader: Any = SimpleNamespace(
        states=lambda: {node.digest: state},
        recommendations_of=lambda _digests, now: {
            node.digest: SimpleNamespace(recommendation=node)
        },
        journal=lambda events: [undone],
        commands=list,
    )
    found = resting(reader, [], NOW)
    assert (node.target in found) is (state in ACTIVE_STATES - {State.ROLLBACK_REFUSED})


@pytest.mark.parametrize("state", [State.APPROVED, State.WRITTEN])
def test_nothing_else_is_proposed_while_an_approval_waits(store: Store, state: State) -> None:
    """Until it is made, is taken back or expires."""
    one = make_recommendation()
    store.keep_cycle(
        cycle_id="c1", started_at=NOW, finished_at=NOW, forecasts=(),
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


@pytest.mark.parametrize("decision", [Decision.APPROVED, Decision.REJECTED])
def test_as_many_looks_at_the_store_whatever_was_decided(
    store: Store, decision: Decision, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a cycle asks does not grow with each change that people ever spoke of."""
    many = tuple(
        make_recommendation(job_id=f"search/ranker-{number}", job_name=f"ranker-{number}")
        for number in range(12)
    )
    store.keep_cycle(
        cycle_id="c1", started_at=NOW, finished_at=NOW, forecasts=(),
        plan=make_plan(), recommendations=many,
    )  # fmt: skip
    looks: list[str] = []
    rows = FactReader._rows

    def counted(reader: FactReader, statement: Any) -> list[Any]:
        looks.append(str(statement))
        return rows(reader, statement)

    monkeypatch.setattr(FactReader, "_rows", counted)
    counts = []
    for some in (many[:2], many[2:]):
        for entry in some:
            store.append_decision(
                digest=entry.digest, decision=decision, by="A", at=NOW, comment=""
            )
        looks.clear()
        assert len(resting(store.reader, [], NOW, NOW)) in (0, len(counts) * 10 + 2)
        assert len(rejections(store.reader, NOW, 7.0)) in (0, len(counts) * 10 + 2)
        ledger(store.reader, now=NOW)
        counts.append(len(looks))
    assert counts[0] == counts[1]


def test_what_is_read_of_one_is_about_that_one(store: Store) -> None:
    """The state, the decision and what was said of a recommendation are its own among many."""
    first, second = (make_recommendation(job_id=f"search/{name}") for name in ("a", "b"))
    store.keep_cycle(
        cycle_id="c1", started_at=NOW, finished_at=NOW, forecasts=(),
        plan=make_plan(), recommendations=(first, second),
    )  # fmt: skip
    for entry, decision, by in ((first, "approved", "A"), (second, "rejected", "B")):
        store.append_decision(
            digest=entry.digest, decision=Decision(decision), by=by, at=NOW, comment=by
        )
    one = store.reader.recommendation(first.digest, now=NOW)
    both = store.reader.recommendations_of([second.digest, first.digest], now=NOW)
    assert (one.state, one.decided_by, one.comment) == ("approved", "A", "A")
    assert both[first.digest] == one
    assert (both[second.digest].state, both[second.digest].decided_by) == ("rejected", "B")
    with pytest.raises(NotKnownError):
        store.reader.recommendations_of(["f" * 64], now=NOW)
