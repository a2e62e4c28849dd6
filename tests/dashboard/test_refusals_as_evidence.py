"""What an applier refused is not proposed again until a fact behind it changes."""

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from factories import NOW, make_job, make_range, make_recommendation

from dashboard.cycle.cooldowns import rejections
from data.facts.jobs import Job, Platform, SchedulerFacts
from data.records.actions import Action
from data.records.lifecycle import CHANGED_TARGET, State
from data.records.recommendations import Recommendation
from data.records.target_facts import TARGET_FACTS, target_facts

FACTS = (("generation", "4"), ("server_version", "1.36"), ("pods", "4"), ("pending_pods", "1"))


def job_of(**changes: Any) -> Job:
    """A workload as its scheduler tells of it; `changes` are facts of it, or who manages it."""
    managed_by = changes.pop("managed_by", ())
    extra = tuple((dict(FACTS) | changes).items())
    facts = SchedulerFacts(extra=extra, managed_by=managed_by)
    return make_job("ml/deployment/chat", platform=Platform.KUBERNETES, scheduler=facts)


def refused(job: Job) -> Recommendation:
    """A recommendation that was made of this job."""
    one = make_recommendation(job_id=job.job_id)
    factors = (*one.evidence.factors, (TARGET_FACTS, target_facts(job)))
    return replace(one, evidence=replace(one.evidence, factors=factors))


def read(one: Recommendation, now: Job, *, record: str = "", days: float = 1.0) -> Any:
    """What is held back of a recommendation that was refused so many days ago."""
    row = SimpleNamespace(
        digest=one.digest,
        event=State.REFUSED,
        at=NOW - timedelta(days=days),
        detail="a policy of the cluster refuses it (422: at least 2 replicas)",
        record=record,
    )
    stored = SimpleNamespace(recommendation=one, finding=7, state=State.REFUSED, decided_at=None)
    reader: Any = SimpleNamespace(
        finding_events=tuple,
        journal=lambda events: [row] if State.REFUSED in events else [],
        commands=list,
        spoken_of_since=lambda _at, now: [stored],
        recommendations_of=lambda _digests, now: {},
        states=dict,
    )
    return rejections(reader, NOW, 30.0, [now])


def test_a_refusal_holds_whatever_it_would_save_and_says_who_refused() -> None:
    """The finding carries the words of the applier, and what lifts them."""
    one = refused(job_of())
    (held,) = read(one, job_of()).values()
    much = replace(one.savings, cost=make_range(10**6, "EUR"))
    assert "a policy of the cluster refuses it (422: at least 2 replicas)" in held.holds(much)
    assert "until facts of it change" in held.holds(much)


@pytest.mark.parametrize(
    ("changes", "lifted"),
    [
        ({}, False),
        ({"pods": "3", "pending_pods": "2"}, False),
        ({"generation": "5"}, True),
        ({"server_version": "1.37"}, True),
        ({"pods_floor": "2"}, True),
        ({"managed_by": ("Helm",)}, True),
    ],
)
def test_another_fact_lifts_it_and_what_moves_by_itself_does_not(
    changes: dict[str, Any], lifted: bool
) -> None:
    """Generation, version, owner: then the same change may be made."""
    assert bool(read(refused(job_of()), job_of(**changes))) is not lifted


def test_a_target_that_had_moved_was_no_refusal_of_the_change() -> None:
    """The next plan sees it as it is; and no refusal holds for ever."""
    one = refused(job_of())
    assert read(one, job_of(), record=CHANGED_TARGET) == {}
    assert read(one, job_of(), days=31) == {}


@pytest.mark.parametrize(
    ("state", "action", "rests"),
    [
        (State.APPLIED, Action.POWER_CAP, True),
        (State.VERIFIED, Action.POWER_CAP, True),
        (State.KEPT, Action.POWER_CAP, True),
        (State.APPLYING, Action.POWER_CAP, False),
        (State.REPLACED, Action.POWER_CAP, False),
        (State.VERIFIED, Action.FEWER_GPUS, False),
    ],
)
def test_a_cap_that_stands_is_not_proposed_again(
    state: State, action: Action, *, rests: bool
) -> None:
    """No scheduler tells of a cap, and the last hour was read without it."""
    one = replace(refused(job_of()), action=action)
    stored = SimpleNamespace(recommendation=one, decided_at=NOW)
    reader: Any = SimpleNamespace(
        finding_events=tuple,
        journal=lambda events: [],
        commands=list,
        spoken_of_since=lambda _at, now: [],
        recommendations_of=lambda digests, now: dict.fromkeys(digests, stored),
        states=lambda: {one.digest: state},
    )
    found = rejections(reader, NOW, 30.0, [job_of()])
    assert bool(found) is rests
    if rests:
        ((target, kind), rejection) = next(iter(found.items()))
        assert (target, kind) == (one.target, Action.POWER_CAP)
        assert "applied on" in rejection.holds(one.savings)
