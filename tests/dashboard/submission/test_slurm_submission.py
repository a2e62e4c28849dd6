"""A real Slurm: a job that names no GPU arrives with GPUs, is followed, and is sent again."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from beds.slurm import SlurmBed, running_slurm
from beds.slurm_files import BedNode
from factories import make_collected, make_samples
from submission_cases import job_table, make_job

from collectors.base import Window
from collectors.slurm.jobs import slurm_collector
from dashboard.cli import main
from dashboard.submission.job_file import JobFile
from dashboard.submission.proposal import SubmissionProposal, propose
from dashboard.submission.queue import waiting_jobs
from dashboard.submission.slurm_target import SlurmTarget
from dashboard.submission.submit import submit
from dashboard.submission.watch import watch_all
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.clock import utc_now
from data.errors import ApplyError, ChangeRefusedError, StoreError
from data.records.submissions import Submission, SubmissionState
from data.settings import Settings
from data.source_settings import SlurmSettings
from data.store import Store, open_store
from data.submit_settings import SubmitSettings

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
NODES = (
    BedNode(name="h1", gpu_type="h100", gpus=4, features="h100"),
    BedNode(name="h2", gpu_type="h100", gpus=4, features="h100"),
    BedNode(name="a1", gpu_type="a100", gpus=2, features="a100"),
    BedNode(name="c1", features="cpu"),
)
TORCHRUN = """#!/bin/bash
printf '%s\\n' "$@" > "$TRIMTAB_DATA_PATH/words-$SLURM_PROCID"
env > "$TRIMTAB_DATA_PATH/environment-$SLURM_PROCID"
"""
GROWING = """#!/bin/bash
# Runs out of GPU memory the first times.
echo run >> runs
if [ "$(wc -l < runs)" -lt "$ENOUGH" ]; then
    echo "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB" >&2
    exit 1
