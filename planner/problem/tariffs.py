"""What a kWh costs and emits in each slot, from the hours of the day that the settings state."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from statistics import fmean

import numpy as np
import numpy.typing as npt

from data.catalogue.carbon_table import GridCarbon
from data.settings import EnergySettings
from data.units import GRAMS_PER_KILOGRAM

Values = npt.NDArray[np.float64]
_GRAMS_PER_TONNE = 1000 * GRAMS_PER_KILOGRAM
_STEP = timedelta(minutes=5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Tariff:
    """Electricity price (per kWh) and grid carbon (gCO2e/kWh) per slot, arrays [slots].

    `mean_*` are over a whole day: what an hour that is not known yet will be like. `hourly_carbon`
    says whether the carbon is that of hours rather than an annual average.
    """

    electricity: Values
    gco2e: Values
    mean_electricity: float
    mean_gco2e: float
    carbon_price_per_tonne: float
    hourly_carbon: bool

    @property
    def per_kwh(self) -> Values:
        """The price of a kWh with the price of its carbon, array [slots]."""
        return self.electricity + self.carbon_of_kwh

    @property
    def mean_per_kwh(self) -> float:
        """The price of a kWh with the price of its carbon, over a whole day."""
        carbon = self.mean_gco2e / _GRAMS_PER_TONNE * self.carbon_price_per_tonne
        return self.mean_electricity + carbon

    @property
    def carbon_of_kwh(self) -> Values:
        """The price of the carbon of a kWh, array [slots]."""
        return self.gco2e / _GRAMS_PER_TONNE * self.carbon_price_per_tonne


def tariff_of(
    slot_starts: Sequence[datetime],
    slot: timedelta,
    *,
    energy: EnergySettings,
    carbon: GridCarbon,
) -> Tariff:
    """Return the tariff of slots (UTC); a slot of several hours has their mean."""
    prices = energy.prices_by_hour
    grid = energy.carbon_hours or (carbon.gco2e_per_kwh,) * 24
    return Tariff(
        electricity=_by_slot(prices, slot_starts, slot, energy.hour_offset),
        gco2e=_by_slot(grid, slot_starts, slot, energy.hour_offset),
        mean_electricity=fmean(prices),
        mean_gco2e=fmean(grid),
        carbon_price_per_tonne=energy.carbon_price_per_tonne,
        hourly_carbon=bool(energy.carbon_hours),
    )


def _by_slot(
    by_hour: Sequence[float], starts: Sequence[datetime], slot: timedelta, offset: float
) -> Values:
    """Return the mean over each slot, looked at every five minutes."""
    table = np.array(by_hour)
    steps = np.arange(max(1, slot // _STEP)) * _STEP.total_seconds()
    first = np.array([at.timestamp() for at in starts]) + offset * 3600
    hours = ((first[:, None] + steps[None, :]) // 3600 % 24).astype(np.int64)
    return np.asarray(table[hours].mean(axis=1), dtype=np.float64)
