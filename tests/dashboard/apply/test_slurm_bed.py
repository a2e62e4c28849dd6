"""A real Slurm 22.05: changes arrive as approved, or end as designed."""

import re
from datetime import UTC, datetime

import pytest
from beds.slurm import SlurmBed
from beds.slurm_apply import (
    applier_of,
    ends_as_measured,
    full,
    prepared,
    proposal,
    run_steps,
    running,
    settled,
    shown,
    waiting,
)
from beds.steps import send_step
from factories import make_job

from data.base.errors import ChangeRefusedError, StalePlanError
from data.facts.jobs import JobState, Platform, SchedulerFacts
from data.records.actions import Action
from data.records.changes import StepOutcome, VerificationResult
from data.records.plans import Configuration

pytestmark = pytest.mark.slurm


@pytest.mark.parametrize("mode", ["commands", "rest"])
def test_a_waiting_job_asks_for_fewer_gpus(bed: SlurmBed, mode: str) -> None:
    """Gres of a waiting job changes, is read back after a scheduling pass, and changes back."""
    full(bed)
    job = waiting(bed, "-N2", "--gres=gpu:h100:4")
    applier = applier_of(bed, mode)
    change = prepared(applier, proposal(job, 8, 4))
    assert [step.text for step in change.steps] == [f"scontrol update JobId={job} Gres=gpu:h100:2"]
    assert applier.rehearse(change).refusals == ()
    assert [step.outcome for step in run_steps(applier, change)] == [StepOutcome.DONE]
    assert settled(bed, applier, change).seen is VerificationResult.AS_INTENDED
    back = applier.change_back(change, applier.look_again(change))
    assert [step.text for step in back.steps] == [f"scontrol update JobId={job} Gres=gpu:h100:4"]
    run_steps(applier, back)
    assert settled(bed, applier, back).seen is VerificationResult.AS_INTENDED
    assert re.search(r"TresPerNode=gres[:/]gpu:h100:4", shown(bed, job))
    again = applier.change_back(back, applier.look_again(back))
    assert [step.after for step in again.steps] == ["gpu:h100:2"]


@pytest.mark.parametrize("mode", ["commands", "rest"])
def test_several_fields_change_while_the_job_is_held(bed: SlurmBed, mode: str) -> None:
    """One GPU of eight needs one node: held, two updates, released; then it starts with one."""
    holder = full(bed)
    job = waiting(bed, "-N2", "--gres=gpu:h100:4")
    applier = applier_of(bed, mode)
    change = prepared(applier, proposal(job, 8, 1))
    assert [(step.verb, step.field) for step in change.steps] == [
        ("hold", "Hold"),
        ("update", "NumNodes"),
        ("update", "Gres"),
        ("release", "Hold"),
    ]
    assert {step.outcome for step in run_steps(applier, change)} == {StepOutcome.DONE}
    assert settled(bed, applier, change).seen is VerificationResult.AS_INTENDED
    bed.run("scancel", holder)
    bed.until("it runs", lambda: bed.states().get(job) == "RUNNING")
    seen = applier.read_back(change, done=len(change.steps))
    assert (seen.seen, seen.detail) == (
        VerificationResult.AS_INTENDED,
        "the job is RUNNING with 1 GPUs",
    )


def test_a_change_that_stops_half_way_is_taken_back_whole(bed: SlurmBed) -> None:
    """Held and one field set, then refused: the way back restores the field and lets the job go."""
    full(bed)
    job = waiting(bed, "-N2", "--gres=gpu:h100:4")
    applier = applier_of(bed)
    change = prepared(applier, proposal(job, 8, 1))
    for step in change.steps[:2]:
        assert send_step(applier, step, change).outcome is StepOutcome.DONE
    assert applier.read_back(change, done=3).seen is VerificationResult.UNTOUCHED
    back = applier.change_back(change, applier.look_again(change))
    assert [(step.verb, step.after) for step in back.steps] == [
        ("update", "2-2"),
        ("update", "gpu:h100:4"),
        ("release", "no"),
    ]
    assert {result.outcome for result in run_steps(applier, back)} == {StepOutcome.DONE}
    assert settled(bed, applier, back).seen is VerificationResult.AS_INTENDED
    assert applier.look_again(change).state == change.target.state


@pytest.mark.parametrize("mode", ["commands", "rest"])
@pytest.mark.parametrize("asked", [("--gpus=h100:4",), ("--gpus=4",), ("-n4", "--gpus-per-task=1")])
def test_what_the_environment_of_the_script_keeps_is_refused(
    bed: SlurmBed, mode: str, asked: tuple[str, ...]
) -> None:
    """A step of the script would ask for the old number (measured, 22.05)."""
    job = waiting(bed, "-H", *asked)
    with pytest.raises(ChangeRefusedError, match="which its script's environment keeps"):
        prepared(applier_of(bed, mode), proposal(job, 4, 2))


