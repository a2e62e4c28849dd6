"""Forecasts of the grid as issued: carbon and price of a kWh by time, from a file.

The file is CSV with a header, or a JSON list of objects, of `issued_at`, `time`, `gco2e_per_kwh`
and `price_per_kwh`; one of the last two may be missing. A file may hold several issues. Without a
file, or where it cannot be used, plans take the hours of the day of the settings, and say why.
"""

import csv
import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

from data.base.errors import SettingsError, scrub
from data.base.files import read_small_file
from data.settings.all_settings import Settings
from data.settings.energy import EnergySettings

MAX_AGE_HOURS = 36.0
"""A forecast of a day and a half ago says little of now."""
_MAX_BYTES = 8 << 20
_LIMITS = {"gco2e_per_kwh": (0.0, 1e4), "price_per_kwh": (-100.0, 100.0)}
_FIX = "Write issued_at, time, gco2e_per_kwh and price_per_kwh in each row (docs/energy.md)."


@dataclass(frozen=True, slots=True, kw_only=True)
class GridForecast:
    """One issue: what it foresees from each of `starts` (UTC, ascending) on for `step`.

    `gco2e_per_kwh` and `price_per_kwh` have a value per start, None where the issue says nothing.
    """

    issued_at: datetime
    starts: tuple[datetime, ...]
    step: timedelta
    gco2e_per_kwh: tuple[float | None, ...]
    price_per_kwh: tuple[float | None, ...]

    @property
    def ends_at(self) -> datetime:
        """The end of the last time that it is about."""
        return self.starts[-1] + self.step


@dataclass(frozen=True, slots=True, kw_only=True)
class GridOutlook:
    """The forecast that plans use, None without one; `why_not` says why the file's is not used.

    `whose` it is where providers were asked, '' for a file.
    """

    forecast: GridForecast | None = None
    why_not: str = ""
    whose: str = ""

    def without_prices(self) -> "GridOutlook":
        """Return the outlook of carbon alone."""
        if self.forecast is None:
            return self
        unknown = (None,) * len(self.forecast.starts)
        return replace(self, forecast=replace(self.forecast, price_per_kwh=unknown))

    def describe(self) -> str:
        """Return the grid's hours ahead as plans know them, in words, '' where no file is named."""
        if self.forecast is None:
            return f"no forecast: {self.why_not}" if self.why_not else ""
        issued, until = self.forecast.issued_at, self.forecast.ends_at
        by = f" of {self.whose}" if self.whose else ""
        return f"forecast{by} issued {issued:%Y-%m-%d %H:%M} UTC, until {until:%Y-%m-%d %H:%M} UTC"


def current_outlook(settings: Settings, at: datetime) -> GridOutlook:
    """Return the forecast that plans use at a time: of `energy.forecast_file`, else of providers.

    What providers said stands in a file of the same form (`dashboard/cycle/grid_refresh.py`).
    """
    energy, grid = settings.energy, settings.grid
    if energy.forecast_file or not grid.in_use:
        return grid_outlook(energy, at)
    whose = " and ".join(filter(None, (grid.carbon, grid.price)))
    if not Path(grid.file).exists():
        return GridOutlook(why_not=f"{whose} told nothing yet")
    outlook = grid_outlook(replace(energy, forecast_file=grid.file), at)
    why_not = outlook.why_not.replace("energy.forecast_file", "grid.file")
    return replace(outlook, why_not=why_not and f"{whose}: {why_not}", whose=whose)


def grid_outlook(energy: EnergySettings, at: datetime) -> GridOutlook:
    """Return the newest forecast that was issued up to a time, or why there is none to use."""
    if not energy.forecast_file:
        return GridOutlook()
    try:
        forecast = read_grid_forecast(Path(energy.forecast_file), at)
    except SettingsError as error:
        return GridOutlook(why_not=str(error))
    age_hours = (at - forecast.issued_at).total_seconds() / 3600
    if age_hours > MAX_AGE_HOURS:
        return GridOutlook(
            why_not=f"the newest issue in {energy.forecast_file} is {age_hours:.1f} h old, "
            f"one is used for {MAX_AGE_HOURS:g} h"
        )
    if forecast.ends_at <= at:
        ends = f"{forecast.ends_at:%Y-%m-%d %H:%M} UTC"
        return GridOutlook(why_not=f"the newest issue in {energy.forecast_file} ended at {ends}")
    return GridOutlook(forecast=forecast)


