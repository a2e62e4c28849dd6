"""Board power of a job under another configuration.

A freed board stays powered unless its node is switched off: its idle power is therefore not
counted as saved in the central estimate, only in the high one.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from data.catalogue.gpu_catalogue import GpuModel
from planner.configurations import Option
from planner.power_caps import cap_effect
from planner.terms import Terms

Values = npt.NDArray[np.float64]

_MODEL_ERROR = 0.1
"""Half-width of what scaling active power to other devices may be wrong by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerEstimate:
    """Board power of a job in W per slot, and apart the idle power that its change leaves.

    `left_idle_watts` is drawn by the boards that it frees less what those that it takes drew
    idle before; negative when it takes more.
    """

    low: Values
    central: Values
    high: Values
    left_idle_watts: float


def power_under(
    power_watts: Values, present: Option, option: Option, terms: Terms
) -> PowerEstimate:
    """Give the power under `option` of a job that draws `power_watts` per slot now.

    The active part follows the work: it is kept on the same model and scales with the power range
    per unit of speed on another. Under a cap the work takes longer at less power. Errors:
    UnknownGpuModelError.
    """
    here = terms.catalogue.get(present.configuration.gpu_model)
    there = terms.catalogue.get(option.configuration.gpu_model)
    left = present.boards * here.idle_watts - option.boards * there.idle_watts
    if option is present:
        return PowerEstimate(
            low=power_watts, central=power_watts, high=power_watts, left_idle_watts=0.0
        )
    if option.configuration.power_cap_watts is not None:
        return _capped(power_watts, present, option.configuration.power_cap_watts, terms)
    if not option.boards:
        nothing = np.zeros_like(power_watts)
        return PowerEstimate(low=nothing, central=nothing, high=nothing, left_idle_watts=left)
    active = np.clip(power_watts - present.boards * here.idle_watts, 0.0, None)
    active = active * _power_per_work(here, there)
    return PowerEstimate(
        low=active * (1 - _MODEL_ERROR) + option.boards * there.idle_watts_low,
        central=active + option.boards * there.idle_watts,
        high=active * (1 + _MODEL_ERROR) + option.boards * there.idle_watts_high,
        left_idle_watts=left,
    )


def _power_per_work(here: GpuModel, there: GpuModel) -> float:
    ranges = (there.tdp_watts - there.idle_watts) / (here.tdp_watts - here.idle_watts)
    return ranges * here.relative_speed / there.relative_speed


def _capped(power_watts: Values, present: Option, cap_watts: float, terms: Terms) -> PowerEstimate:
    """Give the power under a cap, averaged so that slower work is counted to its end."""
    model = present.configuration.gpu_model
    law, count = terms.cap_laws[model], present.configuration.gpu_count
    effect = cap_effect(law, power_watts / count, cap_watts)
    ratios = (effect.slowdown_low, effect.slowdown, effect.slowdown_high)
    low, middle, high = (power_watts * effect.power_ratio * one for one in ratios)
    return PowerEstimate(low=low, central=middle, high=high, left_idle_watts=0.0)
