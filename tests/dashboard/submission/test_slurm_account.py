"""Whose job it is: on a real Slurm with accounting no job file becomes an operator."""

import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from beds.slurm import SlurmBed, running_slurm
from beds.slurm_files import BedNode
from submission_cases import make_job

from dashboard.cli import main
from dashboard.submission.submit.proposal import SubmissionProposal, propose
from dashboard.submission.submit.submit import submit
from dashboard.submission.targets.slurm_target import SlurmTarget
from data.base.clock import utc_now
from data.base.errors import ChangeRefusedError, SourceNotConfiguredError, SourceRefusedError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.records.submissions import Submission, SubmissionState
from data.settings.all_settings import Settings
from data.settings.sources import SlurmSettings
from data.settings.submission import SubmitSettings
from data.store import Store

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
NODES = (
    BedNode(name="h1", gpu_type="h100", gpus=4, features="h100"),
    BedNode(name="c1", features="cpu"),
)
PLAIN, RAISED = "nobody", "games"
"""Users of every Debian; the second is made an operator for a while."""
as_root = pytest.mark.skipif(
    os.geteuid() != 0, reason="only root becomes another user without an entry in sudoers"
)


@pytest.fixture(scope="module")
def bed() -> Iterator[SlurmBed]:
    """One node, with slurmdbd, in which both users have an account."""
    with running_slurm(nodes=NODES, accounting=True) as running:
        running.run("sacctmgr", "--immediate", "add", "account", "ml")
        for user in (PLAIN, RAISED):
            running.run("sacctmgr", "--immediate", "add", "user", user, "account=ml")
        yield running


def settings_of(bed: SlurmBed, **submission: object) -> Settings:
    """Settings for a bed that submit as the user who is given."""
    values = {"enabled": True, "max_gpus": 4} | submission
    return Settings(
        slurm=SlurmSettings(
            mode="commands", conf_file=str(bed.conf), gpu_models="h100=H100-SXM5-80GB"
        ),
        submit=SubmitSettings(**values),  # type: ignore[arg-type]
    )


def target_of(settings: Settings) -> SlurmTarget:
    """The target of these settings."""
    return SlurmTarget(settings.slurm, settings.submit, load_gpu_catalogue())


def proposal_of(settings: Settings, folder: Path, **stated: Any) -> SubmissionProposal:
    """A job that writes who it is."""
    who = folder / "who"
    job = make_job(
        launcher="none",
        command=["/bin/sh", "-c", f"/usr/bin/id -un > {who}"],
        workdir=str(folder),
        **stated,
    )
    return propose(
        job, target_of(settings), settings=settings.submit, peaks=(), by="ada", now=utc_now()
    )


def sent(settings: Settings, store: Store, folder: Path) -> Submission:
    """That job, submitted."""
    return submit(
        proposal_of(settings, folder),
        target_of(settings),
        store,
        settings=settings,
        by="ada",
        now=utc_now(),
    )


def open_folder(bed: SlurmBed) -> Path:
    """A folder in which every user may write."""
    folder = bed.folder / "open"
    folder.mkdir(exist_ok=True)
    folder.chmod(0o777)
    return folder


def test_the_user_of_the_cluster_submits_nothing(bed: SlurmBed, store: Store) -> None:
    """Who runs the bed is its SlurmUser: the preview warns, and the job is refused."""
    settings, folder = settings_of(bed), open_folder(bed)
    (warning,) = proposal_of(settings, folder).warnings
    assert "submit.slurm_user" in warning
    with pytest.raises(ChangeRefusedError, match="was not submitted"):
        sent(settings, store, folder)
    assert store.reader.submissions()[0].state is SubmissionState.REFUSED
    assert bed.run("squeue", "-h") == ""
    allowed = settings_of(bed, allow_slurm_operator=True)
    assert target_of(allowed).why_not() == ""


@pytest.mark.parametrize("stated", [None, 8.0])
def test_who_asks_for_no_memory_is_told_the_default_of_the_site(
    bed: SlurmBed, monkeypatch: pytest.MonkeyPatch, stated: float | None
) -> None:
    """Where no node says what it has; the script then asks for what the job states, or nothing."""
    settings, folder = settings_of(bed, allow_slurm_operator=True), open_folder(bed)
    fleet = target_of(settings).fleet()
    assert not proposal_of(settings, folder).warnings
    blind = replace(fleet, nodes=tuple(replace(node, memory_mib=None) for node in fleet.nodes))
    monkeypatch.setattr(SlurmTarget, "fleet", lambda _target: blind)
    host = {} if stated is None else {"host": {"memory_gib_per_gpu": stated}}
    proposal = proposal_of(settings, folder, **host)
    assert ("--mem" in proposal.manifest.text) is (stated is not None)
    assert ["site's default (DefMemPerCPU=100)" in line for line in proposal.warnings] == (
        [True] if stated is None else []
    )


