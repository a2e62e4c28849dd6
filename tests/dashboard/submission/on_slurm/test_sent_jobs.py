"""A real Slurm: a job that names no GPU arrives with GPUs, is followed, and is sent again."""

import re
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from beds.slurm import SlurmBed
from beds.slurm_submission import followed, number_of, program, settings_of
from beds.submission import proposal_of, sent, target_of
from submission_cases import make_job

from collectors.shared.collector import Window
from collectors.slurm.jobs import slurm_collector
from dashboard.cli import main
from dashboard.submission.submit.submit import submit
from data.base.clock import utc_now
from data.base.errors import ApplyError, ChangeRefusedError, StoreError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.submissions import SubmissionState
from data.store import Store, open_store

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
TORCHRUN = """#!/bin/bash
printf '%s\\n' "$@" > "$TRIMTAB_DATA_PATH/words-$SLURM_PROCID"
env > "$TRIMTAB_DATA_PATH/environment-$SLURM_PROCID"
"""


def test_what_waits_sends_the_job_elsewhere_and_is_not_touched(bed: SlurmBed, store: Store) -> None:
    """One A100 is free and a job gathers two: the new one gets an H100, and says beside what."""
    settings = settings_of(bed)
    alone = proposal_of(make_job(), settings, store)
    assert alone.placement.plan.gpu_type.startswith("A100")
    holder = bed.submit("--gres=gpu:a100:1", "-J", "holder")
    bed.until("it runs", lambda: bed.states().get(holder) == "RUNNING")
    gatherer = bed.submit("--gres=gpu:a100:2", "-J", "gatherer", "-t", "60")
    bed.until("it waits", lambda: bed.run("squeue", "-h", "-j", gatherer, "-o", "%r") != "None")
    now = utc_now() + timedelta(seconds=1)
    window = Window(start=now - timedelta(hours=1), end=now)
    store.keep(slurm_collector(settings.slurm, load_gpu_catalogue()).collect(window))
    before = bed.run("scontrol", "show", "job", holder)
    submission = sent(make_job(launcher="none", command=["sleep", "60"]), settings, store)
    assert submission.latest.plan.gpu_type.startswith("H100")
    bed.until("it runs", lambda: bed.states().get(number_of(submission)) == "RUNNING")
    again = proposal_of(make_job(), settings, store)
    assert any(f"slurm:{gatherer} for 2 GPUs" in note for note in again.notes)
    assert bed.states()[gatherer] == "PENDING"
    after = bed.run("scontrol", "show", "job", holder)
    assert re.sub(r"RunTime=\S+", "", after) == re.sub(r"RunTime=\S+", "", before)


def test_a_job_without_gpus_arrives_with_the_right_gres(bed: SlurmBed, store: Store) -> None:
    """TinyLlama goes to the A100, the smallest GPU that takes it, with its share of CPUs."""
    settings = settings_of(bed)
    submission = sent(make_job(launcher="none", command=["sleep", "60"]), settings, store)
    shown = bed.run("scontrol", "show", "job", number_of(submission))
    plan = submission.latest.plan
    assert plan.gpu_type == "A100-SXM4-40GB"
    assert f"gpu:a100:{plan.gpus_per_node}" in shown
    assert f"NumNodes={plan.nodes}" in shown
    assert f"gres/gpu:a100={plan.gpus}" in shown
    assert f"Comment=trimtab:{submission.submission_id}:1" in shown
    bed.run("scancel", number_of(submission))


def test_a_larger_model_gets_the_larger_gpus(bed: SlurmBed, store: Store) -> None:
    """An 8B model in full training does not fit on two A100 of 40 GB: it goes to H100."""
    job = make_job(launcher="none", command=["sleep", "60"], model={"name": "llama3-8b"})
    submission = sent(job, settings_of(bed), store)
    shown = bed.run("scontrol", "show", "job", number_of(submission))
    assert submission.latest.plan.gpu_type == "H100-SXM5-80GB"
    assert f"gres/gpu:h100={submission.latest.plan.gpus}" in shown
    bed.run("scancel", number_of(submission))


