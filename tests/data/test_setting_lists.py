"""Settings of several entries: a TOML list says the same as a comma-separated text."""

from pathlib import Path

import pytest

from data.base.errors import SettingsError
from data.settings.load import load_settings

EXAMPLES = {
    "access.allowed_hosts": ["a.example", "b.example"],
    "access.viewers": ["ann", "group:sre"],
    "access.owners": ["ann"],
    "access.approvers": ["ann", "Zoë"],
    "access.admins": [],
    "access.proxy_addresses": ["10.0.0.5", "10.1.0.0/16"],
    "notify.mail_to": ["ops@site.example", "lead@site.example"],
    "notify.events": ["approved", "urgent"],
    "report.mail_to": ["ops@site.example"],
    "report.teams": ["search=a@site.example b@site.example", "vision=c@site.example"],
    "report.owners": ["ada=ada@site.example"],
    "planning.power_cap_ratios": [0.8, 0.6],
    "planning.protected_jobs": ["prod/*", "slurm:1*"],
    "energy.electricity_price_by_hour": [0.1, *[0.2] * 23],
    "energy.carbon_by_hour": list(range(100, 124)),
    "energy.embodied_kgco2e": ["L40S-48GB=150", "A30-24GB=110"],
    "kubernetes.namespaces": ["search", "vision"],
    "submit.tolerate": ["nvidia.com/gpu", "dedicated"],
}


def value(file: Path, name: str, text: str) -> object:
    """The setting as the file with this text has it."""
    section, field = name.split(".")
    file.write_text(f"[{section}]\n{field} = {text}\n", encoding="utf-8")
    settings = load_settings(file, environ={}).settings
    return getattr(getattr(settings, section), field)


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_list_says_what_its_text_says(name: str, tmp_path: Path) -> None:
    """Whatever its entries are."""
    entries = EXAMPLES[name]
    listed = value(tmp_path / "t.toml", name, str(entries).replace("'", '"'))
    assert listed == value(tmp_path / "t.toml", name, f'"{",".join(map(str, entries))}"')


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("notify.mail_to", '["a@site.example,b@site.example"]'), ("access.admins", '[["ann"]]'),
        ("access.admins", "[true]"), ("access.admins", '[""]'), ("access.admins", "[{}]"),
        ("planning.power_cap_ratios", "[nan]"), ("energy.currency", '["EUR"]'),
    ],
)  # fmt: skip
def test_what_is_no_list_is_refused_by_name(name: str, text: str, tmp_path: Path) -> None:
    """An entry that would be two, that is no text, or a setting that has one value."""
    with pytest.raises(SettingsError, match=name.replace(".", r"\.")):
        value(tmp_path / "t.toml", name, text)
