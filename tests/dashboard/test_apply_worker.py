"""The apply worker against a cluster in a file: what is applied, and what each answer leads to."""

import re
from datetime import timedelta

import pytest
import sqlalchemy as sa
from beds.apply_bench import JOB, Bench, sent
from factories import make_recommendation

from dashboard.apply.worker.prepare import change_of
from dashboard.decisions import approvals
from data.base.errors import ApprovalMissingError, StalePlanError
from data.store.engine import tables


def test_an_approved_change_is_applied_once_and_read_back(bench: Bench) -> None:
    """Approve, ask twice, work: two steps arrive, once each, and the state says applied."""
    bench.approve()
    bench.ask()
    bench.ask()
    assert bench.state == "applying"
    bench.work()
    assert bench.state == "applied"
    assert sent(bench) == [["gpus", "2"], ["note", bench.digest]]
    events = [entry.event for entry in bench.store.reader.audit()]
    assert events[:7] == [
        "approved",
        "apply-asked",
        "prepared",
        "sending",
        "answered",
        "sending",
        "answered",
    ]


def test_nothing_is_applied_without_an_approval(bench: Bench) -> None:
    """The proposal alone writes no command."""
    with pytest.raises(ApprovalMissingError):
        bench.ask()
    bench.work(visits=3)
    assert sent(bench) == []


def test_the_undo_is_stored_before_anything_is_sent(bench: Bench) -> None:
    """The journal holds the steps back ahead of the first step."""
    bench.approve()
    bench.ask()
    bench.work()
    rows = bench.store.reader.journal(digest=bench.digest)
    assert [row.event for row in rows][:2] == ["prepared", "sending"]
    assert '"undo":[{' in rows[0].record


@pytest.mark.parametrize(
    ("mood", "state", "gpus"),
    [
        ("busy*3", "applied", "2"),
        ("busy", "refused", "4"),
        ("refuse", "refused", "4"),
        ("forbid", "refused", "4"),
        ("foreign", "refused", "4"),
        ("quota-known", "refused", "4"),
        ("quota", "applied-differently", "3"),
        ("cut*1", "applied", "2"),
        ("lost*1", "applied", "2"),
        ("lost", "refused", "4"),
        ("deaf", "refused", "4"),
    ],
)
def test_every_answer_leads_to_a_stated_outcome(
    bench: Bench, mood: str, state: str, gpus: str
) -> None:
    """Busy is retried, cut connections are looked into, refusals and rewrites are named."""
    bench.set(rollout_timeout_minutes=0.3)
    bench.cluster.change(JOB, mood=mood)
    bench.approve()
    bench.ask()
    bench.work(visits=120)
    assert (bench.state, bench.job()["gpus"]) == (state, gpus)
    assert len([entry for entry in sent(bench) if entry[0] == "gpus"]) == (gpus != "4")


def test_a_refusal_after_the_first_step_is_applied_differently(bench: Bench) -> None:
    """What was taken stays named, and can be rolled back."""
    bench.approve()
    bench.ask()
    execute = bench.applier.cluster.send

    def send_then_refuse(name: str, field: str, value: str) -> None:
        execute(name, field, value)
        bench.cluster.change(JOB, mood="refuse*1")

    object.__setattr__(bench.cluster, "send", send_then_refuse)
    bench.work()
    object.__delattr__(bench.cluster, "send")
    assert bench.state == "applied-differently"
    bench.roll_back()
    bench.work()
    assert (bench.state, bench.job()["gpus"]) == ("rolled-back", "4")


def test_an_unknown_outcome_is_decided_by_the_first_look_that_succeeds(bench: Bench) -> None:
    """The step arrives, nobody can read it back for long, then it is there."""
    bench.set(rollout_timeout_minutes=0.1)
    bench.approve()
    bench.ask()
    bench.cluster.change(JOB, mood="unreadable")
    bench.work(visits=30)
    assert bench.state == "unknown"
    bench.cluster.change(JOB, mood="")
    bench.work(visits=30)
    assert bench.state == "applied"


def test_a_target_that_moved_since_the_plan_is_refused(bench: Bench) -> None:
    """Three GPUs where the plan saw four."""
    bench.cluster.change(JOB, gpus="3")
    bench.approve()
    bench.ask()
    bench.work()
    assert (bench.state, sent(bench)) == ("refused", [])


def test_a_recommendation_that_was_edited_after_its_approval_is_refused(
    bench: Bench,
) -> None:
    """The record under the approved digest proposes something else: nothing is sent."""
    bench.approve()
    bench.ask()
    column = tables.recommendations.c.record
    with bench.store._transaction() as connection:
        text = connection.execute(sa.select(column)).scalar_one()
        edited = re.sub(r'("proposed":{[^}]*"gpu_count":)2', r"\g<1>1", text)
        assert edited != text
        connection.execute(tables.recommendations.update().values(record=edited))
    bench.work(visits=3)
    assert (bench.store.reader.states()[bench.digest], sent(bench)) == ("refused", [])
    assert any("edited" in name for name in bench.store.reader.verify_audit())
    with bench.store._transaction() as connection:
        connection.execute(tables.recommendations.update().values(record=text))


def test_a_previewed_change_binds_the_approval(bench: Bench) -> None:
    """The change that was shown is the one that is made, or none is."""
    change = change_of(bench.applier, make_recommendation(), bench.store.reader)
    bench.approve(previewed=change)
    bench.cluster.change(JOB, note="touched")
    bench.ask()
    bench.work()
    assert (bench.state, sent(bench)) == ("refused", [])


def test_a_cluster_that_is_down_is_asked_again(bench: Bench) -> None:
    """The command waits with the reason and goes through later."""
    bench.cluster.change(JOB, mood="down")
    bench.approve()
    bench.ask()
    bench.work(visits=3)
    assert (bench.state, bench.held) == ("applying", "the cluster does not answer. Wait.")
    bench.cluster.change(JOB, mood="")
    bench.work()
    assert bench.state == "applied"


def test_a_job_that_fails_during_the_watch_is_noticed_and_may_recover(bench: Bench) -> None:
    """Applied, then failing beyond the patience, then applied again."""
    bench.set(rollout_timeout_minutes=0.5)
    bench.approve()
    bench.ask()
    bench.work(visits=10)
    assert bench.state == "applied"
    bench.cluster.change(JOB, mood="crashing")
    bench.work(visits=70)
    assert bench.state == "failing"
    bench.cluster.change(JOB, mood="")
    bench.work(visits=30)
    assert bench.state == "applied"


def test_an_effect_that_is_still_coming_is_waited_for(bench: Bench) -> None:
    """NOT_YET is no outcome until it is there."""
    bench.approve()
    bench.ask()
    bench.cluster.change(JOB, mood="pending")
    bench.work(visits=10)
    assert bench.state == "applying"
    bench.cluster.change(JOB, mood="")
    bench.work(visits=10)
    assert bench.state == "applied"


def test_a_decision_that_came_too_late_is_refused(bench: Bench) -> None:
    """What is applied can neither be approved nor rejected."""
    bench.approve()
    bench.ask()
    bench.work(visits=5)
    with pytest.raises(StalePlanError):
        approvals.reject(bench.store, bench.digest, by="A", now=bench.clock())
    approvals.keep(bench.store, bench.digest, by="A", now=bench.clock() + timedelta(hours=1))
    assert bench.state == "kept"
