"""Board energy to site energy and location-based emissions, as ranges, with factors and sources.

E_site = E_gpu x PUE and CO2e = E_site x CI (GHG Protocol Scope 2, location-based, average annual
factor). Host energy is not measured by GPU telemetry and is not included; embodied emissions are
not included. Interval arithmetic over the sensor error, the PUE range and the grid range.
"""

from dataclasses import dataclass

from data.catalogue.carbon_table import GridCarbon
from data.records.decisions import Range
from data.settings import EnergySettings
from data.units import GRAMS_PER_KILOGRAM

SENSOR_ERROR_RATIO = 0.05
"""Board power sensor error that the vendor states (NVML: +-5 %)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnergyStatement:
    """Energy and emissions of one thing over one time; None where power was not reported."""

    gpu_energy_kwh: Range | None
    site_energy_kwh: Range | None
    emissions_kgco2e: Range | None
    electricity_cost: Range | None


def state_energy(
    gpu_energy_kwh: float | None, *, energy: EnergySettings, carbon: GridCarbon
) -> EnergyStatement:
    """Give the statement for a measured board energy in kWh, None when unknown."""
    if gpu_energy_kwh is None or gpu_energy_kwh != gpu_energy_kwh:
        return EnergyStatement(
            gpu_energy_kwh=None, site_energy_kwh=None, emissions_kgco2e=None, electricity_cost=None
        )
    gpu = Range(
        low=gpu_energy_kwh * (1 - SENSOR_ERROR_RATIO),
        central=gpu_energy_kwh,
        high=gpu_energy_kwh * (1 + SENSOR_ERROR_RATIO),
        unit="kWh",
    )
    site = Range(
        low=gpu.low * max(1.0, energy.pue - energy.pue_uncertainty),
        central=gpu.central * energy.pue,
        high=gpu.high * (energy.pue + energy.pue_uncertainty),
        unit="kWh",
    )
    price = energy.electricity_price_per_kwh
    return EnergyStatement(
        gpu_energy_kwh=gpu,
        site_energy_kwh=site,
        emissions_kgco2e=Range(
            low=site.low * carbon.low / GRAMS_PER_KILOGRAM,
            central=site.central * carbon.gco2e_per_kwh / GRAMS_PER_KILOGRAM,
            high=site.high * carbon.high / GRAMS_PER_KILOGRAM,
            unit="kgCO2e",
        ),
        electricity_cost=Range(
            low=site.low * price,
            central=site.central * price,
            high=site.high * price,
            unit=energy.currency,
        ),
    )


def factors_of(energy: EnergySettings, carbon: GridCarbon) -> tuple[tuple[str, str], ...]:
    """Name every factor with its value, year, source and licence."""
    grid = (
        f"{carbon.gco2e_per_kwh:g} ({carbon.low:g}–{carbon.high:g}) gCO2e/kWh, {carbon.name}, "
        f"{carbon.year}, {carbon.source}, {carbon.licence}; annual average, location-based"
    )
    price = (
        f"{energy.electricity_price_per_kwh:g} {energy.currency}/kWh "
        "(setting energy.electricity_price_per_kwh)"
    )
    return (
        ("GPU power sensor", f"±{100 * SENSOR_ERROR_RATIO:g} % (NVML documentation)"),
        ("PUE", f"{energy.pue:g} ± {energy.pue_uncertainty:g} (setting energy.pue)"),
        ("grid carbon", grid),
        ("electricity price", price),
        ("not included", "host energy, embodied emissions, market-based emissions"),
    )