@pytest.mark.parametrize("mode", ["commands", "rest"])
def test_a_gpu_type_changes_only_where_that_takes_effect(bed: SlurmBed, mode: str) -> None:
    """22.05 keeps the old type in the request, and the job never starts."""
    holder = full(bed)
    job = waiting(bed, "--gres=gpu:h100:2")
    smaller = proposal(
        job,
        2,
        2,
        action=Action.SMALLER_GPU,
        proposed=Configuration(gpu_model="A100-SXM4-80GB", gpu_count=2),
    )
    refusal = r"Slurm 22\.05 cannot change a GPU type"
    ends_as_measured(bed, mode, smaller, refusal=refusal, until_it_runs=holder)


def test_a_job_that_starts_meanwhile_is_refused(bed: SlurmBed) -> None:
    """The normal race: looked at while it waited, started before the command."""
    holder = full(bed)
    job = waiting(bed, "--gres=gpu:h100:4")
    applier = applier_of(bed)
    change = prepared(applier, proposal(job, 4, 2))
    several = prepared(applier, proposal(job, 4, 2, details=(("features", "nvlink"),)))
    bed.run("scancel", holder)
    bed.until("it runs", lambda: bed.states().get(job) == "RUNNING")
    for item in (change, several):
        answer = run_steps(applier, item)
        assert [entry.outcome for entry in answer] == [StepOutcome.REFUSED]
        assert "started meanwhile" in answer[0].detail
        assert applier.read_back(item, done=1).seen is VerificationResult.UNTOUCHED
    assert "Priority=0" not in shown(bed, job)


def test_slurm_itself_refuses_a_running_job_with_the_reason(bed: SlurmBed) -> None:
    """2073 between our look and the command: nothing changed, and the words say why."""
    job = running(bed, "--gres=gpu:h100:4")
    applier = applier_of(bed)
    answer = applier._client().send(
        {"argv": ["scontrol", "update", f"JobId={job}", "Gres=gpu:h100:2"]}
    )
    assert answer.words.startswith("the job started meanwhile (Job is no longer pending execution")


def test_what_no_node_has_is_refused_before_it_is_sent(bed: SlurmBed) -> None:
    """Slurm would take gpu:h100:9 with return code 0 and leave the job stuck."""
    full(bed)
    job = waiting(bed, "--gres=gpu:h100:4")
    applier = applier_of(bed)
    change = prepared(applier, proposal(job, 4, 9, action=Action.SCALE_OUT))
    assert "BadConstraints" in applier.rehearse(change).refusals[0]


def test_bad_constraints_are_seen_and_undone(bed: SlurmBed) -> None:
    """A change that sticks is told as failing; the way back frees the job."""
    full(bed)
    job = waiting(bed, "--gres=gpu:h100:4")
    applier = applier_of(bed)
    change = prepared(applier, proposal(job, 4, 9, action=Action.SCALE_OUT))
    run_steps(applier, change)
    seen = settled(bed, applier, change)
    assert (seen.seen, seen.detail) == (
        VerificationResult.FAILING,
        "the job never starts like this: Reason=BadConstraints",
    )
    back = applier.change_back(change, applier.look_again(change))
    run_steps(applier, back)
    assert settled(bed, applier, back).seen is VerificationResult.AS_INTENDED
    assert "Priority=0" not in shown(bed, job)


def test_one_task_of_an_array_changes_alone(bed: SlurmBed) -> None:
    """A task with a record of its own is addressed as J_n; the others stay."""
    full(bed)
    array = waiting(bed, "--array=0-3", "--gres=gpu:h100:2")
    bed.run("scontrol", "update", f"JobId={array}_2", "TimeLimit=30")
    task = bed.run("squeue", "-h", "-j", f"{array}_2", "-o", "%A")
    applier = applier_of(bed)
    change = prepared(applier, proposal(task, 2, 1))
    assert change.steps[0].target == f"{array}_2"
    assert [step.outcome for step in run_steps(applier, change)] == [StepOutcome.DONE]
    assert "gpu:h100:2" in shown(bed, f"{array}_3")
    assert re.search(r"TresPerNode=gres[:/]gpu:h100:1", shown(bed, f"{array}_2"))


def test_the_waiting_tasks_of_an_array_change_together(bed: SlurmBed) -> None:
    """One record stands for them: one command changes them all."""
    full(bed)
    array = waiting(bed, "--array=0-3%2", "--gres=gpu:h100:2")
    applier = applier_of(bed)
    change = prepared(applier, proposal(array, 2, 1))
    assert change.steps[0].target == f"{array}_[0-3]"
    assert [step.outcome for step in run_steps(applier, change)] == [StepOutcome.DONE]
    assert settled(bed, applier, change).seen is VerificationResult.AS_INTENDED
    with pytest.raises(ChangeRefusedError, match="tasks of an array"):
        prepared(applier_of(bed, "rest"), proposal(array, 1, 2, action=Action.SCALE_OUT))
    named = (("features", "nvlink"),)
    several = prepared(applier, proposal(array, 1, 2, action=Action.SCALE_OUT, details=named))
    assert [step.outcome for step in run_steps(applier, several)] == [StepOutcome.DONE] * 4
    assert settled(bed, applier, several).seen is VerificationResult.AS_INTENDED


