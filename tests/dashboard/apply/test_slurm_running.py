"""A real Slurm 22.05: jobs that run are cut, requeued, limited or shifted, and nodes drained."""

import time
from dataclasses import replace
from datetime import timedelta

import pytest
from beds.slurm import SlurmBed
from beds.slurm_apply import (
    applier_of,
    ends_as_measured,
    full,
    nodes_answer,
    prepared,
    proposal,
    run_steps,
    running,
    settled,
    shown,
    waiting,
)

from data.base.clock import utc_now
from data.base.errors import ChangeRefusedError, StalePlanError
from data.records.actions import Action
from data.records.changes import StepOutcome, VerificationResult
from data.records.plans import Configuration

pytestmark = pytest.mark.slurm


@pytest.mark.parametrize("mode", ["commands", "rest"])
def test_an_idle_job_is_reclaimed_once_and_for_all(bed: SlurmBed, mode: str) -> None:
    """Cancelled, verified, and no way back is offered."""
    job = running(bed, "--gres=gpu:h100:2")
    applier = applier_of(bed, mode)
    nothing = Configuration(gpu_model="H100-SXM5-80GB", gpu_count=0)
    change = prepared(applier, proposal(job, 2, 0, action=Action.RECLAIM, proposed=nothing))
    assert change.undo == ()
    assert "Warn the owner first" in change.notes[0]
    assert [step.outcome for step in run_steps(applier, change)] == [StepOutcome.DONE]
    assert settled(bed, applier, change).seen is VerificationResult.AS_INTENDED
    with pytest.raises(StalePlanError):
        applier.look_again(change)


def test_a_running_job_gives_back_a_node(bed: SlurmBed) -> None:
    """Its GPUs are free at once, the batch host stays, and Slurm cannot give them back."""
    job = running(bed, "-N2", "--gres=gpu:h100:2")
    applier = applier_of(bed)
    change = prepared(applier, proposal(job, 4, 2))
    assert [step.text for step in change.steps] == [f"scontrol update JobId={job} NumNodes=1"]
    assert change.undo == ()
    assert [step.outcome for step in run_steps(applier, change)] == [StepOutcome.DONE]
    seen = applier.read_back(change, done=1)
    assert (seen.seen, seen.detail) == (
        VerificationResult.AS_INTENDED,
        "the job is RUNNING with 2 GPUs",
    )
    assert "NodeList=h1" in shown(bed, job)
    assert "BatchHost=h1" in shown(bed, job)
    with pytest.raises(ChangeRefusedError, match="cannot change the GPUs of a job that runs"):
        applier.change_back(change, applier.look_again(change))


def test_slurmrestd_shrinks_a_running_job_only_from_its_newer_versions_on(bed: SlurmBed) -> None:
    """v0.0.38 answers {"nodes": [1, 1]} with 200 and does nothing: it is not even tried."""
    job = running(bed, "-N2", "--gres=gpu:h100:2")
    several = proposal(job, 4, 2)
    ends_as_measured(bed, "rest", several, refusal="no way to requeue", until_it_runs="999999")


@pytest.mark.parametrize("mode", ["commands", "rest"])
def test_slurmrestd_drains_nodes_only_from_its_newer_versions_on(bed: SlurmBed, mode: str) -> None:
    """v0.0.38 has no way to change a node; the commands always have."""
    applier = applier_of(bed, mode)
    job = running(bed, "--gres=gpu:h100:1")
    emptied = proposal(job, 1, 1, action=Action.CONSOLIDATE, details=(("node", "a1"),))
    if mode == "rest" and bed.plan.version < (24, 11):
        with pytest.raises(ChangeRefusedError, match="cannot change nodes"):
            prepared(applier, emptied)
        return
    change = prepared(applier, emptied)
    assert [step.outcome for step in run_steps(applier, change)] == [StepOutcome.DONE]
    back = applier.change_back(change, applier.look_again(change))
    assert [step.outcome for step in run_steps(applier, back)] == [StepOutcome.DONE]


