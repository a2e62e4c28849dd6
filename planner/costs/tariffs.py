"""Price and emissions of a kWh by slot: by a forecast as far as it reaches, else by the hour.

The hours of the day that the settings state are raised or lowered to the level of the forecast.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta, tzinfo

import numpy as np
import numpy.typing as npt

from data.base.clock import stretches_of_offset
from data.base.units import GRAMS_PER_KILOGRAM, SECONDS_PER_HOUR
from data.catalogue.carbon_table import GridCarbon
from data.catalogue.grid_forecast import GridForecast, GridOutlook
from data.settings.energy import EnergySettings

Values = npt.NDArray[np.float64]
_GRAMS_PER_TONNE = 1000 * GRAMS_PER_KILOGRAM
_STEP = timedelta(minutes=5)
_DAY = 24


@dataclass(frozen=True, slots=True, kw_only=True)
class Tariff:
    """Electricity price (per kWh) and grid carbon (gCO2e/kWh), `*_ahead` per slot [2 · slots].

    The second half is beyond the horizon: hours to which work may be put off. `*_of_day` [24] are
    the hours of the day after the first slot: what an hour that is not known yet will be like.
    `hourly_carbon` says whether the carbon is that of hours rather than an annual average; `grid`
    what forecast they come from.
    """

    electricity_ahead: Values
    gco2e_ahead: Values
    electricity_of_day: Values
    gco2e_of_day: Values
    carbon_price_per_tonne: float
    hourly_carbon: bool
    grid: GridOutlook

    @property
    def electricity(self) -> Values:
        """The electricity price of a kWh, array [slots]."""
        return self.electricity_ahead[: len(self.electricity_ahead) // 2]

    @property
    def gco2e(self) -> Values:
        """The grid's carbon in gCO2e/kWh, array [slots]."""
        return self.gco2e_ahead[: len(self.gco2e_ahead) // 2]

    @property
    def mean_electricity(self) -> float:
        """The electricity price of a kWh over a whole day."""
        return float(self.electricity_of_day.mean())

    @property
    def mean_gco2e(self) -> float:
        """The grid's carbon over a whole day, gCO2e/kWh."""
        return float(self.gco2e_of_day.mean())

    @property
    def per_kwh(self) -> Values:
        """The price of a kWh with the price of its carbon, array [slots]."""
        return self.electricity + self.carbon_of_kwh

    @property
    def per_kwh_ahead(self) -> Values:
        """The price of a kWh with the price of its carbon, array [2 · slots]."""
        return self.electricity_ahead + self.gco2e_ahead * self._priced(1.0)

    @property
    def mean_per_kwh(self) -> float:
        """The price of a kWh with the price of its carbon, over a whole day."""
        return self.mean_electricity + self._priced(self.mean_gco2e)

    @property
    def carbon_of_kwh(self) -> Values:
        """The price of the carbon of a kWh, array [slots]."""
        return self.gco2e * self._priced(1.0)

    def _priced(self, gco2e: float) -> float:
        return gco2e / _GRAMS_PER_TONNE * self.carbon_price_per_tonne


def tariff_of(
    slot_starts: Sequence[datetime],
    slot: timedelta,
    *,
    energy: EnergySettings,
    carbon: GridCarbon,
    grid: GridOutlook | None = None,
) -> Tariff:
    """Return the tariff of slots (UTC); a slot of several hours has their mean."""
    grid = grid or GridOutlook()
    first, length = slot_starts[0].timestamp(), slot.total_seconds()
    slots: Values = first + length * np.arange(2 * len(slot_starts), dtype=np.float64)
    slots[: len(slot_starts)] = [at.timestamp() for at in slot_starts]
    day: Values = first + SECONDS_PER_HOUR * np.arange(_DAY, dtype=np.float64)

    def ahead(by_hour: Sequence[float], values: Sequence[float | None]) -> tuple[Values, Values]:
        hours = _Hours(np.array(by_hour), energy.zone, grid.forecast, values)
        return hours.means(slots, length), hours.means(day, SECONDS_PER_HOUR)

    forecast = grid.forecast
    gco2e = () if forecast is None else forecast.gco2e_per_kwh
    electricity, electricity_of_day = ahead(
        energy.prices_by_hour, () if forecast is None else forecast.price_per_kwh
    )
    grams, grams_of_day = ahead(energy.carbon_hours or (carbon.gco2e_per_kwh,) * _DAY, gco2e)
    return Tariff(
        electricity_ahead=electricity,
        gco2e_ahead=grams,
        electricity_of_day=electricity_of_day,
        gco2e_of_day=grams_of_day,
        carbon_price_per_tonne=energy.carbon_price_per_tonne,
        hourly_carbon=bool(energy.carbon_hours) or any(value is not None for value in gco2e),
        grid=grid,
    )


@dataclass(frozen=True, slots=True)
class _Hours:
    """A quantity over time: `ahead` by a forecast from each of its starts on, else by the hour."""

    by_hour: Values
    zone: tzinfo
    forecast: GridForecast | None
    ahead: Sequence[float | None]

    def means(self, starts: Values, length: float) -> Values:
        """Return the mean over each stretch of `length` s, looked at every five minutes."""
        step = _STEP.total_seconds()
        steps = np.arange(max(1, int(length // step))) * step
        times = starts[:, None] + steps[None, :]
        values = self._by_hour(times)
        forecast = self._ahead(times)
        valid = np.isfinite(forecast)
        return np.asarray(np.where(valid, forecast, values * self._level()).mean(axis=1))

    def _by_hour(self, times: Values) -> Values:
        first, last = (datetime.fromtimestamp(at, tz=UTC) for at in (times.min(), times.max()))
        spans = [*stretches_of_offset(first, last + _STEP, self.zone)]
        starts = np.array([since.timestamp() for since, _until, _offset in spans])
        offsets = np.array([offset for _since, _until, offset in spans])
        local = times + offsets[np.searchsorted(starts, times, side="right") - 1]
        return np.asarray(self.by_hour[(local // SECONDS_PER_HOUR % _DAY).astype(np.int64)])

    def _ahead(self, times: Values) -> Values:
        if self.forecast is None:
            return np.full(times.shape, np.nan)
        starts = np.array([at.timestamp() for at in self.forecast.starts])
        values = np.array([np.nan if value is None else value for value in self.ahead])
        place = np.searchsorted(starts, times, side="right") - 1
        inside = (place >= 0) & (times < starts[place] + self.forecast.step.total_seconds())
        return np.where(inside, values[place], np.nan)

    def _level(self) -> float:
        """Return the ratio of the forecast's hours to the same hours by the hour of the day."""
        if self.forecast is None:
            return 1.0
        starts = np.array([at.timestamp() for at in self.forecast.starts])
        forecast = self._ahead(starts)
        valid = np.isfinite(forecast)
        usual = float(self._by_hour(starts)[valid].sum())
        return max(0.0, float(forecast[valid].sum())) / usual if usual > 0 else 1.0
