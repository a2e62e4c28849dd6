"""Where the store is that nobody named: the user's state folder, or an earlier version's."""

import json
import logging
from pathlib import Path

import pytest

from dashboard.cli import main
from data.settings.load import load_settings
from data.settings.renamed import warn_once

PLACES = {"store.url": "trimtab.duckdb", "apply.directory": "changes", "apply.stop_file": "STOP"}


def places(environ: dict[str, str], file: Path | None = None) -> dict[str, str]:
    """The settings that stand in the state folder."""
    settings = load_settings(file, environ=environ).settings
    return {
        "store.url": settings.store.url.removeprefix("duckdb:///"),
        "apply.directory": settings.apply.directory,
        "apply.stop_file": settings.apply.stop_file,
    }


@pytest.mark.parametrize("state_home", ["/srv/state", "/srv/state/"])
def test_the_state_folder_of_the_user_is_taken(
    state_home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is the same from every directory, for the store, the change files and the kill switch."""
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        monkeypatch.chdir(tmp_path / folder)
        wanted = {name: f"/srv/state/trimtab/{file}" for name, file in PLACES.items()}
        assert places({"XDG_STATE_HOME": state_home}) == wanted


@pytest.mark.parametrize("state_home", [None, "", "state", "./state"])
def test_without_one_it_is_below_the_home(
    state_home: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No variable, an empty one, or a relative one, which its specification has us ignore."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/srv/ann")
    environ = {} if state_home is None else {"XDG_STATE_HOME": state_home}
    assert places(environ)["apply.stop_file"] == "/srv/ann/.local/state/trimtab/STOP"


@pytest.mark.parametrize("there", [False, True])
def test_a_folder_of_an_earlier_version_without_a_store_hides_none(
    there: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The store was moved, and files of changes stayed; one that is in both places stays found."""
    monkeypatch.chdir(tmp_path)
    for folder in (".trimtab", "state/trimtab"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "state/trimtab/trimtab.duckdb").touch()
    if there:
        (tmp_path / ".trimtab/trimtab.duckdb").touch()
    taken = ".trimtab" if there else f"{tmp_path}/state/trimtab"
    found = places({"XDG_STATE_HOME": f"{tmp_path}/state"})
    assert found == {name: f"{taken}/{file}" for name, file in PLACES.items()}


def test_a_folder_of_an_earlier_version_is_still_used_with_a_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """All of it: a kill switch in there stops as before. One line names both places."""
    monkeypatch.chdir(tmp_path)
    assert "working directory" not in caplog.text
    (tmp_path / ".trimtab").mkdir()
    warn_once.cache_clear()
    with caplog.at_level(logging.WARNING):
        found = places({"XDG_STATE_HOME": "/srv/state"})
    assert found == {name: f".trimtab/{file}" for name, file in PLACES.items()}
    (line,) = caplog.messages
    assert ".trimtab in the working directory" in line
    assert "~/.local/state/trimtab" in line


def test_whoever_names_the_store_hears_nothing_of_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """By the environment or a file; the other places still are the earlier ones."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".trimtab").mkdir()
    file = tmp_path / "trimtab.toml"
    file.write_text('[store]\nurl = "duckdb:///own.duckdb"\n', encoding="utf-8")
    assert places({"TRIMTAB_STORE_URL": "duckdb:////a.duckdb"})["store.url"] == "/a.duckdb"
    assert places({}, file)["apply.stop_file"] == ".trimtab/STOP"
    assert caplog.messages == []


def test_an_account_without_a_home_keeps_its_state_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container's user may be a number that no file names."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.getuid", lambda: 987_654)
    assert places({})["store.url"] == ".trimtab/trimtab.duckdb"


def test_a_command_makes_its_store_there_for_its_owner_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The working directory stays as it was."""
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TRIMTAB_SIMULATED_FLEET_ENABLED", "true")
    monkeypatch.setenv("TRIMTAB_SIMULATED_FLEET_NODES", "1")
    assert main(["collect", "--lookback", "1", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)
    folder = tmp_path / "state" / "trimtab"
    assert (folder / "trimtab.duckdb").is_file()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert list((tmp_path / "work").iterdir()) == []


def test_a_state_folder_out_of_reach_is_no_defect() -> None:
    """Of a home that another account owns, or a name that no folder can have, an error is told."""
    out_of_reach = f"/{'a' * 300}"
    assert places({"XDG_STATE_HOME": out_of_reach}) == {
        name: f"{out_of_reach}/trimtab/{file}" for name, file in PLACES.items()
    }
