"""Board power of a job under another configuration, and the energy that a change saves.

A freed board stays powered unless its node is switched off: its idle power is therefore not
counted as saved in the central estimate, only in the high one.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from data.catalogue.gpu_catalogue import GpuCatalogue
from data.records.decisions import Range
from data.settings import EnergySettings
from planner.configurations import Option

Values = npt.NDArray[np.float64]

CAP_ENERGY_RATIO = (0.72, 0.86, 1.06)
"""Energy under a 65-75 % cap relative to uncapped, low, median, high (Zeus NSDI'23 traces, V100 at
70 %: 0.845, 0.71-1.06; A40 at 67 %: 0.866, 0.78-1.09). Not measured on Hopper."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerEstimate:
    """Board power of a job in W per slot; idle power of the boards it frees apart."""

    low: Values
    central: Values
    high: Values
    freed_idle_watts: float


def power_under(
    power_watts: Values, present: Option, option: Option, catalogue: GpuCatalogue
) -> PowerEstimate:
    """Give the power under `option` of a job that draws `power_watts` per slot now.

    The active part follows the work: it is kept on the same model and scales with the power range
    per unit of speed on another. Errors: UnknownGpuModelError.
    """
    here = catalogue.get(present.configuration.gpu_model)
    freed = max(0.0, present.boards - option.boards) * here.idle_watts
    if option.configuration.power_cap_watts is not None:
        low, central, high = (power_watts * ratio for ratio in CAP_ENERGY_RATIO)
        return PowerEstimate(low=low, central=central, high=high, freed_idle_watts=0.0)
    if option.configuration.gpu_count == 0:
        nothing = np.zeros_like(power_watts)
        return PowerEstimate(low=nothing, central=nothing, high=nothing, freed_idle_watts=freed)
    there = catalogue.get(option.configuration.gpu_model)
    active = np.clip(power_watts - present.boards * here.idle_watts, 0.0, None)
    per_work = (
        (there.tdp_watts - there.idle_watts)
        / (here.tdp_watts - here.idle_watts)
        * here.relative_speed
        / there.relative_speed
    )
    if there.name != here.name:
        freed = present.boards * here.idle_watts
    idle = option.boards
    return PowerEstimate(
        low=active * per_work * 0.9 + idle * there.idle_watts_low,
        central=active * per_work + idle * there.idle_watts,
        high=active * per_work * 1.1 + idle * there.idle_watts_high,
        freed_idle_watts=freed,
    )


def energy_saved(
    power_watts: tuple[Values, Values, Values],
    present: Option,
    option: Option,
    *,
    catalogue: GpuCatalogue,
    slot_hours: float,
    energy: EnergySettings,
) -> Range:
    """Give the site energy saved over the horizon in kWh; negative low means it may cost energy.

    `power_watts` are the q10, q50, q90 paths of the job's board power. Low and high combine the
    power quantiles, the estimate's own range and the PUE range.
    """
    totals = []
    for path in power_watts:
        estimate = power_under(path, present, option, catalogue)
        before = path.sum()
        stays = estimate.freed_idle_watts * len(path)
        totals.append(
            (
                before - estimate.high.sum() - stays,
                before - estimate.central.sum() - stays,
                before - estimate.low.sum(),
            )
        )
    scale = slot_hours / 1000
    central = totals[1][1] * scale * energy.pue
    factors = (max(1.0, energy.pue - energy.pue_uncertainty), energy.pue + energy.pue_uncertainty)
    every = [one * scale * pue for row in totals for one in row for pue in factors]
    return Range(low=min(*every, central), central=central, high=max(*every, central), unit="kWh")
