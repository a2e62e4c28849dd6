"""Emissions of an amount of site energy: location-based, annual average factor."""

from data.catalogue.carbon_table import GridCarbon
from data.records.decisions import Range
from data.units import GRAMS_PER_KILOGRAM


def emissions_of(energy_kwh: Range, carbon: GridCarbon) -> Range:
    """Give kgCO2e for a range of site energy in kWh; CO2e = E x CI (GHG Protocol Scope 2)."""
    corners = [
        amount * factor / GRAMS_PER_KILOGRAM
        for amount in (energy_kwh.low, energy_kwh.high)
        for factor in (carbon.low, carbon.high)
    ]
    central = energy_kwh.central * carbon.gco2e_per_kwh / GRAMS_PER_KILOGRAM
    return Range(
        low=min(*corners, central), central=central, high=max(*corners, central), unit="kgCO2e"
    )
