"""Rollbacks by the apply worker: at any moment, twice, refused, asked for by nobody."""

from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from beds.apply_bench import JOB, Bench, sent
from beds.file_cluster import FileApplier, FileCluster
from factories import make_plan, make_recommendation

from dashboard.apply.contract.applier import CloseResult, Remains
from dashboard.decisions import approvals
from data.base.errors import LeaseLostError, StalePlanError
from data.facts.jobs import Platform
from data.records.actions import Action
from data.records.changes import Change
from data.records.plans import Configuration


def test_a_rollback_restores_and_a_rollback_of_it_applies_again(bench: Bench) -> None:
    """Back and forth, each audited, each its own command."""
    bench.approve()
    bench.ask()
    bench.work()
    for gpus, state in (("4", "rolled-back"), ("2", "applied"), ("4", "rolled-back")):
        bench.roll_back()
        bench.roll_back()
        bench.work()
        assert (bench.state, bench.job()["gpus"]) == (state, gpus)
    assert [value for name, value in sent(bench) if name == "gpus"] == ["2", "4", "2", "4"]


def test_what_is_rolled_back_is_not_made_again_by_a_second_rollback(bench: Bench) -> None:
    """Two people answer one incident: the second is told, and nothing is sent."""
    ask = partial(approvals.ask_to_roll_back, bench.store, bench.digest, now=bench.clock())
    bench.approve()
    bench.ask()
    bench.work()
    with pytest.raises(StalePlanError, match="Only a rollback can be undone"):
        ask(by="Robin", again=True)
    ask(by="Robin")
    bench.work()
    with pytest.raises(StalePlanError, match="is rolled-back"):
        ask(by="Kim")
    bench.work()
    assert (bench.state, bench.job()["gpus"]) == ("rolled-back", "4")
    ask(by="Kim", again=True)
    bench.work()
    assert (bench.state, bench.job()["gpus"]) == ("applied", "2")


@pytest.mark.parametrize(
    ("mood", "visits"),
    [("", 0), ("pending", 1), ("pending", 4), ("busy", 3), ("cut", 1), ("lost", 2), ("down", 2)],
)
def test_a_change_under_way_can_be_rolled_back_at_any_moment(
    bench: Bench, mood: str, visits: int
) -> None:
    """The rollback ends the apply, wherever it is, and what is there afterwards is what was."""
    bench.set(rollout_timeout_minutes=1.0)
    bench.approve()
    bench.ask()
    bench.cluster.change(JOB, mood=mood)
    bench.work(visits=visits)
    before = bench.state
    bench.roll_back()
    assert bench.state == "rolling-back", before
    bench.cluster.change(JOB, mood="")
    bench.work(visits=120)
    assert (bench.state, bench.job()["gpus"], bench.job()["note"]) == ("rolled-back", "4", "")
    first, *_later = bench.store.reader.commands(bench.digest)
    assert first.finished


class _ClosingApplier(FileApplier):
    """Counts how often a change was closed; the first call finds nobody to answer."""

    def __init__(self, cluster: FileCluster) -> None:
        super().__init__(cluster)
        self.closed: list[int] = []

    def between_steps(self, change: Change, *, sent: int) -> str:
        return ""

    def close(self, change: Change, *, sent: int) -> CloseResult:
        """Note the call."""
        self.closed.append(sent)
        left = Remains.UNKNOWN if len(self.closed) == 1 else Remains.NOTHING
        return CloseResult(
            left=left, detail="no answer" if left is Remains.UNKNOWN else "taken back"
        )


@pytest.mark.parametrize(
    ("platform", "gone"), [(Platform.SLURM, True), (Platform.KUBERNETES, False)]
)
def test_no_way_back_is_offered_to_a_cancelled_job(
    bench: Bench, platform: Platform, gone: bool
) -> None:
    """Slurm brings no cancelled job back; a Kubernetes workload without pods can grow again."""
    reclaim = replace(
        make_recommendation(action=Action.RECLAIM),
        platform=platform,
        proposed=Configuration(gpu_model="", gpu_count=0),
    )
    later = bench.clock()
    bench.store.keep_cycle(
        cycle_id="c2",
        started_at=later,
        finished_at=later,
        forecasts=(),
        plan=replace(make_plan(), plan_id=reclaim.plan_id),
        recommendations=(reclaim,),
    )
    bench.digest = reclaim.digest
    bench.approve()
    bench.ask()
    bench.work()
    assert bench.state == "applied"
    if gone:
        with pytest.raises(StalePlanError, match="Slurm brings no cancelled job back"):
            bench.roll_back()
    else:
        bench.roll_back()
        bench.work()
        assert bench.state == "rolled-back"