@pytest.mark.slow
def test_a_running_job_is_requeued_only_with_consent(bed: SlurmBed) -> None:
    """Without apply_slurm.allow_requeue it is refused; with it, it starts again with fewer GPUs."""
    job = running(bed, "--gres=gpu:h100:4")
    with pytest.raises(ChangeRefusedError, match="allow_requeue"):
        prepared(applier_of(bed), proposal(job, 4, 2))
    applier = applier_of(bed, allow_requeue=True)
    change = prepared(applier, proposal(job, 4, 2))
    assert [step.verb for step in change.steps] == ["requeuehold", "wait", "update", "release"]
    assert "last checkpoint" in change.notes[0]
    assert {step.outcome for step in run_steps(applier, change)} == {StepOutcome.DONE}
    bed.until("it runs again", lambda: bed.states().get(job) == "RUNNING")
    seen = applier.read_back(change, done=len(change.steps))
    assert (seen.seen, seen.detail) == (
        VerificationResult.AS_INTENDED,
        "the job is RUNNING with 2 GPUs",
    )
    again = applier.look_again(change)
    assert again.identity == change.target.identity
    back = applier.change_back(change, again)
    assert [step.verb for step in back.steps] == ["requeuehold", "wait", "update", "release"]
    assert {step.outcome for step in run_steps(applier, back)} == {StepOutcome.DONE}
    bed.until("it runs again", lambda: bed.states().get(job) == "RUNNING")
    assert applier.read_back(back, done=4).detail == "the job is RUNNING with 4 GPUs"


def test_a_job_whose_gpus_others_hold_now_is_not_requeued(bed: SlurmBed) -> None:
    """Nobody waits in the queue, and yet the way back would stop a run that cannot start again."""
    job = running(bed, "--gres=gpu:h100:4")
    applier = applier_of(bed, allow_requeue=True)
    change = prepared(applier, proposal(job, 4, 2))
    assert applier.rehearse(change).refusals == ()
    assert {step.outcome for step in run_steps(applier, change)} == {StepOutcome.DONE}
    bed.until("it runs again", lambda: bed.states().get(job) == "RUNNING")
    others = [running(bed, "-w", node, "--gres=gpu:h100:2") for node in ("h1", "h2")]
    back = applier.change_back(change, applier.look_again(change))
    refusals = applier.rehearse(back).refusals
    assert "1 node(s) with 4 free GPU(s) are needed, 0 have them" in "; ".join(refusals)
    allowed = applier_of(bed, allow_requeue=True, requeue_behind_others=True).rehearse(back)
    assert allowed.refusals == ()
    assert "would wait for others to end" in "; ".join(allowed.warnings)
    bed.run("scancel", others[0])
    bed.until("it ended", lambda: bed.states().get(others[0]) == "CANCELLED")
    assert applier.rehearse(back).refusals == ()


@pytest.mark.parametrize("reason", ["fan", "trimtab TT-7"])
def test_a_job_leaves_a_node_that_trimtab_empties(bed: SlurmBed, reason: str) -> None:
    """Where another node has room for it; a node that its administrator closed says nothing."""
    job = running(bed, "--gres=gpu:h100:4")
    own = bed.run("squeue", "-h", "-j", job, "-o", "%N")
    applier = applier_of(bed, allow_requeue=True)
    change = prepared(applier, proposal(job, 4, 2))
    bed.run("scontrol", "update", f"NodeName={own}", "State=DRAIN", f"Reason={reason}")
    try:
        refusals = applier.rehearse(change).refusals
        assert any(f"{own} takes no jobs" in text for text in refusals) == (reason == "fan")
        if reason != "fan":
            assert refusals == ()
            (other,) = {"h1", "h2"} - {own}
            running(bed, "-w", other, "--gres=gpu:h100:3")
            assert "0 have them" in "; ".join(applier.rehearse(change).refusals)
    finally:
        bed.run("scontrol", "update", f"NodeName={own}", "State=RESUME")


