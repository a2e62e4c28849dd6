"""The settings of the moment: read again whenever their file may have changed, and not else."""

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from dashboard.cli.terminal.context import FreshSettings, settings_of
from data.base.errors import SettingsError

TEXT = "[apply]\nenabled = {}\n"
FALSE, TRUE = TEXT.format("false"), TEXT.format("true ")
"""Of one length: what changes is not the size of the file."""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A settings file that nobody has changed for an hour."""
    path = tmp_path / "trimtab.toml"
    path.write_text(FALSE)
    grow_old(path)
    return path


def grow_old(path: Path, hours: float = 1) -> None:
    """Have the file say that it changed so long ago."""
    at = time.time() - hours * 3600
    os.utime(path, (at, at))


def fresh(file: Path, read: list[int]) -> FreshSettings:
    """The settings of the file, which counts how often it is read."""
    options = argparse.Namespace(settings=str(file))

    def load() -> object:
        read.append(1)
        return settings_of(options).settings

    return FreshSettings(options, load)  # type: ignore[arg-type]


def test_a_file_that_stays_is_read_once(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However often it is asked, once the change of its time stamp is a while ago."""
    read: list[int] = []
    now = fresh(file, read)
    later = time.time_ns() + 3_000_000_000
    monkeypatch.setattr("dashboard.cli.terminal.context.time.time_ns", lambda: later)
    assert [now().apply.enabled for _ in range(5)] == [False] * 5
    assert len(read) == 1


def _write(file: Path) -> None:
    file.write_text(TRUE)


def _write_and_hide(file: Path) -> None:
    file.write_text(TRUE)
    grow_old(file)


def _replace(file: Path) -> None:
    other = file.with_suffix(".new")
    other.write_text(TRUE)
    grow_old(other)
    other.replace(file)


def _link(file: Path) -> None:
    other = file.with_name("..data.toml")
    other.write_text(TRUE)
    grow_old(other)
    file.unlink()
    file.symlink_to(other)


@pytest.mark.parametrize("change", [_write, _write_and_hide, _replace, _link])
@pytest.mark.parametrize("old", [True, False])
def test_a_change_is_seen_at_once(
    change: Callable[[Path], None], old: bool, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However the file was changed, and however soon after it was read."""
    now = fresh(file, [])
    if old:
        later = time.time_ns() + 3_000_000_000
        monkeypatch.setattr("dashboard.cli.terminal.context.time.time_ns", lambda: later)
    assert not now().apply.enabled
    change(file)
    assert now().apply.enabled


def test_a_file_that_is_gone_is_no_reason_to_go_on_as_before(file: Path) -> None:
    """What it said may have been taken back."""
    now = fresh(file, [])
    now()
    file.unlink()
    with pytest.raises(SettingsError):
        now()
