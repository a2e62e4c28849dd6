"""Providers of the grid's hours ahead: asked when what they said is old, kept while they fail."""

import json
import logging
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from dashboard.cli import main
from dashboard.cycle import grid_refresh
from dashboard.cycle.grid_refresh import refresh_grid
from data.base.errors import SourceUnreachableError
from data.catalogue import grid_forecast
from data.catalogue.grid_forecast import current_outlook
from data.settings.all_settings import Settings
from data.settings.energy import EnergySettings, GridSettings

NOW = datetime(2026, 1, 5, 12, 10, tzinfo=UTC)
NOON = datetime(2026, 1, 5, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)


class Providers:
    """Both providers, and how often they were asked; `down` are those that fail."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.down: set[str] = set()
        self.level = 300.0

    def carbon(self, *_asked: object) -> dict[datetime, float]:
        """Half hours of carbon."""
        return self._told("carbon", {NOON + number * HOUR / 2: self.level for number in range(4)})

    def price(self, *_asked: object) -> dict[datetime, float]:
        """Hours of prices, an hour longer."""
        return self._told(
            "price", {NOON + number * HOUR: 0.1 * (1 + number) for number in range(3)}
        )

    def _told(self, name: str, hours: dict[datetime, float]) -> dict[datetime, float]:
        self.asked.append(name)
        if name in self.down:
            raise SourceUnreachableError(f"{name} gave no answer", "")
        return hours


@pytest.fixture
def providers(monkeypatch: pytest.MonkeyPatch) -> Providers:
    """Providers that answer."""
    found = Providers()
    monkeypatch.setattr(grid_refresh, "carbon_ahead", found.carbon)
    monkeypatch.setattr(grid_refresh, "price_ahead", found.price)
    return found


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    """Both are asked."""
    return Settings(
        grid=GridSettings(
            carbon="uk-carbon-intensity",
            price_zone="X",
            price_token_file="t",  # noqa: S106 - the name of a file
            file=str(tmp_path / "state" / "grid.json"),
        )
    )


def test_plans_use_what_they_said_at_every_time_that_either_tells_of(
    providers: Providers, settings: Settings
) -> None:
    """Half hours beside hours: each value holds for its own step, and no longer."""
    assert refresh_grid(settings, NOW) == ()
    forecast = current_outlook(settings, NOW).forecast
    assert forecast is not None
    assert forecast.issued_at == NOW
    told = dict(
        zip(
            forecast.starts,
            zip(forecast.gco2e_per_kwh, forecast.price_per_kwh, strict=True),
            strict=True,
        )
    )
    assert told[NOON + HOUR / 2] == (300, 0.1)
    assert told[NOON + 2 * HOUR] == (None, pytest.approx(0.3))
    assert (
        current_outlook(settings, NOW)
        .describe()
        .startswith("forecast of uk-carbon-intensity and entsoe issued 2026-01-05 12:10 UTC")
    )
    assert Path(settings.grid.file).stat().st_mode & 0o077 == 0
    assert providers.asked == ["carbon", "price"]


def test_they_are_asked_again_once_what_they_said_is_old(
    providers: Providers, settings: Settings
) -> None:
    """Not by every cycle."""
    for minutes in (0, 15, 59):
        refresh_grid(settings, NOW + timedelta(minutes=minutes))
    assert len(providers.asked) == 2
    providers.level = 200.0
    refresh_grid(settings, NOW + HOUR)
    assert len(providers.asked) == 4
    forecast = current_outlook(settings, NOW + HOUR).forecast
    assert forecast is not None
    assert forecast.gco2e_per_kwh[0] == 200


def test_who_fails_leaves_what_was_said_until_it_is_too_old(
    providers: Providers,
    settings: Settings,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Named in the log; then plans do without, and say why."""
    refresh_grid(settings, NOW)
    before = Path(settings.grid.file).read_bytes()
    providers.down = {"price"}
    providers.level = 200.0
    with caplog.at_level(logging.WARNING):
        assert refresh_grid(settings, NOW + HOUR) == ("price gave no answer",)
    assert "price gave no answer" in caplog.text
    assert Path(settings.grid.file).read_bytes() == before
    monkeypatch.setattr(grid_forecast, "MAX_AGE_HOURS", 1.0)
    outlook = current_outlook(settings, NOW + 1.5 * HOUR)
    assert outlook.forecast is None
    assert outlook.why_not.startswith("uk-carbon-intensity and entsoe: the newest issue in ")
    refresh_grid(settings, NOW + 1.5 * HOUR)
    forecast = current_outlook(settings, NOW + 1.5 * HOUR).forecast
    assert forecast is not None
    assert forecast.gco2e_per_kwh[0] == 200
    assert set(forecast.price_per_kwh) == {None}


def test_nobody_answers_at_first(providers: Providers, settings: Settings) -> None:
    """The hours of the day of the settings go on."""
    providers.down = {"carbon", "price"}
    assert len(refresh_grid(settings, NOW)) == 2
    assert not Path(settings.grid.file).exists()
    assert current_outlook(settings, NOW).why_not == (
        "uk-carbon-intensity and entsoe told nothing yet"
    )


def test_a_file_that_somebody_names_comes_first(
    providers: Providers, settings: Settings, tmp_path: Path
) -> None:
    """Nobody is asked then; nor without a provider."""
    own = tmp_path / "own.json"
    own.write_text(
        json.dumps([{"issued_at": NOW.isoformat(), "time": NOON.isoformat(), "gco2e_per_kwh": 7}])
    )
    named = replace(settings, energy=EnergySettings(forecast_file=str(own)))
    assert refresh_grid(named, NOW) == refresh_grid(Settings(), NOW) == ()
    forecast = current_outlook(named, NOW).forecast
    assert forecast is not None
    assert forecast.gco2e_per_kwh == (7,)
    assert providers.asked == []


def test_the_doctor_asks_them(
    providers: Providers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Who fails is missing, by name."""
    providers.down = {"carbon"}
    path = tmp_path / "trimtab.toml"
    path.write_text(
        '[grid]\ncarbon = "uk-carbon-intensity"\n[store]\nurl = "duckdb:///store.duckdb"\n',
        encoding="utf-8",
    )
    main(["--settings", str(path), "doctor", "--format=json"])
    rows = {row["part"]: row for row in json.loads(capsys.readouterr().out)}
    assert rows["grid forecast"]["state"] == "missing"
    assert "carbon gave no answer" in rows["grid forecast"]["detail"]