fi
"""


@pytest.fixture(scope="module")
def bed() -> Iterator[SlurmBed]:
    """One cluster with accounting for all tests."""
    with running_slurm(nodes=NODES, accounting=True) as running:
        yield running


@pytest.fixture(autouse=True)
def empty_queue(bed: SlurmBed) -> None:
    """Nothing of another test holds GPUs."""
    bed.run("scancel", "-u", bed.plan.user)
    bed.until("the queue is empty", lambda: not bed.run("squeue", "-h"))


def settings_of(bed: SlurmBed, **submission: Any) -> Settings:
    """Settings for a bed; submission is on unless told otherwise."""
    return Settings(
        slurm=SlurmSettings(
            mode="commands",
            conf_file=str(bed.conf),
            gpu_models="h100=H100-SXM5-80GB,a100=A100-SXM4-40GB",
            timeout_seconds=20.0,
        ),
        submit=SubmitSettings(
            # The bed runs as one user, who is SlurmUser too.
            **({"enabled": True, "max_gpus": 8, "allow_slurm_operator": True} | submission)
        ),
    )


def target_of(settings: Settings) -> SlurmTarget:
    """The target of these settings."""
    return SlurmTarget(settings.slurm, settings.submit, load_gpu_catalogue())


def proposal_of(job: JobFile, settings: Settings, store: Store) -> SubmissionProposal:
    """What would be sent, beside what the store knows to wait."""
    return propose(
        job,
        target_of(settings),
        settings=settings.submit,
        peaks=store.reader.measured_peaks("none"),
        by="ada",
        now=utc_now(),
        waiting=waiting_jobs(store.reader, load_gpu_catalogue()),
    )


def sent(job: JobFile, settings: Settings, store: Store) -> Submission:
    """The job, submitted."""
    proposal = proposal_of(job, settings, store)
    return submit(proposal, target_of(settings), store, settings=settings, by="ada", now=utc_now())


def number_of(one: Submission) -> str:
    """The number that Slurm gave it."""
    return one.latest.job_id.removeprefix("slurm:")


def followed(bed: SlurmBed, store: Store, settings: Settings) -> Submission:
    """The only submission, when it has ended."""

    def ended() -> bool:
        watch_all(store, settings, now=utc_now() + timedelta(seconds=1))
        return not store.reader.submissions()[0].state.is_open

    bed.until("the submission ends", ended)
    return store.reader.submissions()[0]


def program(folder: Path, name: str, text: str) -> Path:
    """An executable script."""
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)
    return path


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
    one = sent(make_job(launcher="none", command=["sleep", "60"]), settings, store)
    assert one.latest.plan.gpu_type.startswith("H100")
    bed.until("it runs", lambda: bed.states().get(number_of(one)) == "RUNNING")
    again = proposal_of(make_job(), settings, store)
    assert any(f"slurm:{gatherer} for 2 GPUs" in note for note in again.notes)
    assert bed.states()[gatherer] == "PENDING"
    after = bed.run("scontrol", "show", "job", holder)
    assert re.sub(r"RunTime=\S+", "", after) == re.sub(r"RunTime=\S+", "", before)


def test_a_job_without_gpus_arrives_with_the_right_gres(bed: SlurmBed, store: Store) -> None:
    """TinyLlama goes to the A100, the smallest GPU that takes it, with its share of CPUs."""
    settings = settings_of(bed)
    one = sent(make_job(launcher="none", command=["sleep", "60"]), settings, store)
    shown = bed.run("scontrol", "show", "job", number_of(one))
    plan = one.latest.plan
    assert plan.gpu_type == "A100-SXM4-40GB"
    assert f"gpu:a100:{plan.gpus_per_node}" in shown
    assert f"NumNodes={plan.nodes}" in shown
    assert f"gres/gpu:a100={plan.gpus}" in shown
    assert f"Comment=trimtab:{one.submission_id}:1" in shown
    bed.run("scancel", number_of(one))


def test_a_larger_model_gets_the_larger_gpus(bed: SlurmBed, store: Store) -> None:
    """An 8B model in full training does not fit on two A100 of 40 GB: it goes to H100."""
    job = make_job(launcher="none", command=["sleep", "60"], model={"name": "llama3-8b"})
    one = sent(job, settings_of(bed), store)
    shown = bed.run("scontrol", "show", "job", number_of(one))
    assert one.latest.plan.gpu_type == "H100-SXM5-80GB"
    assert f"gres/gpu:h100={one.latest.plan.gpus}" in shown
    bed.run("scancel", number_of(one))


def test_a_cancelled_job_is_seen_to_be_cancelled(bed: SlurmBed, store: Store) -> None:
    """What scancel did stands in the submission and in the audit, and the job runs no more."""
    settings = settings_of(bed)
    one = sent(make_job(launcher="none", command=["sleep", "600"]), settings, store)
    bed.run("scancel", number_of(one))
    assert followed(bed, store, settings).state is SubmissionState.CANCELLED
    events = [entry.event for entry in store.reader.audit()]
    # Whether it is seen while it still ends is a matter of milliseconds.
    assert [event for event in events if event != "submission-running"] == [
        "submission-sending", "submitted", "submission-cancelled",
    ]  # fmt: skip
    assert store.reader.verify_audit() == ()


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
    one = sent(job, settings, store)
    ended = followed(bed, store, settings)
    log = (tmp_path / f"{number_of(one)}.log").read_text()
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


def growing(tmp_path: Path, *, enough: int, retries: int, resubmit: bool = True) -> JobFile:
    """A job that runs out of GPU memory until its so manieth run."""
    script = program(tmp_path, "grow.sh", GROWING)
    return make_job(
        launcher="none",
        command=[str(script)],
        environment={"ENOUGH": str(enough)},
        workdir=str(tmp_path),
        log=f"{tmp_path}/%j.log",
        on_out_of_memory={"resubmit": resubmit, "retries": retries},
    )


def test_a_run_out_of_memory_is_sent_again_on_more(
    bed: SlurmBed, store: Store, tmp_path: Path
) -> None:
    """CUDA's words in the stated log raise the estimate; the next attempt has more memory."""
    settings = settings_of(bed)
    one = sent(growing(tmp_path, enough=2, retries=3), settings, store)
    first = one.latest.plan
    ended = followed(bed, store, settings)
    assert [attempt.state for attempt in ended.attempts][:-1] == [
        SubmissionState.OUT_OF_GPU_MEMORY
    ] * (len(ended.attempts) - 1)
    assert ended.state is SubmissionState.FINISHED, [attempt.plan for attempt in ended.attempts]
    last = ended.latest
    assert last.raised > 1
    assert last.plan.needed_bytes * last.raised <= last.plan.gpu_memory_bytes
    assert first.needed_bytes * last.raised > first.gpu_memory_bytes
    assert store.reader.verify_audit() == ()


def test_retries_end_where_the_job_file_says(bed: SlurmBed, store: Store, tmp_path: Path) -> None:
    """A job that never has enough is sent once and once more, and the audit says why it ends."""
    settings = settings_of(bed)
    sent(growing(tmp_path, enough=1000, retries=1), settings, store)
    ended = followed(bed, store, settings)
    assert len(ended.attempts) == 2
    assert ended.state is SubmissionState.OUT_OF_GPU_MEMORY
    assert store.reader.audit()[-1].detail == "its 1 retries are used up"


def test_without_consent_nothing_is_sent_again(bed: SlurmBed, store: Store, tmp_path: Path) -> None:
    """The job file alone allows a second attempt."""
    settings = settings_of(bed)
    sent(growing(tmp_path, enough=1000, retries=3, resubmit=False), settings, store)
    ended = followed(bed, store, settings)
    assert len(ended.attempts) == 1
    assert store.reader.audit()[-1].detail == "the job file does not allow it"


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