def test_torchrun_gets_the_plan_and_hostile_words_stay_words(
    bed: SlurmBed, store: Store, tmp_path: Path
) -> None:
    """Words with quotes, semicolons and dollars reach torchrun as they are; nothing is run."""
    evil = [";touch hacked", "$(touch hacked)", "`touch hacked`", "' || touch hacked #", "a b"]
    program(tmp_path, "torchrun", TORCHRUN)
    settings = settings_of(bed)
    job = make_job(
        command=["train.py", "{micro_batch}", *evil],
        environment={"PATH": f"{tmp_path}:/usr/bin:/bin", "EVIL": "$(touch hacked); '\"`x`"},
        data={"path": str(tmp_path)},
        workdir=str(tmp_path),
        log=f"{tmp_path}/%j.log",
    )
    submission = sent(job, settings, store)
    ended = followed(bed, store, settings)
    log = (tmp_path / f"{number_of(submission)}.log").read_text()
    assert ended.state is SubmissionState.FINISHED, log
    words = (tmp_path / "words-0").read_text().splitlines()
    plan = ended.latest.plan
    assert words[:3] == [
        f"--nnodes={plan.nodes}", f"--nproc-per-node={plan.gpus_per_node}", "--standalone",
    ]  # fmt: skip
    assert words[-len(evil) - 1 :] == [str(plan.micro_batch), *evil]
    environment = (tmp_path / "environment-0").read_text()
    assert "EVIL=$(touch hacked); '\"`x`\n" in environment
    assert f"WORLD_SIZE={plan.gpus}\n" in environment
    assert not (tmp_path / "hacked").exists()


