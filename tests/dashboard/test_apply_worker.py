"""The apply worker against a cluster in a file: what is applied, held, refused and found out."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa
from beds.apply_bench import JOB, Bench, fill
from beds.file_cluster import FileApplier, FileCluster
from factories import H100, make_plan, make_recommendation

from dashboard import decisions
from dashboard.apply.base import Closed, Left
from dashboard.apply.guards import require_within_limits
from dashboard.apply.kill_switch import resume, stop
from dashboard.apply.prepare import change_of
from dashboard.decision_service import DecisionService
from data.access_settings import AccessSettings
from data.apply_settings import ApplySettings
from data.errors import (
    ApprovalMissingError,
    ChangeRefusedError,
    LeaseLostError,
    StalePlanError,
)
from data.records.changes import Change
from data.records.commands import Person
from data.records.decisions import Action
from data.records.jobs import Platform
from data.records.plans import Configuration
from data.store import open_store, tables


@pytest.fixture
def bench(store_url: str, tmp_path: Path) -> Iterator[Bench]:
    """An approved shrink from four GPUs to two, and a job that holds four."""
    cluster = FileCluster(tmp_path / "cluster.json")
    cluster.create({JOB: {"gpus": "4", "model": "H100", "note": ""}})
    with open_store(store_url) as store:
        fill(store)
        yield Bench(store, cluster, tmp_path)
        assert store.reader.verify_audit() == ()


def sent(bench: Bench) -> list[list[str]]:
    """Every command that ever arrived at the job."""
    log = bench.job()["log"]
    assert isinstance(log, list)
    return log


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
    ask = partial(decisions.ask_to_roll_back, bench.store, bench.digest, now=bench.clock())
    bench.approve()
    bench.ask()
    bench.work()
    with pytest.raises(StalePlanError, match="no rollback to undo"):
        ask(by="Robin", again=True)
    ask(by="Robin")
    bench.work()
    with pytest.raises(StalePlanError, match="rolled back already"):
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

    def close(self, change: Change, *, sent: int) -> Closed:
        """Note the call."""
        self.closed.append(sent)
        left = Left.UNKNOWN if len(self.closed) == 1 else Left.NOTHING
        return Closed(left=left, detail="no answer" if left is Left.UNKNOWN else "taken back")


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
        reports=(),
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
        edited = text.replace('"proposed":{"gpu_count":2', '"proposed":{"gpu_count":1')
        assert edited != text
        connection.execute(tables.recommendations.update().values(record=edited))
    bench.work(visits=3)
    assert (bench.store.reader.states()[bench.digest], sent(bench)) == ("refused", [])
    assert any("edited" in name for name in bench.store.reader.verify_audit())
    with bench.store._transaction() as connection:
        connection.execute(tables.recommendations.update().values(record=text))


def test_a_resume_at_the_desk_is_noted_once_with_its_name(bench: Bench) -> None:
    """The worker finds it noted and adds nothing; on a shared store the wishes stand there too."""
    decision_service = DecisionService(
        store=bench.store,
        settings=lambda: bench.settings,
        appliers=lambda _settings: (bench.applier,),
        clock=bench.clock,
    )
    bench.worker.work_once()
    decision_service.stop(Person(name="Kim"), "trouble")
    bench.worker.work_once()
    assert decision_service.resume(Person(name="Robin"))
    bench.worker.work_once()
    said = [(entry.event, entry.actor) for entry in bench.store.reader.audit()]
    wishes = [("stop-asked", "Kim"), ("resume-asked", "Robin")]
    assert [group for group in said if group not in wishes] == [
        ("stopped", "Kim"),
        ("resumed", "Robin"),
    ]
    assert [group for group in said if group in wishes] == (wishes if bench.store.is_shared else [])


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


def test_the_stop_file_holds_a_command_until_it_is_gone(bench: Bench) -> None:
    """Nothing is sent while it exists; who stopped is said; the audit notes both."""
    path = bench.folder / "STOP"
    stop(path, by="Robin", reason="maintenance")
    bench.approve()
    bench.ask()
    bench.work(visits=5)
    assert sent(bench) == []
    assert "stopped by Robin" in bench.held
    assert resume(path)
    bench.work()
    assert bench.state == "applied"
    words = [entry.event for entry in bench.store.reader.audit()]
    assert words.count("stopped") == words.count("resumed") == 1


def test_the_stop_file_stops_between_two_steps(bench: Bench) -> None:
    """One step was sent; the second waits, and comes after the resume without a third."""
    bench.approve()
    bench.ask()
    execute = type(bench.applier).execute
    path = bench.folder / "STOP"

    class StoppingApplier(type(bench.applier)):  # type: ignore[misc]
        def execute(self, *arguments: object) -> object:
            result = execute(self, *arguments)  # type: ignore[arg-type]
            stop(path, by="Robin", reason="")
            return result

    plain, bench.applier = bench.applier, StoppingApplier(bench.cluster)
    bench.work(visits=5)
    assert sent(bench) == [["gpus", "2"]]
    bench.applier = plain
    resume(path)
    bench.work()
    assert sent(bench) == [["gpus", "2"], ["note", bench.digest]]
    assert bench.state == "applied"


def test_switching_applying_off_holds_a_command(bench: Bench) -> None:
    """The first switch works between approval and apply."""
    bench.approve()
    bench.ask()
    bench.set(enabled=False)
    bench.work(visits=3)
    assert (sent(bench), bench.held) == ([], "applying is off (apply.enabled)")


def test_a_target_that_moves_while_the_command_is_held_is_refused(bench: Bench) -> None:
    """Prepared, stopped, changed by someone else, resumed: nothing is sent."""
    bench.approve()
    bench.ask()
    path = bench.folder / "STOP"
    rehearse = type(bench.applier).rehearse

    class StoppingApplier(type(bench.applier)):  # type: ignore[misc]
        def rehearse(self, change: object) -> object:
            stop(path, by="Robin", reason="")
            return rehearse(self, change)  # type: ignore[arg-type]

    plain, bench.applier = bench.applier, StoppingApplier(bench.cluster)
    bench.work(visits=3)
    bench.applier = plain
    bench.cluster.change(JOB, gpus="3")
    resume(path)
    bench.work()
    assert (bench.state, sent(bench)) == ("refused", [])


def test_a_command_held_beyond_the_expiry_is_refused(bench: Bench) -> None:
    """Waiting does not prolong the life of a recommendation."""
    bench.approve()
    bench.ask()
    bench.clock.forward(hours=25)
    bench.work(visits=3)
    assert (bench.state, sent(bench)) == ("refused", [])


def test_the_limits_refuse_too_small_and_too_large(bench: Bench) -> None:
    """Half of the namespace is the limit; two of eight boards pass a quarter, not a fifth."""
    bench.set(max_namespace_share_ratio=0.2)
    bench.approve()
    bench.ask()
    bench.work(visits=3)
    assert bench.state == "refused"
    assert "2 of the 8 GPUs of search" in bench.store.reader.audit()[-1].detail


def test_nodes_are_no_gpus_of_a_namespace(bench: Bench) -> None:
    """Powering nodes down takes nothing from a namespace, however many there are."""
    nothing = Configuration(gpu_model=H100, gpu_count=0)
    node = make_recommendation(job_id="", action=Action.CONSOLIDATE, proposed=nothing)
    limits = ApplySettings(max_namespace_share_ratio=0.01)
    require_within_limits(bench.store.reader, node, [node], limits)


def test_a_saving_below_the_minimum_is_refused(bench: Bench) -> None:
    """48 GPU-hours are not worth it when a hundred are asked."""
    bench.set(min_gpu_hours=100.0)
    bench.approve()
    bench.ask()
    bench.work(visits=3)
    assert (bench.state, sent(bench)) == ("refused", [])


def test_a_second_change_of_the_job_waits_for_the_cool_down(bench: Bench) -> None:
    """Another recommendation for the same job is held, and goes through an hour later."""
    bench.approve()
    bench.ask()
    bench.work(visits=3)
    other = replace(make_recommendation(), why="again", now=make_recommendation().proposed)
    bench.store.keep_cycle(
        cycle_id="c2",
        started_at=bench.clock(),
        finished_at=bench.clock(),
        reports=(),
        forecasts=(),
        plan=replace(make_plan(), plan_id="q" * 64),
        recommendations=(replace(other, plan_id="q" * 64),),
    )
    bench.digest = replace(other, plan_id="q" * 64).digest
    bench.approve()
    bench.ask()
    bench.work(visits=3)
    assert "cool_down" in bench.held
    bench.clock.forward(minutes=60)
    bench.work(visits=20)
    assert bench.state in ("applied", "refused")
    assert bench.held == ""


def test_an_approver_who_lost_the_right_applies_nothing(bench: Bench) -> None:
    """Rights are asked again when the command is carried out."""
    access = AccessSettings(mode="proxy", proxy_addresses="10.0.0.1", approvers="Robin")
    bench.settings = replace(bench.settings, access=access)
    bench.approve()
    bench.ask()
    bench.settings = replace(bench.settings, access=replace(access, approvers="Kim"))
    bench.work(visits=3)
    assert (bench.state, sent(bench)) == ("refused", [])


def test_with_four_eyes_the_owner_approves_nothing(bench: Bench) -> None:
    """The job's owner is refused, another approver is not."""
    access = AccessSettings(
        mode="proxy", proxy_addresses="10.0.0.1", approvers="search,Robin", four_eyes=True
    )
    with pytest.raises(ChangeRefusedError, match="owns the job"):
        decisions.approve(bench.store, bench.digest, by="search", now=bench.clock(), access=access)
    decisions.approve(bench.store, bench.digest, by="Robin", now=bench.clock(), access=access)


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
        decisions.reject(bench.store, bench.digest, by="A", now=bench.clock())
    decisions.keep(bench.store, bench.digest, by="A", now=bench.clock() + timedelta(hours=1))
    assert bench.state == "kept"