@pytest.mark.parametrize("mode", ["commands", "rest"])
@pytest.mark.parametrize("gets", [0, 1])
def test_a_job_in_another_state_than_the_plan_saw_is_refused(
    bed: SlurmBed, mode: str, gets: int
) -> None:
    """One that was suspended, or held, in between: somebody has plans of their own with it."""
    applier = applier_of(bed, mode, allow_requeue=True)
    job = running(bed, "--gres=gpu:h100:2")
    action = Action.FEWER_GPUS if gets else Action.RECLAIM
    wanted = proposal(job, 2, gets, action=action)
    submitted = datetime.fromisoformat(bed.run("squeue", "-h", "-j", job, "-o", "%V"))
    seen = SchedulerFacts(state=JobState.RUNNING, submitted_at=submitted.astimezone(UTC))
    as_planned = make_job(f"slurm:{job}", platform=Platform.SLURM, scheduler=seen)
    assert applier.look(wanted, job=as_planned, gpus=()).name == f"slurm:{job}"
    bed.run("scontrol", "suspend", job)
    with pytest.raises(StalePlanError, match="is suspended now, the plan saw it running"):
        applier.look(wanted, job=as_planned, gpus=())
    assert bed.states()[job] == "SUSPENDED"
    bed.run("scontrol", "resume", job)


def test_a_suspended_job_keeps_its_gpus(bed: SlurmBed) -> None:
    """So plans count them as held: another job gets its CPUs, and GPUs only once it is gone."""
    there, gpus = "--nodelist=h1", "--gres=gpu:h100:4"
    holder = running(bed, there, gpus)
    bed.run("scontrol", "suspend", holder)
    bare = bed.submit(there)
    bed.until("a job without GPUs runs there", lambda: bed.states()[bare] == "RUNNING")
    wants = bed.submit(there, gpus)
    bed.until("why it waits is told", lambda: "Resources" in bed.run("squeue", "-h", "-o", "%r"))
    assert bed.states()[holder] == "SUSPENDED"
    assert bed.states()[wants] == "PENDING"
    bed.run("scancel", holder)
    bed.until("the GPUs are given on", lambda: bed.states()[wants] == "RUNNING")


def test_an_array_of_which_some_run_is_refused(bed: SlurmBed) -> None:
    """One command would reach the tasks that wait and leave those that run."""
    array = bed.submit("--array=0-3%1", "--gres=gpu:h100:2")
    bed.until("one runs", lambda: "RUNNING" in bed.states().values())
    bed.until("one record waits", lambda: f"{array}_1" in bed.states())
    with pytest.raises(ChangeRefusedError, match="array"):
        prepared(applier_of(bed), proposal(array, 2, 1))


def test_a_running_task_is_cancelled_by_its_place_in_the_array(bed: SlurmBed) -> None:
    """22.05 answers `scancel` of a task's raw number with 0 and does nothing."""
    array = bed.submit("--array=0-2%1", "--gres=gpu:h100:2")
    bed.until("one runs", lambda: bed.states().get(f"{array}_0") == "RUNNING")
    task = bed.run("squeue", "-h", "-t", "R", "-j", array, "-o", "%A")
    applier = applier_of(bed)
    nothing = Configuration(gpu_model="H100-SXM5-80GB", gpu_count=0)
    change = prepared(applier, proposal(task, 2, 0, action=Action.RECLAIM, proposed=nothing))
    assert change.steps[0].text == f"scancel {array}_0"
    assert [step.outcome for step in run_steps(applier, change)] == [StepOutcome.DONE]
    assert settled(bed, applier, change).seen is VerificationResult.AS_INTENDED
    bed.until("the next runs", lambda: bed.states().get(f"{array}_1") == "RUNNING")


def test_a_cancelled_or_unknown_job_is_stale(bed: SlurmBed) -> None:
    """What has ended is not changed, and no other job of that number either."""
    job = running(bed, "--gres=gpu:h100:1")
    bed.run("scancel", job)
    bed.until("it is over", lambda: bed.states().get(job) == "CANCELLED")
    for number in (job, "999999"):
        with pytest.raises(StalePlanError):
            prepared(applier_of(bed), proposal(number, 1, 1))


def test_het_jobs_are_refused(bed: SlurmBed) -> None:
    """Components start and end together: no change of one of them is made."""
    job = bed.submit("--hold", "--gres=gpu:h100:2", ":", "--gres=gpu:h100:1")
    with pytest.raises(ChangeRefusedError, match="heterogeneous"):
        prepared(applier_of(bed), proposal(job, 2, 1))
