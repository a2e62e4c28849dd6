"""A settings file that another account could have written is not obeyed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from data.base.errors import SettingsError
from data.settings.load import load_settings

OTHER = 65_534
_ROOT = Path(__file__).parents[2]
_START = "from dashboard.cli import program; program()"
_AS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


def settings_in(folder: Path) -> Path:
    """Make a folder with settings that run a program of the folder as `squeue`."""
    programs = folder / "bin"
    programs.mkdir(parents=True)
    for name in ("squeue", "sinfo", "scontrol", "sacct"):
        (programs / name).write_text(f"#!/bin/sh\ntouch {folder}/ran\n")
        (programs / name).chmod(0o755)
    file = folder / "trimtab.toml"
    file.write_text(f'[slurm]\nmode = "commands"\nbin_directory = "{programs}"\n')
    os.chown(file, os.geteuid(), os.geteuid())
    folder.chmod(0o755)
    return file


def doctor(folder: Path) -> "subprocess.CompletedProcess[str]":
    """Run `trimtab doctor` in the folder."""
    environ = {name: text for name, text in os.environ.items() if not name.startswith("TRIMTAB")}
    return subprocess.run(
        [sys.executable, "-c", _START, "--store", f"duckdb:///{folder}/t.duckdb", "doctor"],
        cwd=folder, env=environ | {"PYTHONPATH": str(_ROOT)}, check=False,
        capture_output=True, text=True,
    )  # fmt: skip


@_AS_ROOT
def test_doctor_runs_no_program_that_another_account_named(tmp_path: Path) -> None:
    """The refusal names the file and the command that mends it; with it, the file is read."""
    file = settings_in(tmp_path / "theirs")
    os.chown(file, OTHER, OTHER)
    done = doctor(file.parent)
    assert done.returncode != 0
    assert f"{file} belongs to the account {OTHER}" in done.stderr
    assert f"chown {os.geteuid()} {file}" in done.stderr
    assert not (file.parent / "ran").exists()
    os.chown(file, os.geteuid(), os.getegid())
    done = doctor(file.parent)
    assert (file.parent / "ran").exists()
    assert f"settings from {file}" in done.stdout


CASES = {
    "the file is another's": (OTHER, 0o644, None, 0o755, "chown"),
    "the folder is another's": (None, 0o644, OTHER, 0o755, "chown"),
    "everybody may write the file": (None, 0o646, None, 0o755, "chmod"),
    "everybody may write the folder": (None, 0o644, None, 0o757, "chmod"),
}


@pytest.mark.parametrize("way", ["working directory", "--settings", "link", "link to a folder"])
@pytest.mark.parametrize("case", CASES)
def test_what_another_account_could_write_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, way: str
) -> None:
    """By whatever way the file is named; the fix is a command."""
    owner, mode, folder_owner, folder_mode, fix = CASES[case]
    if (owner or folder_owner) and os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    file = settings_in(tmp_path / "there")
    file.chmod(mode)
    file.parent.chmod(folder_mode)
    for place, account in ((file, owner), (file.parent, folder_owner)):
        if account is not None:
            os.chown(place, account, account)
    named = {
        "working directory": None,
        "--settings": file,
        "link": tmp_path / "link.toml",
        "link to a folder": tmp_path / "link" / file.name,
    }[way]
    (tmp_path / "link.toml").symlink_to(file)
    (tmp_path / "link").symlink_to(file.parent)
    monkeypatch.chdir(file.parent)
    with pytest.raises(SettingsError, match=fix) as refused:
        load_settings(named, environ={})
    assert str(tmp_path / "there") in str(refused.value)


@pytest.mark.parametrize(("mode", "folder_mode"), [(0o644, 0o755), (0o600, 0o700), (0o664, 0o775),
                                                   (0o644, 0o1777)])  # fmt: skip
def test_files_of_ones_own_are_read(tmp_path: Path, mode: int, folder_mode: int) -> None:
    """A private group may write them; in a sticky folder nobody takes another's place."""
    file = settings_in(tmp_path / "mine")
    file.chmod(mode)
    if os.geteuid() == 0:
        os.chown(file.parent, 0, 0)
    elif os.getegid() != os.geteuid():
        mode, folder_mode = mode & 0o755, folder_mode & 0o1755
        file.chmod(mode)
    file.parent.chmod(folder_mode)
    assert load_settings(file, environ={}).settings.slurm.mode == "commands"


def test_a_state_folder_of_another_account_is_not_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The `.trimtab` of a working directory holds the store and the file of the kill switch."""
    (tmp_path / ".trimtab").mkdir()
    (tmp_path / ".trimtab").chmod(0o777)
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.getuid", lambda: 987_654)
    with pytest.raises(SettingsError, match="chmod"):
        load_settings(environ={})