def read_grid_forecast(path: Path, at: datetime) -> GridForecast:
    """Return the newest issue up to a time. Errors: SettingsError naming the file and the row."""
    try:
        text = read_small_file(path, max_bytes=_MAX_BYTES).decode("utf-8-sig")
        rows = (
            json.loads(text) if path.suffix == ".json" else list(csv.DictReader(text.split("\n")))
        )
    except OSError as error:
        raise SettingsError(
            f"energy.forecast_file {path} cannot be read: {error.strerror}",
            "Name a file that Trimtab may read, or leave the setting empty",
        ) from error
    except (ValueError, RecursionError, csv.Error) as error:
        raise SettingsError(
            f"energy.forecast_file {path} is no CSV and no JSON: {scrub(str(error))}", _FIX
        ) from error
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise SettingsError(f"energy.forecast_file {path} is no list of objects", _FIX)
    return _newest(path, rows, at)


def _newest(path: Path, rows: Iterable[Mapping[str, object]], at: datetime) -> GridForecast:
    issues: dict[datetime, dict[datetime, tuple[float | None, float | None]]] = {}
    for number, row in enumerate(rows, start=1):
        where = f"energy.forecast_file {path}, row {number}"
        issued_at, start = (_time(row, name, where) for name in ("issued_at", "time"))
        carbon, price = (_number(row, name, where) for name in _LIMITS)
        if start in issues.setdefault(issued_at, {}):
            raise SettingsError(f"{where}: {start.isoformat()} is there twice in one issue", _FIX)
        issues[issued_at][start] = carbon, price
    past = [issued_at for issued_at in issues if issued_at <= at]
    if not past:
        reason = "no row" if not issues else f"no issue up to {at:%Y-%m-%d %H:%M} UTC"
        raise SettingsError(f"energy.forecast_file {path} has {reason}", _FIX)
    issue = dict(sorted(issues[max(past)].items()))
    carbons, prices = zip(*issue.values(), strict=True)
    if all(value is None for value in (*carbons, *prices)):
        raise SettingsError(
            f"energy.forecast_file {path} has neither gco2e_per_kwh nor price_per_kwh", _FIX
        )
    return GridForecast(
        issued_at=max(past),
        starts=tuple(issue),
        step=min((after - before for before, after in pairwise(issue)), default=timedelta(hours=1)),
        gco2e_per_kwh=carbons,
        price_per_kwh=prices,
    )


def _time(row: Mapping[str, object], name: str, where: str) -> datetime:
    text = str(row.get(name) or "")
    try:
        at = datetime.fromisoformat(text)
        utc = None if at.utcoffset() is None else at.astimezone(UTC)
    except (ValueError, OverflowError):
        utc = None
    if utc is None:
        raise SettingsError(
            f"{where}: {name} is {scrub(repr(text))}, no time with its zone",
            "Write times such as 2026-01-05T12:00:00Z",
        )
    return utc


def _number(row: Mapping[str, object], name: str, where: str) -> float | None:
    """Return a value, None where the row has none."""
    cell = row.get(name)
    if cell is None or cell == "":
        return None
    low, high = _LIMITS[name]
    try:
        value = float(cell) if isinstance(cell, (int, float, str)) else math.nan
    except (ValueError, OverflowError):
        value = math.nan
    if isinstance(cell, bool) or not low <= value <= high:
        raise SettingsError(
            f"{where}: {name} is {scrub(repr(cell))}, no number from {low:g} to {high:g}",
            "Leave the field empty where it is unknown",
        )
    return value
