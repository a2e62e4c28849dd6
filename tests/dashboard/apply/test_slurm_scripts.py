"""Jobs whose script asks for what the job has now: told before, and seen when it fails after."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from beds.slurm import SlurmBed
from beds.slurm_apply import applier_of, prepared, proposal, run_steps, settled
from factories import make_job

from data.base.errors import ChangeRefusedError, StalePlanError
from data.facts.jobs import JobState, Platform, SchedulerFacts
from data.records.changes import StepOutcome, VerificationResult

pytestmark = pytest.mark.slurm


def running(bed: SlurmBed, script: str, *options: str) -> str:
    """Return a job of two GPUs that runs a script."""
    job = bed.run("sbatch", "--parsable", "--requeue", "-o/dev/null", "--gres=gpu:h100:2",
                  *options, f"--wrap={script}")  # fmt: skip
    bed.until("the job runs", lambda: bed.states().get(job) == "RUNNING")
    bed.until(
        "accounting knows it", lambda: bool(bed.run("sacct", "-nXj", job, "-oSubmitLine").strip())
    )
    return job


@pytest.mark.parametrize(
    ("script", "named"),
    [
        ("srun --gres=gpu:h100:2 sleep 600", "--gres=gpu:h100:2"),
        ("export WORLD_SIZE=2; sleep 600", "WORLD_SIZE=2"),
        ("mpirun() { sleep 600; }; mpirun -np $((1+1)) ./a", "mpirun -np 2"),
        ("sleep 600 # {}", ""),
    ],
)
def test_a_script_that_names_more_gpus_is_refused(bed: SlurmBed, script: str, named: str) -> None:
    """Its step would ask for more than the job has, and fail (22.05)."""
    job = running(bed, script)
    applier = applier_of(bed, allow_requeue=True)
    rehearsal = applier.rehearse(prepared(applier, proposal(job, 2, 1)))
    assert [f"{named!r}" in text for text in rehearsal.refusals] == [True] * bool(named)


def test_gpus_for_each_task_are_counted(bed: SlurmBed) -> None:
    """Two tasks on a node with one GPU each are two GPUs, as srun asks for them (22.05)."""
    job = running(bed, "srun --gpus-per-task=1 sleep 600", "--ntasks-per-node=2")
    applier = applier_of(bed, allow_requeue=True)
    (refusal,) = applier.rehearse(prepared(applier, proposal(job, 2, 1))).refusals
    assert "'--gpus-per-task=1'" in refusal
    plain = running(bed, "sleep 600", "--ntasks-per-node=2")
    rehearsal = applier.rehearse(prepared(applier, proposal(plain, 2, 1)))
    assert rehearsal.refusals == ()
    assert any("2 tasks on a node and would have 1 GPU" in text for text in rehearsal.warnings)


@pytest.mark.parametrize("fails", [True, False])
def test_gpus_that_the_environment_asked_for_are_not_changed(
    bed: SlurmBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: bool
) -> None:
    """SBATCH_GPUS_PER_NODE is --gpus-per-node: with fewer GPUs `srun` in the script fails (22.05).

    Slurm shows nobody what the environment asked for, only that nothing else did.
    """
    log = tmp_path / "log"
    asked = [] if fails else ["--gres=gpu:h100:2"]
    if fails:
        monkeypatch.setitem(bed.environment, "SBATCH_GPUS_PER_NODE", "h100:2")
    job = bed.run(
        "sbatch", "--parsable", "--requeue", f"--output={log}", *asked,
        "--wrap=srun true && echo works; sleep 600",
    )  # fmt: skip
    monkeypatch.undo()
    bed.until("it runs", lambda: bed.states().get(job) == "RUNNING")
    bed.until(
        "accounting knows it", lambda: bool(bed.run("sacct", "-nXj", job, "-oSubmitLine").strip())
    )
    applier = applier_of(bed, allow_requeue=True)
    change = prepared(applier, proposal(job, 2, 1))
    refusals = applier.rehearse(change).refusals
    assert ["asks for GPUs" in text for text in refusals] == [True] * fails
    bed.until("its step ended", lambda: "works" in log.read_text())
    run_steps(applier, change)
    bed.until(
        "it ran again", lambda: log.exists() and log.read_text() != "" and restarted(bed, job)
    )
    bed.until("its step ended", lambda: ("works" in log.read_text()) is not fails)


def restarted(bed: SlurmBed, job: str) -> bool:
    """Whether a job runs for the second time."""
    return (
        "Restarts=1" in bed.run("scontrol", "show", "job", job) and bed.states()[job] == "RUNNING"
    )


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--cpus-per-gpu=2",), "1 GPU(s) have 2 CPUs, but Slurm may leave the job those"),
        (("--mem-per-gpu=1G",), "by --mem-per-gpu the job has 1 GiB of host memory with 1 GPU"),
        (("--mem=1G",), ""),
    ],
)
def test_what_follows_the_number_of_gpus_is_told(
    bed: SlurmBed, options: tuple[str, ...], told: str
) -> None:
    """Half the GPUs are half the host memory, of which the run may need all; CPUs stay (22.05)."""
    job = running(bed, "sleep 600", *options)
    applier = applier_of(bed, allow_requeue=True)
    if "--cpus-per-gpu=2" in options and bed.plan.version > (22, 5):
        with pytest.raises(ChangeRefusedError, match="keep it waiting for Resources"):
            prepared(applier, proposal(job, 2, 1))
        return
    change = prepared(applier, proposal(job, 2, 1))
    rehearsal = applier.rehearse(change)
    assert rehearsal.refusals == ()
    warnings = [text for text in rehearsal.warnings if "output files" not in text]
    assert [told in text for text in warnings] == [True] * bool(told)
    assert {step.outcome for step in run_steps(applier, change)} == {StepOutcome.DONE}
    bed.until("it ran again", lambda: restarted(bed, job))
    held = bed.run("scontrol", "show", "job", job)
    if "--cpus-per-gpu=2" in options:
        assert "NumCPUs=4 " in held
    if "--mem-per-gpu=1G" in options:
        assert "mem=1G," in held


@pytest.mark.parametrize("options", [(), ("--open-mode=append",), ("--open-mode=truncate",)])
def test_output_that_a_requeue_empties_is_told_before(
    bed: SlurmBed, tmp_path: Path, options: tuple[str, ...]
) -> None:
    """Slurm opens the files of the next run as the submission says, or anew."""
    log = tmp_path / "log"
    job = running(bed, "echo run $SLURM_RESTART_COUNT.; sleep 600", f"--output={log}", *options)
    bed.until("it wrote", lambda: log.exists() and log.read_text() != "")
    applier = applier_of(bed, allow_requeue=True)
    change = prepared(applier, proposal(job, 2, 1))
    told = any("output files anew" in text for text in applier.rehearse(change).warnings)
    assert {step.outcome for step in run_steps(applier, change)} == {StepOutcome.DONE}
    bed.until("it wrote again", lambda: "run 1." in log.read_text())
    assert told == ("run ." not in log.read_text())


def test_a_job_that_fails_as_soon_as_it_starts_again_is_failing(bed: SlurmBed) -> None:
    """Set as it was sent, and of no use: that is not called applied."""
    job = running(bed, 'test "$SLURM_RESTART_COUNT" && exit 3; sleep 600')
    applier = applier_of(bed, allow_requeue=True)
    change = prepared(applier, proposal(job, 2, 1))
    assert {step.outcome for step in run_steps(applier, change)} == {StepOutcome.DONE}
    bed.until("it failed", lambda: bed.states().get(job) == "FAILED")
    seen = settled(bed, applier, change)
    assert seen.seen is VerificationResult.FAILING
    assert "(FAILED)" in seen.detail
    assert "submit it again" in seen.detail


def test_a_job_that_ends_sooner_than_the_plan_saw_is_refused(bed: SlurmBed) -> None:
    """Its owner shortened it after the approval: what was promised is no longer to be saved."""
    job = running(bed, "sleep 600", "--time=300")
    applier = applier_of(bed, allow_requeue=True)
    submitted = datetime.fromisoformat(bed.run("squeue", "-h", "-j", job, "-o", "%V"))
    seen = SchedulerFacts(
        state=JobState.RUNNING, submitted_at=submitted.astimezone(UTC), time_limit_seconds=18_000.0
    )
    as_planned = make_job(f"slurm:{job}", platform=Platform.SLURM, scheduler=seen)
    for minutes in (300, 400):
        bed.run("scontrol", "update", f"JobId={job}", f"TimeLimit={minutes}")
        assert applier.look(proposal(job, 2, 1), job=as_planned, gpus=())
    bed.run("scontrol", "update", f"JobId={job}", "TimeLimit=50")
    with pytest.raises(StalePlanError, match="limit of 50 min now, the plan saw 300 min"):
        applier.look(proposal(job, 2, 1), job=as_planned, gpus=())


@pytest.mark.parametrize("program", ["srun true", "true"])
def test_srun_after_nodes_are_given_up_is_refused(
    bed: SlurmBed, tmp_path: Path, program: str
) -> None:
    """The environment of the script keeps the old number of nodes, and srun fails on it (22.05)."""
    log, go = tmp_path / "log", tmp_path / "go"
    script = f"while ! test -e {go}; do sleep .2; done; {program} && echo works; sleep 600"
    sbatch = ("sbatch", "--parsable", "-N2", "--gres=gpu:h100:2", f"--output={log}")
    applier = applier_of(bed)
    if bed.plan.version > (22, 5):
        by_node = bed.run(*sbatch, "--ntasks-per-node=1", f"--wrap={script}")
        bed.until("it runs", lambda: bed.states().get(by_node) == "RUNNING")
        with pytest.raises(ChangeRefusedError, match="cannot change the GPUs of a job that runs"):
            prepared(applier, proposal(by_node, 4, 2))
        bed.run("scancel", by_node)
        job = bed.run(*sbatch, f"--wrap={script}")
    else:
        job = bed.run(*sbatch, "--ntasks-per-node=1", f"--wrap={script}")
    bed.until("it runs", lambda: bed.states().get(job) == "RUNNING")
    change = prepared(applier, proposal(job, 4, 2))
    assert [step.field for step in change.steps] == ["NumNodes"]
    refusals, fails = applier.rehearse(change).refusals, "srun" in program
    assert ["SLURM_JOB_NUM_NODES" in text for text in refusals] == [True] * fails
    assert {step.outcome for step in run_steps(applier, change)} == {StepOutcome.DONE}
    go.touch()
    bed.until("it has ended", lambda: log.exists() and log.read_text().strip() != "")
    assert ("works" in log.read_text()) is not fails
