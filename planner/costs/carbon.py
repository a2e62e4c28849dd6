"""Emissions of an amount of site energy: location-based and market-based, never mixed."""

from data.base.units import GRAMS_PER_KILOGRAM
from data.catalogue.carbon_table import GridCarbon
from data.records.recommendations import Range


def emissions_of(
    energy_kwh: Range, carbon: GridCarbon, gco2e_per_kwh: float | None = None
) -> Range:
    """Return location-based kgCO2e for a range of energy; CO2e = E x CI (GHG Protocol Scope 2).

    `gco2e_per_kwh` is the grid's carbon of the hours in question, its annual average without; the
    range around it is as wide, in proportion, as that around the average.
    """
    central = carbon.gco2e_per_kwh if gco2e_per_kwh is None else gco2e_per_kwh
    scale = central / carbon.gco2e_per_kwh
    return _product(energy_kwh, (carbon.low * scale, central, carbon.high * scale))


def market_emissions_of(energy_kwh: Range | None, factor: float | None) -> Range | None:
    """Return market-based kgCO2e by a contract's or residual mix's factor, None without either."""
    if energy_kwh is None or factor is None:
        return None
    return _product(energy_kwh, (factor, factor, factor))


def _product(energy_kwh: Range, factors: tuple[float, float, float]) -> Range:
    low, central, high = factors
    corners = [
        amount * factor / GRAMS_PER_KILOGRAM
        for amount in (energy_kwh.low, energy_kwh.high)
        for factor in (low, high)
    ]
    middle = energy_kwh.central * central / GRAMS_PER_KILOGRAM
    return Range(
        low=min(*corners, middle), central=middle, high=max(*corners, middle), unit="kgCO2e"
    )