@pytest.mark.parametrize("starts", ["now", "now+30minutes", "now+3hours"])
def test_gpus_of_a_reservation_are_not_free_for_others(bed: SlurmBed, starts: str) -> None:
    """The way back finds room on reserved nodes alone: it would wait until that is over."""
    job = running(bed, "--gres=gpu:h100:4", "--time=60")
    applier = applier_of(bed, allow_requeue=True)
    change = prepared(applier, proposal(job, 4, 2))
    assert {step.outcome for step in run_steps(applier, change)} == {StepOutcome.DONE}
    bed.until("it runs again", lambda: bed.states().get(job) == "RUNNING")
    own = bed.run("squeue", "-h", "-j", job, "-o", "%N")
    running(bed, "-w", own, "--gres=gpu:h100:2")
    back = applier.change_back(change, applier.look_again(change))
    assert applier.rehearse(back).refusals == ()
    others = ",".join({"h1", "h2"} - {own})
    bed.run(
        "scontrol", "create", "reservation", "ReservationName=course", f"StartTime={starts}",
        "Duration=600", f"Nodes={others}", "Users=root", "Flags=IGNORE_JOBS",
    )  # fmt: skip
    try:
        refusals = applier.rehearse(back).refusals
        reaches = starts != "now+3hours"
        assert ["1 node(s) with 4 free GPU(s) are needed" in text for text in refusals] == (
            [True] * reaches
        )
    finally:
        bed.run("scontrol", "delete", "ReservationName=course")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("close", "opened", "said"),
    [
        (["PartitionName=gpu", "State=DOWN"], ["PartitionName=gpu", "State=UP"], "gpu is DOWN"),
        (["PartitionName=gpu", "State=INACTIVE"], ["PartitionName=gpu", "State=UP"], "INACTIVE"),
        (["PartitionName=gpu", "State=DRAIN"], ["PartitionName=gpu", "State=UP"], ""),
        (
            ["NodeName=h1,h2", "State=DRAIN", "Reason=fan"],
            ["NodeName=h1,h2", "State=RESUME"],
            "only 0 of the 1",
        ),
        (
            ["NodeName=h1", "State=DRAIN", "Reason=fan"],
            ["NodeName=h1", "State=RESUME"],
            "h1 takes no jobs",
        ),
        (
            ["PartitionName=gpu", "MaxTime=00:15:00"],
            ["PartitionName=gpu", "MaxTime=UNLIMITED"],
            "gpu takes jobs of 0.25 h at most",
        ),
    ],
)
def test_a_job_that_could_not_start_again_is_not_requeued(
    bed: SlurmBed, close: list[str], opened: list[str], said: str
) -> None:
    """Its run would be lost for nothing: Slurm requeues it all the same."""
    nodes_answer(bed)
    job = running(bed, "--gres=gpu:h100:4")
    applier = applier_of(bed, allow_requeue=True)
    change = prepared(applier, proposal(job, 4, 2))
    assert applier.rehearse(change).refusals == ()
    bed.run("scontrol", "update", *close)
    try:
        refusals = applier.rehearse(change).refusals
    finally:
        bed.run("scontrol", "update", *opened)
    assert bool(refusals) is bool(said)
    assert said in "; ".join(refusals)
    nodes_answer(bed)


def test_a_job_requeued_by_others_is_stale(bed: SlurmBed) -> None:
    """Its submit time is another: the plan was made for its earlier life."""
    job = running(bed, "--gres=gpu:h100:4")
    applier = applier_of(bed, allow_requeue=True)
    recommendation = proposal(job, 4, 2, created_at=utc_now())
    change = prepared(applier, recommendation)
    time.sleep(1.1)
    bed.run("scontrol", "requeue", job)
    bed.until("it runs again", lambda: bed.states().get(job) == "RUNNING")
    answer = applier.execute(change.steps[0], change)
    assert answer.outcome is StepOutcome.REFUSED
    with pytest.raises(StalePlanError, match="submitted or requeued"):
        prepared(applier, recommendation)


@pytest.mark.parametrize("mode", ["commands", "rest"])
def test_a_time_limit_is_lowered_while_the_job_runs(bed: SlurmBed, mode: str) -> None:
    """The limit goes down and comes back; it never goes up by a recommendation."""
    job = running(bed, "--gres=gpu:h100:1", "-t", "60")
    applier = applier_of(bed, mode)
    details = (("time_limit_seconds", "1150"),)
    shorter = proposal(job, 1, 1, action=Action.TIME_LIMIT, details=details)
    change = prepared(applier, shorter)
    assert [step.text for step in change.steps] == [f"scontrol update JobId={job} TimeLimit=20"]
    assert [step.outcome for step in run_steps(applier, change)] == [StepOutcome.DONE]
    assert applier.read_back(change, done=1).seen is VerificationResult.AS_INTENDED
    back = applier.change_back(change, applier.look_again(change))
    assert [step.outcome for step in run_steps(applier, back)] == [StepOutcome.DONE]
    assert "TimeLimit=01:00:00" in shown(bed, job)
    longer = replace(shorter, details=(("time_limit_seconds", "7200"),))
    with pytest.raises(ChangeRefusedError, match="only ever lowered"):
        prepared(applier, longer)


