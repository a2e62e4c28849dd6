"""Factors from measured board energy to site energy, emissions, embodied share and money.

Every factor is told with its range, source and year, and why it is no better known.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import tzinfo

from data.catalogue.carbon_table import HOURLY_SPREAD_RATIO, GridCarbon
from data.catalogue.embodied_table import LIFE_SPREAD_RATIO, EmbodiedCarbon, load_embodied_carbon
from data.settings.energy import PUE_UNCERTAINTY, EnergySettings

_LIFE_YEARS = 5.0
"""Over which the footprint of making a GPU is spread."""
SENSOR_ERROR_RATIO = 0.05
"""Board power sensor error that the vendor states (NVML: +-5 %)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Factor:
    """One factor as people read it; `year` None where it is a setting of the site."""

    name: str
    value: str
    year: int | None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Factors:
    """The numbers of a statement. `carbon` (gCO2e/kWh) and `price` are by hour of the day.

    `zone` is that of the hours, None where neither differs between them. `carbon_low_ratio` and
    `carbon_high_ratio` are the bounds of the grid's carbon in shares of it. `market` is in
    gCO2e/kWh, None when unknown.
    """

    pue: tuple[float, float, float]
    carbon: tuple[float, ...]
    carbon_low_ratio: float
    carbon_high_ratio: float
    price: tuple[float, ...]
    currency: str
    market: float | None
    embodied: Mapping[str, EmbodiedCarbon]
    life_years: float
    zone: tzinfo | None
    entries: tuple[Factor, ...]


def factors_from(energy: EnergySettings, grid: GridCarbon) -> Factors:
    """Return the factors that the settings and the grid of their region make."""
    half = PUE_UNCERTAINTY
    return Factors(
        pue=(max(1.0, energy.pue - half), energy.pue, energy.pue + half),
        carbon=energy.carbon_hours or (grid.gco2e_per_kwh,) * 24,
        carbon_low_ratio=grid.low / grid.gco2e_per_kwh,
        carbon_high_ratio=grid.high / grid.gco2e_per_kwh,
        price=energy.prices_by_hour,
        currency=energy.currency,
        market=energy.market_factor,
        embodied=load_embodied_carbon(energy.stated_footprints),
        life_years=_LIFE_YEARS,
        zone=energy.zone if energy.carbon_hours or energy.electricity_price_by_hour else None,
        entries=_factors(energy, grid),
    )


def _factors(energy: EnergySettings, grid: GridCarbon) -> tuple[Factor, ...]:
    return (
        Factor(
            name="GPU power sensor",
            value=f"±{100 * SENSOR_ERROR_RATIO:g} %",
            year=None,
            source="NVML documentation; several GPUs sample a part of the time only "
            "(arXiv 2312.02741), which evens out over hours",
        ),
        Factor(
            name="PUE",
            value=f"{energy.pue:g} ± {PUE_UNCERTAINTY:g}",
            year=None,
            source="setting energy.pue; its default is the average of the Uptime Institute's 2025 "
            "survey",
        ),
        _grid_factor(energy, grid),
        _market_factor(energy),
        Factor(
            name="life of a GPU",
            value=f"{_LIFE_YEARS:g} years ± {100 * LIFE_SPREAD_RATIO:g} %",
            year=None,
            source="usual depreciation of servers; spread over calendar hours",
        ),
        Factor(
            name="electricity price",
            value=f"24 values by the hour of the day ({energy.zone})"
            if energy.electricity_price_by_hour
            else f"{energy.electricity_price_per_kwh:g} {energy.currency}/kWh",
            year=None,
            source="setting energy.electricity_price_by_hour"
            if energy.electricity_price_by_hour
            else "setting energy.electricity_price_per_kwh",
        ),
    )


def _grid_factor(energy: EnergySettings, grid: GridCarbon) -> Factor:
    hours = energy.carbon_hours
    if hours:
        return Factor(
            name="grid carbon, location-based",
            value=f"{min(hours):g} to {max(hours):g} gCO2e/kWh by the hour of the day "
            f"({energy.zone}), ±{100 * HOURLY_SPREAD_RATIO:g} %",
            year=None,
            source="setting energy.carbon_by_hour; the range is for unlike days",
        )
    return Factor(
        name="grid carbon, location-based",
        value=f"{grid.gco2e_per_kwh:g} ({grid.low:g}–{grid.high:g}) gCO2e/kWh",
        year=grid.year,
        source=f"{grid.name}, annual average, {grid.source}, {grid.licence}; the range stands for "
        "the hours of the year",
    )


def _market_factor(energy: EnergySettings) -> Factor:
    has_factor = energy.market_factor is not None
    return Factor(
        name="grid carbon, market-based",
        value=f"{energy.market_factor:g} gCO2e/kWh" if has_factor else "unknown",
        year=None,
        source="setting energy.market_gco2e_per_kwh (contracts or residual mix)"
        if has_factor
        else "set energy.market_gco2e_per_kwh to your contracts' factor or the residual mix",
    )


def embodied_factors(factors: Factors, models: Mapping[str, float]) -> tuple[Factor, ...]:
    """Return the footprint of every model that stood in the range.

    `models` are their board-hours.
    """
    rows = []
    for model in sorted(models):
        entry = factors.embodied.get(model)
        rows.append(
            Factor(
                name=f"making of {model or 'a GPU of unknown model'}",
                value="unknown"
                if entry is None
                else f"{entry.kgco2e:g} ({entry.kgco2e_low:g}–{entry.kgco2e_high:g}) kgCO2e",
                year=None if entry is None else entry.year,
                source="no published footprint: state it in energy.embodied_kgco2e"
                if entry is None
                else entry.source,
            )
        )
    return tuple(rows)
