"""A setting under its old name works for one more release, and says its new name."""

from pathlib import Path

import pytest

from data.base.errors import SettingsError
from data.settings.load import load_settings, setting_rows
from data.settings.renamed import RENAMED, WITHOUT_EFFECT, warn_once


def other(value: object) -> str:
    """A valid value that is not this default, as TOML."""
    if isinstance(value, bool):
        return str(not value).lower()
    if isinstance(value, str):
        return '"elsewhere.json"'
    return f"{value / 2:g}" if isinstance(value, float) else str(int(str(value)) + 1)


@pytest.mark.parametrize("old", RENAMED)
@pytest.mark.parametrize("by", ["file", "environment"])
def test_an_old_name_sets_the_new_setting(
    old: str, by: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """By file and by environment, with one line of the new one, however often it is read."""
    new = RENAMED[old]
    default = next(r["value"] for r in setting_rows(load_settings(environ={})) if r["name"] == new)
    text = other(default)
    section, field = old.split(".")
    path = tmp_path / "t.toml"
    path.write_text(f"[{section}]\n{field} = {text}\n" if by == "file" else "")
    environ = {} if by == "file" else {f"TRIMTAB_{section}_{field}".upper(): text.strip('"')}
    warn_once.cache_clear()
    for _time in range(3):
        loaded = load_settings(path, environ=environ)
    value = next(row["value"] for row in setting_rows(loaded) if row["name"] == new)
    assert value != default
    told = float(text) * 15 if old.endswith("_slots") else text.strip('"').lower()
    assert str(value).lower().endswith(str(told)) or float(value) == float(told)
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 1
    assert old in said[0]
    assert f"is now {new}" in said[0]


def test_no_new_name_is_an_old_one_of_another() -> None:
    """One step leads from the old name to what there is."""
    assert not set(RENAMED) & set(RENAMED.values())
    known = {row["name"] for row in setting_rows(load_settings(environ={}))}
    assert set(RENAMED.values()) <= known
    assert not {*RENAMED, *WITHOUT_EFFECT} & known
    assert not RENAMED.keys() & WITHOUT_EFFECT.keys()


@pytest.mark.parametrize("name", WITHOUT_EFFECT)
@pytest.mark.parametrize("by", ["file", "environment"])
def test_a_setting_that_is_gone_changes_nothing_and_says_what_holds(
    name: str, by: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever its value is, with one line, however often it is read."""
    section, field = name.split(".")
    path = tmp_path / "t.toml"
    path.write_text(f"[{section}]\n{field} = '?'\n" if by == "file" else "")
    environ = {} if by == "file" else {f"TRIMTAB_{section}_{field}".upper(): "?"}
    warn_once.cache_clear()
    for _time in range(3):
        assert load_settings(path, environ=environ) == load_settings(environ={})
    (said,) = [record.getMessage() for record in caplog.records]
    assert said.startswith(f"{name} in ")
    assert WITHOUT_EFFECT[name] in said
    assert "Delete it" in said


def test_both_names_at_once_are_refused_in_a_file(tmp_path: Path) -> None:
    """Neither of two values is guessed to be the one that is meant."""
    path = tmp_path / "t.toml"
    path.write_text("[tenants]\nover_price = 5.0\nover_quota_penalty = 6.0\n")
    with pytest.raises(SettingsError, match="under its old and its new name"):
        load_settings(path, environ={})


def test_the_new_variable_wins_over_the_old() -> None:
    """While a host's environment is moved over, both may stand there."""
    environ = {"TRIMTAB_TENANTS_OVER_PRICE": "5", "TRIMTAB_TENANTS_OVER_QUOTA_PENALTY": "6"}
    assert load_settings(environ=environ).settings.tenants.over_quota_penalty == 6.0


@pytest.mark.parametrize("slot_minutes", [5, 15, 60])
def test_what_counted_slots_is_turned_to_minutes(slot_minutes: int, tmp_path: Path) -> None:
    """Of whatever length the slots are, wherever that is said."""
    path = tmp_path / "t.toml"
    path.write_text("[planning]\nfrozen_slots = 3\n")
    environ = {"TRIMTAB_PLANNING_SLOT_MINUTES": str(slot_minutes)}
    assert load_settings(path, environ=environ).settings.planning.frozen_minutes == 3 * slot_minutes
