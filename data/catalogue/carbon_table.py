"""Grid carbon by region: annual averages with year, source and licence."""

import difflib
from dataclasses import dataclass
from functools import cache

from data.base.errors import SettingsError, scrub
from data.catalogue.shipped_rows import shipped_records

HOURLY_SPREAD_RATIO = 0.3
"""Assumed half-width of the hours of a year around its average; see the catalogue's README."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GridCarbon:
    """Carbon intensity of one grid in gCO2e per kWh, as low, central and high."""

    region: str
    name: str
    gco2e_per_kwh: float
    low: float
    high: float
    year: int
    source: str
    licence: str


class CarbonTable:
    """All known regions."""

    def __init__(self, grids: tuple[GridCarbon, ...]) -> None:
        self.grids = grids
        self._by_region = {grid.region: grid for grid in grids}

    def get(self, region: str, *, setting: str = "energy.region") -> GridCarbon:
        """Return the grid of a region. Errors: SettingsError with the nearest known region."""
        grid = self._by_region.get(region.upper())
        if grid is None:
            matches = [entry.region for entry in self.grids if entry.name.upper() == region.upper()]
            nearest = matches or difflib.get_close_matches(region.upper(), self._by_region, 1, 0.4)
            hint = f"Did you mean {nearest[0]}? " if nearest else ""
            raise SettingsError(
                f"{setting} {scrub(region)!r} is not in the carbon table",
                f"{hint}Known: {', '.join(self._by_region)}.",
            )
        return grid


@cache
def load_carbon_table() -> CarbonTable:
    """Return the table that ships with Trimtab."""
    return CarbonTable(
        shipped_records(
            GridCarbon,
            "grid_carbon.csv",
            low=lambda row: float(row["gco2e_per_kwh"]) * (1 - HOURLY_SPREAD_RATIO),
            high=lambda row: float(row["gco2e_per_kwh"]) * (1 + HOURLY_SPREAD_RATIO),
        )
    )
