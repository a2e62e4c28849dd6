"""A setting that is gone, or a part of another, is told for one more release."""

import json
from pathlib import Path

import pytest

from data.settings.load import load_settings, setting_rows
from data.settings.renamed import MERGED, MERGED_INTO, WITHOUT_EFFECT, warn_once


def test_what_is_gone_is_no_setting() -> None:
    """And what took its place is one."""
    known = {row["name"] for row in setting_rows(load_settings(environ={}))}
    assert not {*WITHOUT_EFFECT, *MERGED_INTO} & known
    assert MERGED.keys() <= known


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


def test_an_event_that_is_gone_is_told(caplog: pytest.LogCaptureFixture) -> None:
    """A list of before still holds, less the word."""
    warn_once.cache_clear()
    load_settings(environ={"TRIMTAB_NOTIFY_EVENTS": "approved,digest"})
    assert "digest was removed" in caplog.text


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


@pytest.mark.parametrize(("minutes", "stale"), [(15, 30), (25, 30), (60, 65)])
def test_services_have_a_number_from_one_cycle_to_the_next(minutes: int, stale: float) -> None:
    """However rare cycles are: readings of a slot before the last one count until the next."""
    environ = {"TRIMTAB_SERVE_CYCLE_MINUTES": str(minutes)}
    assert load_settings(environ=environ).settings.serving.stale_minutes == stale
