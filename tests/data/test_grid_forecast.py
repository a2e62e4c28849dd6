"""A forecast of the grid is read as it was issued; what cannot be used is named, never guessed."""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from data.base.errors import SettingsError
from data.catalogue import grid_forecast
from data.catalogue.grid_forecast import grid_outlook, read_grid_forecast
from data.settings.energy import EnergySettings

NOW = datetime(2026, 1, 5, 12, 30, tzinfo=UTC)
HEADER = "issued_at,time,gco2e_per_kwh,price_per_kwh"


def written(folder: Path, *rows: str, name: str = "grid.csv", header: str = HEADER) -> Path:
    """A file of these rows."""
    path = folder / name
    path.write_text("\n".join((header, *rows)), encoding="utf-8")
    return path


def energy(path: Path, **changes: float) -> EnergySettings:
    """Settings that name the file."""
    return EnergySettings(forecast_file=str(path), **changes)  # type: ignore[arg-type]


def test_the_newest_issue_up_to_now_counts_and_never_a_later_one(tmp_path: Path) -> None:
    """What is issued an hour later is not known yet, whatever it says."""
    path = written(
        tmp_path,
        "2026-01-05T14:00:00+01:00,2026-01-05T14:00:00Z,1,",  # 13:00 UTC: not issued yet
        "2026-01-05T06:00:00Z,2026-01-05T14:00:00Z,310,-0.02",
        "2026-01-05T06:00:00Z,2026-01-05T13:00:00Z,300,",
        "2026-01-04T06:00:00Z,2026-01-05T13:00:00Z,900,9",
    )
    found = read_grid_forecast(path, NOW)
    assert found.issued_at == datetime(2026, 1, 5, 6, tzinfo=UTC)
    assert [at.hour for at in found.starts] == [13, 14]
    assert found.gco2e_per_kwh == (300.0, 310.0)
    assert found.price_per_kwh == (None, -0.02)
    assert found.step == timedelta(hours=1)
    assert "issued 2026-01-05 06:00 UTC" in grid_outlook(energy(path), NOW).describe()


def test_json_says_the_same(tmp_path: Path) -> None:
    """A list of objects with the names of the columns."""
    path = tmp_path / "grid.json"
    row = {"issued_at": "2026-01-05T06:00:00Z", "time": "2026-01-05T13:00Z", "gco2e_per_kwh": 250}
    path.write_text(json.dumps([row]), encoding="utf-8")
    assert read_grid_forecast(path, NOW).gco2e_per_kwh == (250.0,)


def test_an_old_issue_is_not_used_and_says_how_old_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Thirty hours and a half, where thirty are allowed; and one whose last hour is over."""
    path = written(tmp_path, "2026-01-04T06:00:00Z,2026-01-06T06:00:00Z,300,")
    monkeypatch.setattr(grid_forecast, "MAX_AGE_HOURS", 31.0)
    assert grid_outlook(energy(path), NOW).forecast is not None
    monkeypatch.setattr(grid_forecast, "MAX_AGE_HOURS", 30.0)
    stale = grid_outlook(energy(path), NOW)
    assert stale.forecast is None
    assert "30.5 h old" in stale.why_not
    assert "one is used for 30 h" in stale.describe()
    over = written(tmp_path, "2026-01-05T06:00:00Z,2026-01-05T11:00:00Z,300,", name="over.csv")
    assert "ended at 2026-01-05 12:00 UTC" in grid_outlook(energy(over), NOW).why_not


def test_without_a_file_nothing_is_said() -> None:
    """No forecast is the default, and no failure."""
    assert grid_outlook(EnergySettings(), NOW).describe() == ""


@pytest.mark.parametrize(
    ("rows", "named"),
    [
        (["2026-01-05T06:00:00,2026-01-05T13:00:00Z,300,"], "issued_at"),
        (["2026-01-05T06:00:00Z,noon,300,"], "time is 'noon'"),
        (["2026-01-05T06:00:00Z,2026-01-05T13:00:00Z,-1,"], "row 1: gco2e_per_kwh is '-1'"),
        (["2026-01-05T06:00:00Z,2026-01-05T13:00:00Z,nan,"], "gco2e_per_kwh"),
        (["2026-01-05T06:00:00Z,2026-01-05T13:00:00Z,3,200"], "price_per_kwh"),
        (["2026-01-05T06:00:00Z,2026-01-05T13:00:00Z,,"], "neither"),
        (["2026-01-05T06:00:00Z,2026-01-05T13:00:00Z,3,"] * 2, "twice"),
        (["2026-01-05T13:00:00Z,2026-01-05T13:00:00Z,3,"], "no issue up to 2026-01-05 12:30"),
        ([], "no row"),
    ],
)
def test_a_wrong_file_is_named_with_its_row(tmp_path: Path, rows: list[str], named: str) -> None:
    """The message holds file, row, value and fix; a plan goes on without it and says why."""
    path = written(tmp_path, *rows)
    with pytest.raises(SettingsError, match=named) as raised:
        read_grid_forecast(path, NOW)
    assert str(path) in raised.value.message
    assert raised.value.hint
    assert named in grid_outlook(energy(path), NOW).why_not


@pytest.mark.parametrize("text", ["{", "[1]", '{"time": 1}', "[" * 100_000])
@pytest.mark.usefixtures("no_garbage")
def test_json_of_another_shape_is_refused(tmp_path: Path, text: str) -> None:
    """Whatever it holds, it is no crash."""
    path = tmp_path / "grid.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SettingsError, match=r"grid\.json"):
        read_grid_forecast(path, NOW)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    """The plan goes on without it."""
    outlook = grid_outlook(energy(tmp_path / "none.csv"), NOW)
    assert "cannot be read: No such file" in outlook.why_not