def test_what_was_never_confirmed_is_found_by_its_mark(bed: SlurmBed, store: Store) -> None:
    """A crash between sbatch and its answer leaves no second job: the mark is found."""
    settings = settings_of(bed)
    job = make_job(name="crash", launcher="none", command=["sleep", "600"])
    proposal = proposal_of(job, settings, store)
    target = target_of(settings)
    number = target.send(proposal.manifest)
    store.keep_submission(
        proposal.submission, at=utc_now(), actor="ada", event="submission-sending", detail=""
    )
    (early,) = watch_all(store, settings, now=utc_now())
    assert early.submission.state is SubmissionState.SENDING
    (seen,) = watch_all(store, settings, now=utc_now() + timedelta(minutes=3))
    assert (seen.submission.latest.job_id, seen.error) == (number, "")
    assert seen.submission.state is SubmissionState.PENDING
    assert len(bed.run("squeue", "-h", "-n", "crash", "-o", "%i").splitlines()) == 1
    bed.run("scancel", number.removeprefix("slurm:"))


def test_what_never_arrived_is_sent_once_more_and_then_given_up(
    bed: SlurmBed, store: Store
) -> None:
    """Minutes after a lost answer the job is sent; much later nobody expects it, and it is lost."""
    settings = settings_of(bed)
    job = make_job(name="lost", launcher="none", command=["sleep", "600"])
    kept = proposal_of(job, settings, store).submission
    store.keep_submission(kept, at=utc_now(), actor="ada", event="submission-sending", detail="")
    (late,) = watch_all(store, settings, now=utc_now() + timedelta(minutes=20))
    assert late.submission.state is SubmissionState.LOST
    assert bed.run("squeue", "-h", "-n", "lost", "-o", "%i") == ""
    store.keep_submission(kept, at=utc_now(), actor="ada", event="submission-sending", detail="")
    (sent_again,) = watch_all(store, settings, now=utc_now() + timedelta(minutes=3))
    assert sent_again.submission.state is SubmissionState.PENDING
    assert len(bed.run("squeue", "-h", "-n", "lost", "-o", "%i").splitlines()) == 1


def test_accounting_tells_what_slurmctld_forgot(
    bed: SlurmBed, store: Store, tmp_path: Path
) -> None:
    """A job that slurmctld no longer knows is found in sacct with its state and exit code."""
    settings = settings_of(bed)
    one = sent(make_job(launcher="none", command=["false"], workdir=str(tmp_path)), settings, store)
    assert followed(bed, store, settings).state is SubmissionState.FAILED
    target = target_of(settings)
    bed.until("accounting has it", lambda: target._accounted(number_of(one))[0] == "FAILED")
    assert target._accounted(number_of(one)) == ("FAILED", "", "1:0")
    word, reason, _code = target._accounted("999999")
    assert word is None
    assert "neither slurmctld nor accounting" in reason


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


def test_a_finished_run_teaches_its_family(bed: SlurmBed, store: Store, tmp_path: Path) -> None:
    """The largest memory that telemetry saw is kept once, and corrects the next estimate."""
    settings = settings_of(bed)
    # A lower estimate would let a larger micro-batch in.
    recipe = job_table()["training"] | {"micro_batch": 1, "recompute": "none"}
    job = make_job(launcher="none", command=["true"], workdir=str(tmp_path), training=recipe)
    one = sent(job, settings, store)
    measured_mib = 0.8 * one.latest.plan.p50_bytes / 2**20
    samples = make_samples(
        minutes=10, job_id=one.latest.job_id, end=utc_now() + timedelta(minutes=10),
        memory_used_mib=measured_mib,
    )  # fmt: skip
    store.keep(make_collected(samples, ()))
    bed.until("it ended", lambda: bed.states()[number_of(one)] == "COMPLETED")
    watch_all(store, settings, now=utc_now() + timedelta(minutes=15))
    ended = store.reader.submissions()[0]
    assert ended.state is SubmissionState.FINISHED
    assert ended.latest.peak_bytes == pytest.approx(measured_mib * 2**20)
    (peak,) = store.reader.measured_peaks(one.family)
    assert peak.job_id == one.latest.job_id
    again = propose(
        job, target_of(settings), settings=settings.submit,
        peaks=store.reader.measured_peaks(one.family), by="ada", now=utc_now(),
    )  # fmt: skip
    estimate = again.placement.plan.estimate
    assert again.placement.plan.gpu_type == one.latest.plan.gpu_type
    assert estimate.sample_count == 1
    assert estimate.p50_bytes < one.latest.plan.p50_bytes


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
