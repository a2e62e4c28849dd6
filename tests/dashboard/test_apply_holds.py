"""What holds or refuses a command of the apply worker: the stop file, limits, rights, time."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from beds.apply_bench import JOB, Bench, sent
from factories import H100, NOW, make_plan, make_recommendation

from dashboard.apply.contract.kill_switch import resume, stop
from dashboard.apply.worker import guards
from dashboard.apply.worker.guards import require_within_limits
from dashboard.decisions import approvals
from dashboard.decisions.service import DecisionService
from data.base.errors import ChangeRefusedError
from data.records.actions import Action
from data.records.changes import Change, Rehearsal
from data.records.commands import Person, Work
from data.records.plans import Configuration
from data.settings.access import AccessSettings
from data.settings.apply import ApplySettings


def service_of(bench: Bench) -> DecisionService:
    """The service of decisions on the store of a bench."""
    return DecisionService(
        store=bench.store,
        settings=lambda: bench.settings,
        appliers=lambda _settings: (bench.applier,),
        clock=bench.clock,
    )


def test_a_resume_at_the_desk_is_noted_once_with_its_name(bench: Bench) -> None:
    """The worker finds it noted and adds nothing; on a shared store the wishes stand there too."""
    decision_service = service_of(bench)
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


def test_a_stop_that_is_over_before_the_worker_looks_is_noted(bench: Bench) -> None:
    """Kim's file was there for a moment, and Robin's resume tells of it."""
    decision_service = service_of(bench)
    bench.worker.work_once()
    stop(bench.folder / "STOP", by="Kim", reason="trouble")
    assert decision_service.resume(Person(name="Robin"))
    bench.worker.work_once()
    entries = bench.store.reader.entries(("stopped", "resumed"))
    assert [(entry.event, entry.actor) for entry in entries] == [
        ("stopped", "Kim (by file)"),
        ("resumed", "Robin"),
    ]
    assert "trouble" in entries[0].detail


def test_whoever_stops_without_end_fills_neither_record_nor_mailboxes(bench: Bench) -> None:
    """Ten notes of one person for one stop, which holds; another person's is noted too."""
    desk = service_of(bench)
    for number in range(30):
        desk.stop(Person(name="Kim"), f"reason {number}")
    desk.stop(Person(name="Robin"), "trouble")
    stop(bench.folder / "STOP", by="Robin", reason="said by a file alone")
    bench.worker.work_once()
    noted = [entry.actor for entry in bench.store.reader.entries(("stopped",))]
    assert noted == [*["Kim"] * 10, "Robin", "Robin (by file)"]
    assert desk.stopped() is not None


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


@pytest.mark.parametrize("mood", ["forbid", ""])
def test_what_never_arrived_is_asked_again_before_it_is_sent_again(bench: Bench, mood: str) -> None:
    """Somebody changed what the sent fields say nothing of, while the worker was gone."""
    bench.cluster.change(JOB, mood="lost*1")
    bench.approve()
    bench.ask()
    bench.work(until=lambda: len(sendings(bench)) == 1)
    assert bench.job()["gpus"] == "4"
    bench.cluster.change(JOB, mood=mood)
    bench.worker = bench.new_worker()
    bench.work()
    assert bench.state == ("refused" if mood else "applied")
    assert bench.job()["gpus"] == ("4" if mood else "2")
    assert len(sendings(bench)) == (1 if mood else 2)


def sendings(bench: Bench) -> list[str]:
    """The first step, each time that it was sent."""
    rows = bench.store.reader.journal(events=(str(Work.SENDING),))
    return [row.event for row in rows if row.step == 0]


def test_a_link_to_a_stop_file_that_is_out_of_reach_stops(bench: Bench) -> None:
    """As on a share that is not mounted: whether somebody stopped is then unknown."""
    (bench.folder / "STOP").symlink_to("/nonexistent/STOP")
    bench.approve()
    bench.ask()
    bench.work(visits=5)
    assert sent(bench) == []
    assert "it is a link" in bench.held


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


def test_a_change_begins_in_its_window(bench: Bench) -> None:
    """It waits with the time at which the window opens by the site's clock, and then goes on."""
    bench.set(window="Mon-Fri 22:00-06:00")
    bench.settings = replace(
        bench.settings, report=replace(bench.settings.report, timezone="Europe/Berlin")
    )
    bench.approve()
    bench.ask()
    bench.work(visits=2, until=lambda: bool(bench.held))
    assert sent(bench) == []
    assert "it opens on Mon 2026-01-05 22:00 CET" in bench.held
    bench.clock.at = datetime(2026, 1, 5, 20, 59, 50, tzinfo=UTC)
    bench.work()
    assert bench.state == "applied"
    begun = next(row.at for row in bench.store.reader.journal(events=(str(Work.SENDING),)))
    assert begun >= datetime(2026, 1, 5, 21, tzinfo=UTC)
    bench.clock.at = datetime(2026, 1, 6, 12, tzinfo=UTC)
    bench.roll_back()
    bench.work(until=lambda: bench.state == "rolled-back")
    assert bench.job()["gpus"] == "4"
    assert bench.clock().hour == 12


def test_a_window_that_closed_holds_what_is_prepared(bench: Bench) -> None:
    """Prepared in the window, stopped until it is over: nothing is sent before the next one."""
    bench.set(window="11:00-13:00")
    bench.approve()
    bench.ask()
    rehearse = type(bench.applier).rehearse
    path = bench.folder / "STOP"

    class StoppingApplier(type(bench.applier)):  # type: ignore[misc]
        def rehearse(self, change: Change) -> Rehearsal:
            found = rehearse(self, change)
            stop(path, by="Robin", reason="")
            return found

    plain, bench.applier = bench.applier, StoppingApplier(bench.cluster)
    bench.work(visits=3)
    assert "stopped by Robin" in bench.held
    bench.applier = plain
    bench.clock.at = NOW + timedelta(hours=2)
    resume(path)
    bench.work(visits=3)
    assert sent(bench) == []
    assert "it opens on Tue 2026-01-06 11:00 UTC" in bench.held


def test_a_window_that_opens_too_late_is_told_before_the_end(bench: Bench) -> None:
    """The recommendation expires before Saturday."""
    bench.set(window="Sat")
    bench.approve()
    bench.ask()
    bench.work(visits=2, until=lambda: bool(bench.held))
    assert "after the recommendation expires" in bench.held
    bench.clock.forward(days=3)
    bench.work()
    assert (bench.state, sent(bench)) == ("refused", [])


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


def test_a_saving_below_the_minimum_is_refused(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """48 GPU-hours are not worth it when a hundred are asked."""
    monkeypatch.setattr(guards, "MIN_GPU_HOURS", 100.0)
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
        approvals.approve(bench.store, bench.digest, by="search", now=bench.clock(), access=access)
    approvals.approve(bench.store, bench.digest, by="Robin", now=bench.clock(), access=access)