@pytest.mark.parametrize("mode", ["commands", "rest"])
def test_a_waiting_job_starts_later(bed: SlurmBed, mode: str) -> None:
    """StartTime is set in UTC whatever the zone, and taken back."""
    full(bed)
    job = waiting(bed, "--gres=gpu:h100:1")
    applier = applier_of(bed, mode)
    begin = (utc_now() + timedelta(hours=3)).replace(microsecond=0)
    details = (("begin_at", begin.isoformat()),)
    change = prepared(applier, proposal(job, 1, 1, action=Action.SHIFT_IN_TIME, details=details))
    assert applier.rehearse(change).refusals == ()
    assert [step.outcome for step in run_steps(applier, change)] == [StepOutcome.DONE]
    seen = settled(bed, applier, change)
    assert (seen.seen, seen.detail) == (
        VerificationResult.AS_INTENDED,
        "the job waits: Reason=BeginTime",
    )
    back = applier.change_back(change, applier.look_again(change))
    assert [step.outcome for step in run_steps(applier, back)] == [StepOutcome.DONE]
    assert settled(bed, applier, back).seen is VerificationResult.AS_INTENDED


def test_a_node_is_drained_and_resumed_by_us_alone(bed: SlurmBed) -> None:
    """Running jobs stay; a drain that somebody else made is not taken back."""
    job = running(bed, "-w", "h2", "--gres=gpu:h100:1")
    applier = applier_of(bed)
    emptied = proposal(job, 1, 1, action=Action.CONSOLIDATE, details=(("node", "h2"),))
    change = prepared(applier, emptied)
    assert [step.outcome for step in run_steps(applier, change)] == [StepOutcome.DONE]
    found = applier.read_back(change, done=1)
    assert found.seen is VerificationResult.AS_INTENDED
    assert found.detail.startswith("the node takes no new jobs (drain, reason trimtab ")
    assert bed.states()[job] == "RUNNING"
    with pytest.raises(StalePlanError, match="out of service already"):
        prepared(applier, emptied)
    bed.run("scontrol", "update", "NodeName=h2", "State=DRAIN", "Reason=broken fan")
    with pytest.raises(StalePlanError, match="broken fan"):
        applier.change_back(change, applier.look_again(change))
    bed.run("scontrol", "update", "NodeName=h2", "State=RESUME")
    run_steps(applier, change)
    back = applier.change_back(change, applier.look_again(change))
    assert [step.outcome for step in run_steps(applier, back)] == [StepOutcome.DONE]
    assert "DRAIN" not in bed.run("scontrol", "show", "node", "h2")


@pytest.mark.parametrize("mode", ["commands", "rest"])
@pytest.mark.parametrize(
    ("node", "earlier_plan", "taken"),
    [("h2", True, False), ("h2", False, True), ("h1", True, True)],
)
def test_a_node_that_got_a_job_since_the_plan_is_not_drained(
    bed: SlurmBed, mode: str, node: str, earlier_plan: bool, taken: bool
) -> None:
    """A job elsewhere, or one that ran there when the plan was made, is no reason against it."""
    asked_at = utc_now()
    job = running(bed, "-w", "h2", "--gres=gpu:h100:1")
    planned_at = asked_at - timedelta(seconds=2) if earlier_plan else utc_now()
    emptied = proposal(
        job, 1, 1, action=Action.CONSOLIDATE, details=(("node", node),), created_at=planned_at
    )
    if taken:
        assert applier_of(bed, mode).look(emptied, job=None, gpus=()).name == node
        return
    with pytest.raises(StalePlanError, match=rf"started there after the plan of .*: {job}\b"):
        applier_of(bed, mode).look(emptied, job=None, gpus=())