def test_what_a_refused_rollback_ended_is_closed(bench: Bench) -> None:
    """A rollback that finds the target changed leaves nothing half done; it asks until it knows."""
    applier = bench.applier = _ClosingApplier(bench.cluster)
    bench.set(rollout_timeout_minutes=1.0)
    bench.approve()
    bench.ask()
    bench.cluster.change(JOB, mood="busy")
    bench.work(visits=3)
    bench.cluster.change(JOB, mood="", gpus="7")
    bench.roll_back()
    bench.work(visits=1, until=lambda: bool(applier.closed))
    bench.work(visits=120)
    assert bench.state == "rollback-refused"
    assert applier.closed == [1, 1]
    assert all(status.finished for status in bench.store.reader.commands(bench.digest))


@pytest.mark.parametrize("mood", ["refuse*1", "quota*1", "lost", "crashing"])
def test_every_further_rollback_aims_at_the_original(bench: Bench, mood: str) -> None:
    """A rollback that was cut short is followed by one that goes on, not by one that applies."""
    bench.set(rollout_timeout_minutes=0.2)
    bench.approve()
    bench.ask()
    bench.work(visits=5)
    bench.cluster.change(JOB, mood=mood)
    bench.roll_back()
    bench.work(visits=60)
    bench.cluster.change(JOB, mood="")
    if bench.job()["gpus"] == "3":
        bench.cluster.change(JOB, gpus="2")
    if bench.state != "rolled-back":
        bench.roll_back()
    bench.work(visits=120)
    assert (bench.state, bench.job()["gpus"], bench.job()["note"]) == ("rolled-back", "4", "")


def test_what_is_applied_again_can_be_rolled_back_while_it_is(bench: Bench) -> None:
    """A second click before it has begun is the same wish; one after it has begun goes back."""
    bench.approve()
    bench.ask()
    bench.work(visits=5)
    bench.roll_back()
    bench.work(visits=5)
    bench.roll_back()
    bench.roll_back()
    bench.cluster.change(JOB, mood="pending")
    bench.work(visits=5)
    assert (bench.state, bench.job()["gpus"]) == ("rolling-back", "2")
    bench.roll_back()
    bench.cluster.change(JOB, mood="")
    bench.work()
    assert (bench.state, bench.job()["gpus"]) == ("rolled-back", "4")


def test_a_rollback_waits_for_the_worker_that_is_applying(bench: Bench) -> None:
    """While another worker holds the apply nothing is undone; once its lease is over, it is."""
    bench.approve()
    bench.ask()
    other = bench.store.commands.take(
        owner="other", now=bench.clock(), lasting=timedelta(seconds=30)
    )
    assert other is not None
    bench.roll_back()
    bench.work(visits=5)
    assert (bench.state, bench.held) == (
        "rolling-back",
        "waits until the change under way is let go",
    )
    bench.work(visits=60)
    assert bench.state == "rolled-back"
    with pytest.raises(LeaseLostError):
        bench.store.commands.finish(other)
    with pytest.raises(StalePlanError, match="0 attempts that sent"):
        bench.roll_back()


def test_a_rollback_leaves_what_others_changed(bench: Bench) -> None:
    """Only the fields that were touched go back."""
    bench.approve()
    bench.ask()
    bench.work()
    bench.cluster.change(JOB, model="H200")
    bench.roll_back()
    bench.work()
    assert (bench.job()["gpus"], bench.job()["model"]) == ("4", "H200")


def test_a_refused_rollback_can_be_asked_for_again(bench: Bench) -> None:
    """Somebody changed the field; once it is back, the second attempt goes through."""
    bench.approve()
    bench.ask()
    bench.work()
    bench.cluster.change(JOB, gpus="3")
    bench.roll_back()
    bench.work()
    assert bench.state == "rollback-refused"
    bench.cluster.change(JOB, gpus="2")
    bench.roll_back()
    bench.work()
    assert (bench.state, bench.job()["gpus"]) == ("rolled-back", "4")


def test_a_failing_job_is_rolled_back_by_itself_when_opted_in(bench: Bench) -> None:
    """The pods crash after the change; after the patience the change is undone."""
    bench.set(auto_rollback=True, rollout_timeout_minutes=0.1)
    bench.approve()
    bench.ask()
    bench.cluster.change(JOB, mood="crashing")
    bench.work(visits=60)
    assert bench.job()["gpus"] == "4"
    assert bench.state in ("rolled-back", "failing")
    bench.cluster.change(JOB, mood="")
    bench.work(visits=60)
    assert bench.state == "rolled-back"
