"""Price lists, budgets and invoices of the settings file: read, and refused by name and value."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from dashboard.accounting.cost.prices import price_list
from data.base.errors import SettingsError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.settings.load import load_settings
from data.settings.statements import Budget, GpuPrice

PRICES = """
[[statement.prices]]
gpu_model = "H100-SXM5-80GB"
per_gpu_hour = 3
end = 2026-07-01T00:00:00Z

[[statement.prices]]
gpu_model = "H100-SXM5-80GB"
per_gpu_hour = 2.5
start = 2026-07-01T00:00:00Z

[[statement.budgets]]
tenant = "search"
per_month = 5000
"""


def loaded(folder: Path, text: str) -> Path:
    """A settings file with the text."""
    path = folder / "trimtab.toml"
    path.write_text(text, encoding="utf-8")
    return path


def test_rows_are_read(tmp_path: Path) -> None:
    """A price with effective dates, and a budget."""
    settings = load_settings(loaded(tmp_path, PRICES), environ={}).settings.statement
    change = datetime(2026, 7, 1, tzinfo=UTC)
    model = "H100-SXM5-80GB"
    assert settings.prices == (
        GpuPrice(gpu_model=model, per_gpu_hour=3.0, end=change),
        GpuPrice(gpu_model=model, per_gpu_hour=2.5, start=change),
    )
    assert settings.budgets == (Budget(tenant="search", per_month=5000.0),)


ROW = "[[statement.prices]]\ngpu_model='A'\nper_gpu_hour="
INVOICE = "[[statement.invoices]]\nname='I'\namount=1\nstart=2026-01-01T00:00:00Z\nend="


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (f"{ROW}-1", "statement.prices of A per_gpu_hour is -1"),
        (f"{ROW}1\nkind='spot'", "statement.prices of A kind is 'spot'"),
        (f"{ROW}1\ndiscount_ratio=30", "statement.prices of A discount_ratio is 30"),
        (
            f"{ROW}1\nstart=2026-01-01T00:30:00Z",
            "statement.prices of A start is 2026-01-01T00:30:00.00:00",
        ),
        (f"{ROW}1\nend=2026-01-01T00:00:00", "statement.prices of A end is 2026-01-01T00:00:00"),
        (
            f"{ROW}1\n{ROW}2\nstart=2026-01-01T00:00:00Z",
            "the on-demand price 1 of A and the on-demand price 2 of A from 2026-01-01T00:00Z are",
        ),
        ("[[statement.budgets]]\ntenant='a'\nper_month=0", "statement.budgets per_month of a is 0"),
        (
            "[[statement.budgets]]\ntenant='a'\nper_month=1\n" * 2,
            "statement.budgets tenant is 'a'",
        ),
        (f"{INVOICE}2026-01-01T00:00:00Z", "statement.invoices I end"),
        (
            f"{INVOICE}2026-02-01T00:00:00Z\n" * 2,
            "the invoice I of 1 from 2026-01-01",
        ),
    ],
)
def test_nonsense_is_refused(tmp_path: Path, text: str, message: str) -> None:
    """The error names the setting, its row and the value; its hint says what is allowed."""
    with pytest.raises(SettingsError, match=message) as caught:
        load_settings(loaded(tmp_path, text), environ={})
    assert caught.value.hint.startswith("It must be ")


def test_a_time_without_a_zone_is_told_what_lacks(tmp_path: Path) -> None:
    """It is a whole hour; the zone is what it needs."""
    with pytest.raises(SettingsError) as caught:
        load_settings(loaded(tmp_path, f"{ROW}1\nstart=2026-01-01T00:00:00"), environ={})
    assert caught.value.hint == "It must be a time with its zone: 2026-01-01T00:00:00Z."


@pytest.mark.parametrize("region", ["DE", "GER", "eu-west-1"])
def test_a_region_that_no_fleet_can_have_is_refused(tmp_path: Path, region: str) -> None:
    """As energy.region is: a row of it would never be in force."""
    settings = load_settings(loaded(tmp_path, f"{ROW}1\nregion='{region}'"), environ={}).settings
    with pytest.raises(SettingsError, match=f"prices of A region '{region}'") as caught:
        price_list(settings, load_gpu_catalogue())
    assert "Known: " in caught.value.hint