@as_root
def test_a_job_belongs_to_the_user_of_the_settings(bed: SlurmBed, store: Store) -> None:
    """The job runs as that user, in a script that names no other."""
    settings, folder = settings_of(bed, slurm_user=PLAIN), open_folder(bed)
    one = sent(settings, store, folder)
    number = one.latest.job_id.removeprefix("slurm:")
    assert f"UserId={PLAIN}(" in bed.run("scontrol", "show", "job", number)
    bed.until("it ended", lambda: bed.states()[number] == "COMPLETED")
    assert (folder / "who").read_text().strip() == PLAIN


@as_root
@pytest.mark.parametrize("level", ["Operator", "Administrator"])
def test_an_operator_submits_nothing(bed: SlurmBed, store: Store, level: str) -> None:
    """A user whom sacctmgr calls an operator is refused, and taken once it is none any more."""
    settings, folder = settings_of(bed, slurm_user=RAISED), open_folder(bed)
    assert target_of(settings).why_not() == ""
    set_level = ("sacctmgr", "--immediate", "modify", "user", RAISED, "set")
    bed.run(*set_level, f"AdminLevel={level}")
    try:
        with pytest.raises(ChangeRefusedError) as refused:
            sent(settings, store, folder)
        assert f"has AdminLevel={level}" in str(refused.value.hint)
    finally:
        bed.run(*set_level, "AdminLevel=None")
    assert target_of(settings).why_not() == ""


@as_root
def test_what_accounting_does_not_tell_is_not_taken_for_no(bed: SlurmBed, tmp_path: Path) -> None:
    """With a sacctmgr that fails nobody is believed to be without rights."""
    for name in ("squeue", "sinfo", "scontrol", "sacct", "sbatch"):
        (tmp_path / name).symlink_to(str(shutil.which(name)))
    broken = tmp_path / "sacctmgr"
    broken.write_text("#!/bin/sh\necho 'Unable to contact slurm database' >&2\nexit 1\n")
    broken.chmod(0o755)
    settings = settings_of(bed, slurm_user=PLAIN)
    apart = replace(settings, slurm=replace(settings.slurm, bin_directory=str(tmp_path)))
    assert "may be an operator" in target_of(apart).why_not()


def test_a_user_who_does_not_exist_is_named(bed: SlurmBed) -> None:
    """A misspelt user is refused with the setting to mend."""
    with pytest.raises(ChangeRefusedError, match="knows no user of-nowhere"):
        target_of(settings_of(bed, slurm_user="of-nowhere")).why_not()


SUDO = """#!/bin/sh
# What sudo does when it has, and has not, a matching entry.
[ "$1 $2 $3 $4" = "-n -u {user} --" ] || exit 9
shift 4
{then}
"""


@pytest.mark.parametrize("allowed", [True, False])
def test_another_user_is_reached_by_sudo(
    bed: SlurmBed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, allowed: bool
) -> None:
    """Who is not root asks sudo, without a password; its refusal names the line of sudoers."""
    sudo = tmp_path / "sudo"
    refusal = "echo 'sudo: a password is required' >&2; exit 1"
    sudo.write_text(SUDO.format(user=PLAIN, then='exec "$@"' if allowed else refusal))
    sudo.chmod(0o755)
    settings, folder = settings_of(bed, slurm_user=PLAIN), open_folder(bed)
    manifest = proposal_of(settings, folder).manifest
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.setattr("dashboard.submission.targets.slurm_target.os.geteuid", lambda: 12_345)
    if allowed:
        assert "to start at" in target_of(settings).check(manifest)
        sudo.unlink()
        with pytest.raises(SourceNotConfiguredError, match="cannot run sudo"):
            target_of(settings).check(manifest)
    else:
        with pytest.raises(SourceRefusedError) as refused:
            target_of(settings).check(manifest)
        assert f"ALL=({PLAIN}) NOPASSWD" in str(refused.value.hint)


def test_doctor_names_an_operator(
    bed: SlurmBed,
    store_url: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """`doctor` has a line for who submits, once submission is switched on."""
    for name, value in {
        "TRIMTAB_SLURM_MODE": "commands",
        "TRIMTAB_SLURM_CONF_FILE": str(bed.conf),
        "TRIMTAB_SUBMIT_ENABLED": "true",
    }.items():
        monkeypatch.setenv(name, value)
    main(["--store", store_url, "doctor", "--format", "csv"])
    (line,) = [row for row in capsys.readouterr().out.splitlines() if row.startswith("submission,")]
    assert line.startswith("submission,missing,")
    assert "submit.slurm_user" in line
