"""Rows of settings: tables of the settings file, refused where they make no sense."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from data.base.errors import SettingsError
from data.settings.fleet import Maintenance, PowerDomain, TenantShare
from data.settings.load import load_settings, setting_rows

TEXT = """
[tenants]
by = "account"

[[tenants.shares]]
name = "search"
quota = 16
guaranteed = 8

[[tenants.shares]]
name = "*"
weight = 2

[[power.domains]]
name = "rack a"
nodes = "rack-a-*"
limit_kw = 40
reduced_kw = 30.5
from_hour = 17
until_hour = 21

[[nodes.maintenance]]
nodes = "h100-*"
start = 2026-01-05T12:00:00Z
end = 2026-01-05T14:00:00Z
"""


def loaded(tmp_path: Path, text: str) -> Path:
    """A settings file."""
    path = tmp_path / "trimtab.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_tables_become_rows(tmp_path: Path) -> None:
    """In their order, whole numbers as decimals, times in UTC; `trimtab settings` shows them."""
    found = load_settings(loaded(tmp_path, TEXT), environ={})
    settings = found.settings
    assert settings.tenants.shares == (
        TenantShare(name="search", quota=16.0, guaranteed=8.0),
        TenantShare(name="*", weight=2.0),
    )
    assert settings.power.domains == (
        PowerDomain(
            name="rack a",
            nodes="rack-a-*",
            limit_kw=40.0,
            reduced_kw=30.5,
            from_hour=17.0,
            until_hour=21.0,
        ),
    )
    start = datetime(2026, 1, 5, 12, tzinfo=UTC)
    assert settings.nodes.maintenance == (
        Maintenance(nodes="h100-*", start=start, end=start.replace(hour=14)),
    )
    rows = {row["name"]: row for row in setting_rows(found)}
    assert rows["power.domains"]["origin"].startswith("file ")
    assert rows["planning.pins"]["value"] == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[tenants]\nshares = "all"', "tenants.shares in file .* is 'all'"),
        ("[[tenants.shares]]\nquota = 1", "tenants.shares 1 in file .* lacks name"),
        ("[[tenants.shares]]\nname = 'a'\nquotas = 1", "unknown setting 'quotas'"),
        ("[[tenants.shares]]\nname = 'a'\nquota = 'x'", "tenants.shares 1 quota in file"),
        ("[[tenants.shares]]\nname = 'a'\nquota = -1.0", "tenants.shares quota"),
        ("[[power.domains]]\nname = 'a'\nlimit_kw = 0", "power.domains limit_kw"),
        ("[[power.domains]]\nname='a'\nlimit_kw=1\nreduced_kw=2", "power.domains reduced_kw"),
        ("[[power.domains]]\nname='a'\nlimit_kw=1\nfrom_hour=25", "power.domains from_hour"),
        (
            "[[nodes.maintenance]]\nnodes='a'\nstart=2026-01-05T12:00:00\nend=2026-01-06T12:00:00Z",
            "nodes.maintenance start .* is .*",
        ),
        (
            "[[nodes.maintenance]]\nnodes='a'\nstart=2026-01-05T12:00:00Z\nend=2026-01-05T12:00:00Z",
            "nodes.maintenance end",
        ),
        ("[tenants]\nby = 'team'", "tenants.by"),
        ("[tenants]\nover_quota_penalty = 0.01", "tenants.over_quota_penalty"),
        ("[nodes]\nbase_watts_per_gpu = -1", "nodes.base_watts_per_gpu"),
        ("[power]\nover_limit_penalty_per_kwh = -1", "power.over_limit_penalty_per_kwh"),
        ("[energy]\ncurrency = '<b>EUR'", "energy.currency"),
        ("[energy]\ncurrency = ''", "energy.currency"),
    ],
)
def test_nonsense_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """The error names the setting, its row and the value."""
    with pytest.raises(SettingsError, match=message.replace(" .* is .*", "")):
        load_settings(loaded(tmp_path, text), environ={})


def test_rows_come_from_a_file_only() -> None:
    """A text in the environment is no table."""
    with pytest.raises(SettingsError, match="TRIMTAB_TENANTS_SHARES is a text"):
        load_settings(None, environ={"TRIMTAB_TENANTS_SHARES": "search=16"})
