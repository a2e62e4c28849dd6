"""Carbon and prices of real grids by the hour, and what was forecast of them when.

Carbon: CarbonCast (BuildSys 2022), issued at midnight UTC for 96 hours. Price: day-ahead auctions,
known from 13:00 of the zone's standard time on to the end of the next day, and settled as known.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pandas as pd

Values = npt.NDArray[np.float64]
HOUR = timedelta(hours=1)
_CARBON, _PRICES = (
    "carboncast_forecasts_2021H2.parquet",
    "grid_ci_price_weather_hourly_2023_2024.parquet",
)
AHEAD_OF_UTC = {
    "DE": 1, "PL": 1, "ES": 1, "NL": 1, "SE": 1, "CISO": -8, "BPAT": -8, "ERCO": -6, "NYISO": -5,
    "PJM": -5, "ISNE": -5, "FPL": -5, "AUS_QLD": 10, "DE-LU": 1, "US-CAL-CISO": -8,
    "US-TEX-ERCO": -6, "US-NY-NYIS": -5,
}  # fmt: skip
_AUCTION = 13
"""Hour of the zone's standard time from which tomorrow's day-ahead prices are taken as known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridSeries:
    """One zone: `actual` by the hour from `first` on (UTC), and what each issue told of it.

    Carbon is in gCO2e/kWh, a price per kWh in `unit`. An issue tells the hours from its own on.
    """

    zone: str
    unit: str
    first: datetime
    actual: Values
    issues: Mapping[datetime, Values]

    @property
    def ahead_of_utc(self) -> int:
        """Hours by which the zone's standard time is ahead of UTC."""
        return AHEAD_OF_UTC[self.zone]

    def at(self, hour: datetime) -> int:
        """Return the number of an hour."""
        return (hour - self.first) // HOUR

    def known_at(self, now: datetime) -> tuple[datetime, Values]:
        """Return the newest issue up to a time."""
        issued_at = max(at for at in self.issues if at <= now)
        return issued_at, self.issues[issued_at]

    def by_hour(self, before: datetime) -> list[float]:
        """Return the mean of each hour of the UTC day over all days before a time."""
        past = self.actual[: self.at(before)]
        return [float(past[hour::24].mean()) for hour in range(24)]


def carbon_series(data: Path, zone: str) -> GridSeries:
    """Return a zone's direct carbon with the forecasts as issued."""
    rows = pd.read_parquet(data / "carbon" / _CARBON)
    rows = rows[rows["region"] == zone].sort_values(["issued_utc", "lead_h"])
    issues = {
        issued_at.to_pydatetime().replace(tzinfo=UTC): block["forecast_direct"].to_numpy(float)
        for issued_at, block in rows.groupby("issued_utc")
    }
    actual = rows.drop_duplicates("target_utc").sort_values("target_utc")
    return GridSeries(
        zone=zone,
        unit="gCO2e/kWh",
        first=actual["target_utc"].iloc[0].to_pydatetime().replace(tzinfo=UTC),
        actual=actual["actual_direct"].to_numpy(float),
        issues=issues,
    )


def price_series(data: Path, zone: str) -> GridSeries:
    """Return a zone's day-ahead price per kWh; the few hours without one have the one before."""
    rows = pd.read_parquet(data / "carbon" / _PRICES)
    rows = rows[rows["region"] == zone].sort_values("time_utc")
    first = rows["time_utc"].iloc[0].to_pydatetime().replace(tzinfo=UTC)
    prices = (rows["price_per_mwh"].ffill().bfill() / 1000).to_numpy(float)
    auction = first + timedelta(hours=(_AUCTION - AHEAD_OF_UTC[zone]) % 24)
    known = 2 * 24 - _AUCTION
    days = (len(prices) - known) // 24 - 1
    issues = {}
    for day in range(days):
        issued_at = auction + timedelta(days=day)
        start = (issued_at - first) // HOUR
        issues[issued_at] = prices[start : start + known]
    return GridSeries(
        zone=zone,
        unit=str(rows["price_currency"].iloc[0]),
        first=first,
        actual=prices,
        issues=issues,
    )
