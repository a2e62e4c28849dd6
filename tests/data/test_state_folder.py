"""Where the store is that nobody named: the user's state folder."""

import json
from pathlib import Path

import pytest

from dashboard.cli import main
from data.base.errors import SettingsError
from data.settings.load import load_settings

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


@pytest.mark.parametrize("name", ["trimtab.duckdb", "STOP"])
def test_the_folder_of_an_earlier_version_is_not_passed_over(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing begins anew beside a store, and no kill switch counts for nothing."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / ".trimtab").mkdir()
    environ = {"XDG_STATE_HOME": "/srv/state"}
    assert places(environ)["store.url"] == "/srv/state/trimtab/trimtab.duckdb"
    (tmp_path / ".trimtab" / name).touch()
    with pytest.raises(SettingsError, match=name) as caught:
        places(environ)
    assert "Move its files to /srv/state/trimtab" in caught.value.hint
    named = {"TRIMTAB_STORE_URL": "duckdb:////a.duckdb", "TRIMTAB_APPLY_STOP_FILE": "/STOP"}
    assert places(environ | named)["store.url"] == "/a.duckdb"


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