def test_the_environment_of_the_submitter_stays_with_the_submitter(
    bed: SlurmBed, store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A secret of the process that submits is not in the job's environment."""
    monkeypatch.setenv("A_SECRET", "of-the-server")
    monkeypatch.setenv("SBATCH_PARTITION", "no-such-partition")
    program(tmp_path, "torchrun", TORCHRUN)
    job = make_job(
        environment={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        data={"path": str(tmp_path)},
        workdir=str(tmp_path),
    )
    settings = settings_of(bed)
    sent(job, settings, store)
    assert followed(bed, store, settings).state is SubmissionState.FINISHED
    assert "of-the-server" not in (tmp_path / "environment-0").read_text()


def test_the_same_open_job_is_not_sent_twice(bed: SlurmBed, store: Store) -> None:
    """Of two clicks the second is refused, and Slurm has one job."""
    settings = settings_of(bed)
    job = make_job(name="twice", launcher="none", command=["sleep", "600"])
    proposal = proposal_of(job, settings, store)
    first = submit(proposal, target_of(settings), store, settings=settings, by="ada", now=utc_now())
    for again in (proposal, proposal_of(job, settings, store)):
        with pytest.raises(StoreError, match="already submitted"):
            submit(again, target_of(settings), store, settings=settings, by="ada", now=utc_now())
    assert len(bed.run("squeue", "-h", "-n", "twice", "-o", "%i").splitlines()) == 1
    bed.run("scancel", number_of(first))


def test_a_preview_changes_nothing(
    bed: SlurmBed,
    store_url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`submit --dry-run` shows script and start, and leaves queue, submissions and audit alone."""
    before = bed.run("squeue", "-h", "-t", "all", "-o", "%i")
    job = tmp_path / "job.toml"
    job.write_text(
        'name = "dry"\ncommand = ["train.py"]\n'
        'reads = ["micro_batch", "gradient_accumulation"]\n[model]\nname = "tinyllama-1.1b"\n'
        "[training]\nglobal_batch = 8\nsequence_length = 2048\n"
    )
    for name, value in settings_environment(bed).items():
        monkeypatch.setenv(name, value)
    assert main(["--store", store_url, "submit", str(job), "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "#SBATCH --gres=gpu:a100:" in out
    assert "srun --export=ALL --kill-on-bad-exit=1 torchrun" in out
    assert "slurm says:" in out
    assert bed.run("squeue", "-h", "-t", "all", "-o", "%i") == before
    with open_store(store_url) as store:
        assert (store.reader.submissions(), store.reader.audit()) == ((), ())


def settings_environment(bed: SlurmBed) -> dict[str, str]:
    """The settings of a bed as a shell would give them; submission is off."""
    return {
        "TRIMTAB_SLURM_MODE": "commands",
        "TRIMTAB_SUBMIT_ALLOW_SLURM_OPERATOR": "true",
        "TRIMTAB_SLURM_CONF_FILE": str(bed.conf),
        "TRIMTAB_SLURM_GPU_MODELS": "h100=H100-SXM5-80GB,a100=A100-SXM4-40GB",
    }


def test_the_command_submits_lists_and_watches(
    bed: SlurmBed,
    store_url: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`submit --yes` is refused while switched off; switched on the job is in list and watch."""
    job = tmp_path / "job.toml"
    job.write_text(
        'name = "by-command"\nlauncher = "none"\ncommand = ["sleep", "600"]\n'
        'reads = ["micro_batch", "gradient_accumulation"]\n[model]\n'
        'name = "tinyllama-1.1b"\n[training]\nglobal_batch = 8\nsequence_length = 2048\n'
    )
    for name, value in settings_environment(bed).items():
        monkeypatch.setenv(name, value)
    url = ["--store", store_url]
    assert main([*url, "submit", str(job), "--yes"]) == 1
    assert "submit.enabled" in capsys.readouterr().err
    monkeypatch.setenv("TRIMTAB_SUBMIT_ENABLED", "true")
    assert main([*url, "submit", str(job), "--yes", "--by", "ada"]) == 0
    assert "submitted" in capsys.readouterr().out
    bed.until(
        "it runs", lambda: "RUNNING" in bed.run("squeue", "-h", "-n", "by-command", "-o", "%T")
    )
    assert main([*url, "submissions", "watch"]) == 0
    assert "running" in capsys.readouterr().out
    assert main([*url, "submissions", "list", "--format", "json"]) == 0
    told = capsys.readouterr()
    assert '"name": "by-command"' in told.out
    assert "were looked at by no cycle yet" in told.err
    bed.run("scancel", "-n", "by-command")


def test_nothing_is_sent_while_submission_is_off(bed: SlurmBed, store: Store) -> None:
    """The setting is looked at when sending, whoever asks."""
    settings = settings_of(bed, enabled=False)
    with pytest.raises(ApplyError, match=r"submit\.enabled"):
        sent(make_job(name="off"), settings, store)
    assert store.reader.submissions() == ()
    assert bed.run("squeue", "-h", "-n", "off", "-o", "%i") == ""


@pytest.mark.parametrize(
    ("stated", "tokens", "said"),
    [
        (1, 1e10, "time_limit_hours of 1 h ends the run"),
        (None, 1e10, "the default time limit of Slurm's partition gpu of 1 h ends the run"),
        (None, 1e6, ""),
        (20, 1e12, "the cluster allows 24 h"),
        (1000, 1e12, "the job would wait without end"),
        (1, None, ""),
    ],
)
def test_a_limit_that_ends_the_run_is_warned_of(
    bed: SlurmBed, store: Store, stated: float | None, tokens: float | None, said: str
) -> None:
    """The job file's limit, the partition's default and its maximum are held against the hours."""
    changes: dict[str, Any] = {} if stated is None else {"time_limit_hours": stated}
    if tokens is not None:
        changes["data"] = {"tokens": tokens}
    proposal = proposal_of(make_job(**changes), settings_of(bed), store)
    assert bool(proposal.warnings) is bool(said)
    assert said in " ".join(proposal.warnings)


def test_a_partition_that_is_not_there_is_named(bed: SlurmBed, store: Store) -> None:
    """A misspelt partition is refused before anything is planned."""
    with pytest.raises(ChangeRefusedError, match="no partition gqu"):
        proposal_of(make_job(), settings_of(bed, partition="gqu"), store)


@pytest.mark.parametrize("state", ["DOWN", "DRAIN", "INACTIVE"])
def test_a_partition_that_starts_nothing_is_told(bed: SlurmBed, store: Store, state: str) -> None:
    """Its idle nodes are not free: the proposal waits, and warns of the partition's state."""
    bed.run("scontrol", "update", "PartitionName=gpu", f"State={state}")
    try:
        found = proposal_of(make_job(), settings_of(bed), store)
    finally:
        bed.run("scontrol", "update", "PartitionName=gpu", "State=UP")
    assert found.placement.waits
    assert any(f"partition gpu is {state}" in warning for warning in found.warnings)
    again = proposal_of(make_job(), settings_of(bed), store)
    assert not again.placement.waits
    assert not any("partition gpu is" in warning for warning in again.warnings)
