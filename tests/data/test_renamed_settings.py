"""A setting under its old name works for one more release, and says its new name."""

import json
from pathlib import Path

import pytest

from data.base.errors import SettingsError
from data.settings.load import load_settings, setting_rows
from data.settings.renamed import MERGED, MERGED_INTO, RENAMED, WITHOUT_EFFECT, warn_once


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
    told = text.strip('"').lower()
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
    assert not {*RENAMED, *WITHOUT_EFFECT, *MERGED_INTO} & known
    assert MERGED.keys() <= known
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


EARLIER: dict[str, tuple[dict[str, object], str]] = {
    "access.public_url": (
        {"access.oidc_redirect_uri": "https://t.example/oauth2callback"}, "https://t.example",
    ),
    "energy.hours_zone": ({"energy.hour_offset": -5.5}, "-05:30"),
    "notify.smtp_url": (
        {"notify.smtp_host": "mail.example", "notify.smtp_port": 587,
         "notify.smtp_starttls": True, "notify.smtp_user": "a@b"},
        "smtp+starttls://a%40b@mail.example:587",
    ),
    "slurm.bin_directory": ({"apply_slurm.bin_directory": "/opt/slurm"}, "/opt/slurm"),
    "slurm.conf_file": ({"apply_slurm.conf_file": "etc/slurm.conf"}, "{folder}/etc/slurm.conf"),
    "slurm.rest_url": ({"apply_slurm.rest_url": "http://slurm:6820"}, "http://slurm:6820"),
}  # fmt: skip
"""What a file of before holds, and what is made of it."""


@pytest.mark.parametrize("name", MERGED)
def test_settings_of_before_make_the_one_that_they_are_a_part_of(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """From a file and the environment together; what is given under the new name wins."""
    given, made = EARLIER[name]
    assert given.keys() == MERGED[name].kinds.keys()
    *in_file, last = given
    if MERGED[name].are_paths or not in_file:
        in_file = [*in_file, last]
    path = tmp_path / "t.toml"
    lines = [f"{old} = {json.dumps(given[old])}" for old in in_file]
    path.write_text("\n".join(lines))
    section, _, field = last.partition(".")
    environ = {} if last in in_file else {f"TRIMTAB_{section}_{field}".upper(): str(given[last])}
    warn_once.cache_clear()
    loaded = load_settings(path, environ=environ)
    values = {row["name"]: row["value"] for row in setting_rows(loaded)}
    assert values[name] == made.format(folder=tmp_path)
    assert len(caplog.records) == len(given)
    assert all(f"is a part of {name} now" in entry.getMessage() for entry in caplog.records)
    defaults = {row["name"]: row["value"] for row in setting_rows(load_settings(environ={}))}
    path.write_text("\n".join([*lines, f"{name} = {json.dumps(defaults[name])}"]))
    values = {row["name"]: row["value"] for row in setting_rows(load_settings(path, environ={}))}
    assert values[name] == defaults[name]


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
