"""Amounts of a statement row, as ranges, from sums of joules, board-time and work.

Two frames: `priced` gives every part its energy, emissions and money; `row_of` turns sums of
parts into one row. Sums are linear, so rows add up to their total in every central amount.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import numpy as np
import pandas as pd

from dashboard.accounting.energy.factors import SENSOR_ERROR_RATIO, Factors
from dashboard.accounting.energy.statement import Holder, StatementRow
from data.base.units import GRAMS_PER_KILOGRAM, JOULES_PER_KWH, SECONDS_PER_HOUR, known
from data.records.recommendations import Range

_RULES = ("joules", "joules_by_slices", "joules_by_activity")
"""The store's rule for sharing a board, then the two pure ones: their spread is the split's."""

_BOUNDS = ("low", "central", "high")
SUMS = (
    *(f"{quantity}_{rule}" for quantity in ("kwh", "kg", "cost") for rule in _RULES),
    *(
        f"{name}_hours"
        for name in ("board", "measured", "held", "idle", "used", "embodied", "scored")
    ),
    *(f"{name}_{bound}" for name in ("embodied", "scored_embodied") for bound in _BOUNDS),
    "scored_kg",
    "scored_work_hours",
)
"""The columns of `priced` that add up."""

NOTHING = dict.fromkeys(SUMS, float("nan"))
"""The sums of no part."""


def priced(parts: pd.DataFrame, factors: Factors) -> pd.DataFrame:
    """Return the parts (StoreReader.energy_parts) with what sums of them need.

    Columns per rule: kwh_, kg_ (location-based, at the grid's central carbon of the hour) and
    cost_; hours; embodied_low, _central and _high in kg; scored_*, of models of known footprint.
    """
    rows = parts[["start", "holder", "key", "gpu_model"]].copy()
    hours = parts["hour_of_day"].to_numpy(dtype=np.int64)
    carbon = np.array(factors.carbon)[hours] / GRAMS_PER_KILOGRAM
    price = np.array(factors.price)[hours]
    for rule in _RULES:
        kwh = parts[rule] / JOULES_PER_KWH
        rows[f"kwh_{rule}"] = kwh
        rows[f"kg_{rule}"] = kwh * factors.pue[1] * carbon
        rows[f"cost_{rule}"] = kwh * factors.pue[1] * price
    for name in ("board", "measured", "held", "idle", "used"):
        rows[f"{name}_hours"] = parts[f"{name}_seconds"] / SECONDS_PER_HOUR
    _add_embodied(rows, parts, factors)
    rated = rows["embodied_central"].notna()
    rows["scored_hours"] = (parts["scored_seconds"] / SECONDS_PER_HOUR).where(rated)
    rows["scored_kg"] = (parts["scored_joules"] / JOULES_PER_KWH * factors.pue[1] * carbon).where(
        rated
    )
    rows["scored_work_hours"] = (parts["scored_work_seconds"] / SECONDS_PER_HOUR).where(rated)
    return rows


def _add_embodied(rows: pd.DataFrame, parts: pd.DataFrame, factors: Factors) -> None:
    """Add what the board-hours carry of their boards' making, NaN for models of no footprint."""
    rates = {
        model: name.kgco2e_per_hour(factors.life_years) for model, name in factors.embodied.items()
    }
    unknown = (np.nan,) * len(_BOUNDS)
    per_hour = np.array([rates.get(model, unknown) for model in parts["gpu_model"]])
    scored_hours = parts["scored_seconds"] / SECONDS_PER_HOUR
    for place, bound in enumerate(_BOUNDS):
        rate = per_hour[:, place] if len(per_hour) else np.array([])
        rows[f"embodied_{bound}"] = rows["board_hours"] * rate
        rows[f"scored_embodied_{bound}"] = scored_hours * rate
    rows["embodied_hours"] = rows["board_hours"].where(rows["embodied_central"].notna())


def sums_of(parts: pd.DataFrame, by: list[str]) -> pd.DataFrame:
    """Add priced parts up; a sum is NaN only where every part of it is."""
    return parts.groupby(by, sort=True)[list(SUMS)].sum(min_count=1)


def row_of(
    sums: Any, *, start: datetime, end: datetime, holder: Holder, key: str, factors: Factors
) -> StatementRow:
    """Return a row of sums: a mapping of the columns of `priced`."""
    kwh = known(sums["kwh_joules"])
    energy = location = None
    pues = tuple(pue / factors.pue[1] for pue in factors.pue)
    if kwh is not None:
        energy = _spread(sums, "kwh", "kWh", (1.0, 1.0, 1.0))
        bounds = (factors.carbon_low_ratio, 1.0, factors.carbon_high_ratio)
        carbon = tuple(pue * bound for pue, bound in zip(pues, bounds, strict=True))
        location = _spread(sums, "kg", "kgCO2e", carbon)
    gpu_hours = None if holder is Holder.MISSING else known(sums["held_hours"]) or 0.0
    site = energy and _times(energy, factors.pue, "kWh")
    market = factors.market
    embodied = _embodied(sums, "embodied")
    return StatementRow(
        start=start,
        end=end,
        holder=holder,
        key=key,
        board_hours=known(sums["board_hours"]) or 0.0,
        measured_hours=known(sums["measured_hours"]) or 0.0,
        gpu_hours=gpu_hours,
        idle_gpu_hours=0.0 if gpu_hours == 0 else known(sums["idle_hours"]),
        used_gpu_hours=0.0 if gpu_hours == 0 else known(sums["used_hours"]),
        gpu_energy_kwh=energy,
        site_energy_kwh=site,
        location_kgco2e=location,
        market_kgco2e=None
        if site is None or market is None
        else _times(site, (market / GRAMS_PER_KILOGRAM,) * 3, "kgCO2e"),
        embodied_kgco2e=embodied,
        electricity_cost=None if energy is None else _spread(sums, "cost", factors.currency, pues),
        sci_gco2e=_sci(sums, location),
        embodied_hours=known(sums["embodied_hours"]) or 0.0,
        scored_hours=known(sums["scored_hours"]) or 0.0,
        work_gpu_hours=known(sums["scored_work_hours"]),
    )


def _around(low: float, central: float, high: float, unit: str) -> Range:
    """Return the range of bounds that rounding may have moved beyond its middle."""
    return Range(low=min(low, central), central=central, high=max(high, central), unit=unit)


def _spread(sums: Any, quantity: str, unit: str, ratios: Sequence[float]) -> Range:
    """Return a quantity of the three rules with the sensor's error, times further ratios."""
    rules = [known(sums[f"{quantity}_{rule}"]) for rule in _RULES]
    amounts = [rule for rule in rules if rule is not None]
    low = min(amounts) * (1 - SENSOR_ERROR_RATIO) * ratios[0]
    high = max(amounts) * (1 + SENSOR_ERROR_RATIO) * ratios[2]
    return _around(low, float(sums[f"{quantity}_joules"]) * ratios[1], high, unit)


def _times(value: Range, factors: tuple[float, float, float], unit: str) -> Range:
    low, central, high = factors
    return _around(value.low * low, value.central * central, value.high * high, unit)


def _embodied(sums: Any, name: str) -> Range | None:
    amounts = [known(sums[f"{name}_{bound}"]) for bound in _BOUNDS]
    low, central, high = amounts
    if low is None or central is None or high is None:
        return None
    return Range(low=low, central=central, high=high, unit="kgCO2e")


def _sci(sums: Any, location: Range | None) -> Range | None:
    """Return (E x I + M) / R in g per GPU-hour of work; None without work or a known part.

    The operational part has the relative range of the row's location-based emissions.
    """
    work, kg = known(sums["scored_work_hours"]), known(sums["scored_kg"])
    making = _embodied(sums, "scored_embodied")
    if not work or kg is None or making is None or location is None:
        return None
    widths = (
        (location.low / location.central, location.high / location.central)
        if location.central
        else (1.0, 1.0)
    )
    per_work = GRAMS_PER_KILOGRAM / work
    return _around(
        (kg * widths[0] + making.low) * per_work,
        (kg + making.central) * per_work,
        (kg * widths[1] + making.high) * per_work,
        "gCO2e/GPU-h",
    )
