"""What becomes of an applied change that others undo, change, delete or follow with another one."""

from dataclasses import replace
from datetime import timedelta

import pytest
from beds.apply_bench import JOB, Bench
from factories import make_job, make_plan, make_recommendation

from dashboard.cycle.cooldowns import COOLDOWN, resting
from dashboard.notify.messages import messages_for
from data.records.lifecycle import STANDING_STATES
from data.settings.access import NotifySettings

WHEN = {
    "at once": 1.0,
    "after the watch": 45.0,
    "after the measurement": 48 * 60.0,
    "after a month": 30 * 24 * 60.0,
}


@pytest.fixture
def bench(bench: Bench) -> Bench:
    """A shrink from four GPUs to two that is applied."""
    bench.approve()
    bench.ask()
    bench.work(visits=3)
    assert bench.state == "applied"
    return bench


def passing(bench: Bench, minutes: float) -> None:
    """Let the time pass in ten parts, the worker at work in each."""
    for _part in range(10):
        bench.clock.forward(minutes=minutes / 10)
        bench.work(visits=2)


def next_proposal(bench: Bench, **changes: object) -> None:
    """Keep another recommendation for the job, and take it up."""
    one = replace(
        make_recommendation(),
        plan_id="q" * 64,
        created_at=bench.clock(),
        expires_at=bench.clock() + timedelta(hours=24),
        **changes,  # type: ignore[arg-type]
    )
    bench.store.keep_cycle(
        cycle_id="c2",
        started_at=bench.clock(),
        finished_at=bench.clock(),
        forecasts=(),
        plan=replace(make_plan(), plan_id="q" * 64),
        recommendations=(one,),
    )
    bench.digest = one.digest
    bench.approve()
    bench.ask()


@pytest.mark.parametrize("when", WHEN)
@pytest.mark.parametrize("how", ["undone-outside", "changed-outside", "target-gone"])
def test_what_others_do_to_an_applied_change_is_told(bench: Bench, how: str, when: str) -> None:
    """Put back, set to another value, deleted, sooner or later: one entry names what is there."""
    passing(bench, WHEN[when])
    assert bench.state in ("applied", "verified", "fell-short")
    if how == "undone-outside":
        bench.cluster.change(JOB, gpus="4", note="")
    elif how == "changed-outside":
        bench.cluster.change(JOB, gpus="7")
    else:
        bench.cluster.remove(JOB)
    passing(bench, 180.0)
    assert bench.state == how
    entries = bench.store.reader.entries((how,))
    assert len(entries) == 1
    named = {"undone-outside": "gpus is 4", "changed-outside": "gpus is 7"}
    assert named.get(how, "ended or was deleted") in entries[0].detail
    told = messages_for(entries[0], NotifySettings(mail_to="ops@site.example"))
    assert [how in message.subject for message in told] == ([True] if how != "target-gone" else [])
    assert bench.store.reader.commands(bench.digest)[-1].finished


def test_a_single_look_decides_nothing(bench: Bench) -> None:
    """A value that is back at the next look was never undone."""
    passing(bench, 45.0)
    for _time in range(3):
        bench.cluster.change(JOB, gpus="4", note="")
        bench.clock.forward(minutes=6)
        bench.work(visits=1)
        bench.cluster.change(JOB, gpus="2", note=bench.digest)
        bench.clock.forward(minutes=6)
        bench.work(visits=1)
    assert bench.state == "applied"


@pytest.mark.parametrize("noticed", [True, False])
def test_one_object_has_one_applied_change(bench: Bench, noticed: bool) -> None:
    """Undone from outside and applied again, noticed before or not: one row says applied."""
    first = bench.digest
    bench.set(cool_down_minutes=0.0)
    bench.cluster.change(JOB, gpus="4", note="")
    if noticed:
        passing(bench, 10.0)
    next_proposal(bench)
    bench.work(visits=5)
    assert bench.state == "applied"
    states = bench.store.reader.states()
    assert states[first] == ("undone-outside" if noticed else "replaced")
    passing(bench, 300.0)
    assert [digest for digest, state in states.items() if state in STANDING_STATES] == [
        bench.digest
    ]


def test_a_change_that_was_replaced_can_still_be_rolled_back(bench: Bench) -> None:
    """The second goes back to two GPUs, then the first to four."""
    first, second = bench.digest, make_recommendation().proposed
    bench.set(cool_down_minutes=0.0)
    next_proposal(bench, now=second, proposed=replace(second, gpu_count=1))
    bench.work(visits=5)
    assert bench.job()["gpus"] == "1"
    bench.roll_back()
    bench.work(visits=5)
    assert (bench.state, bench.job()["gpus"]) == ("rolled-back", "2")
    bench.digest = first
    bench.roll_back()
    bench.work(visits=5)
    assert (bench.state, bench.job()["gpus"]) == ("rolled-back", "4")


def test_a_change_of_our_own_under_way_is_not_one_from_outside(bench: Bench) -> None:
    """While the next change of the job is applying, the first one waits for its outcome."""
    first, second = bench.digest, make_recommendation().proposed
    bench.set(cool_down_minutes=0.0, rollout_timeout_minutes=60.0)
    next_proposal(bench, now=second, proposed=replace(second, gpu_count=1))
    bench.cluster.change(JOB, mood="pending")
    passing(bench, 20.0)
    assert (bench.state, bench.job()["gpus"]) == ("applying", "1")
    assert bench.store.reader.states()[first] == "applied"
    bench.cluster.change(JOB, mood="")
    passing(bench, 5.0)
    assert bench.store.reader.states()[first] == "replaced"


def test_a_target_rests_after_a_change_and_after_what_others_did(bench: Bench) -> None:
    """While its readings show what was before, and for a day after a change from outside."""
    as_before, as_after = (make_job(gpu_count=count) for count in (4, 2))
    reader = bench.store.reader
    assert "readings do not show it" in resting(reader, (as_before,), bench.clock())[JOB]
    assert resting(reader, (as_after,), bench.clock()) == {}
    bench.cluster.change(JOB, gpus="4", note="")
    passing(bench, 10.0)
    at = reader.entries(("undone-outside",))[0].at
    for job in (as_before, as_after):
        assert "undone from outside" in resting(reader, (job,), at + COOLDOWN / 2)[JOB]
        assert resting(reader, (job,), at + COOLDOWN) == {}
    bench.roll_back()
    assert "rolling-back" in resting(reader, (), bench.clock())[JOB]


def test_a_target_rests_after_a_rollback(bench: Bench) -> None:
    """Who took a change back had a reason: for a day the same is not proposed again."""
    bench.roll_back()
    bench.work(visits=5)
    assert bench.state == "rolled-back"
    reader, job = bench.store.reader, make_job(gpu_count=4)
    at = reader.entries(("rolled-back",))[0].at
    assert "was rolled back at" in resting(reader, (job,), at + COOLDOWN / 2)[JOB]
    assert resting(reader, (job,), at + COOLDOWN) == {}
