"""Board power of a job under another configuration.

A freed board stays powered unless its node is switched off, which is a recommendation of its own:
its idle power is therefore not counted as saved. A board that is held draws a little more.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.problem.configurations import Option
from planner.problem.job_demand import JobDemand
from planner.problem.power_caps import cap_effect
from planner.problem.terms import Terms

Values = npt.NDArray[np.float64]

MODEL_ERROR = 0.1
"""Half-width of what scaling active power to other devices may be wrong by."""
CURVE = 0.19
"""Half-width (q10-q90) of the exponent, around 1, by which power follows activity: what work draws
that is put on fewer boards is uncertain by so much times the log of their ratio; an assumption."""
HELD = (0.025, 0.125, 0.225)
"""What a process that holds a board adds to its idle power, as shares of it: low, central, high.
An assumption: boards with a context keep higher clocks, by how much differs by model and driver."""

_SWANSON = (0.3, 0.4, 0.3)
"""Weights of q10, q50 and q90 in a mean (Hurst, Brown and Swanson, AAPG Bulletin 2000)."""


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
    """Return the power under `option` of a job that draws `power_watts` per slot now.

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
    busy = 1 + HELD[1]
    active = np.clip(power_watts - present.boards * here.idle_watts * busy, 0.0, None)
    active = active * power_per_work(present, option, terms)
    return PowerEstimate(
        low=active * (1 - MODEL_ERROR) + option.boards * there.idle_watts_low * (1 + HELD[0]),
        central=active + option.boards * there.idle_watts * busy,
        high=active * (1 + MODEL_ERROR) + option.boards * there.idle_watts_high * (1 + HELD[2]),
        left_idle_watts=left,
    )


def expected_power(
    demand: JobDemand, present: Option, option: Option, terms: Terms
) -> Values | None:
    """Return the power of a job under `option` that its forecast leads to expect, W [slots].

    None where power is unknown. A cap bites the deeper the more a job draws, so what it saves is
    the mean over the forecast, by Swanson's weights, and not what it saves of the median.
    """
    paths = (demand.power_q10, demand.power_q50, demand.power_q90)
    if demand.power_q50 is None:
        return None
    central = power_under(demand.power_q50, present, option, terms).central
    if option is present or option.configuration.power_cap_watts is None:
        return central
    saved = [
        weight * (path - power_under(path, present, option, terms).central)
        for weight, path in zip(_SWANSON, paths, strict=True)
        if path is not None
    ]
    return central if len(saved) < len(paths) else np.asarray(demand.power_q50 - sum(saved))


def power_per_work(present: Option, option: Option, terms: Terms) -> float:
    """Return what work draws under an option over what it draws now, beyond idle boards."""
    if not option.boards:
        return 0.0
    here = terms.catalogue.get(present.configuration.gpu_model)
    there = terms.catalogue.get(option.configuration.gpu_model)
    ranges = (there.tdp_watts - there.idle_watts) / (here.tdp_watts - here.idle_watts)
    return ranges * here.relative_speed / there.relative_speed


def _capped(power_watts: Values, present: Option, cap_watts: float, terms: Terms) -> PowerEstimate:
    """Return the power under a cap, averaged so that slower work is counted to its end."""
    model = present.configuration.gpu_model
    law, count = terms.cap_laws[model], present.configuration.gpu_count
    effect = cap_effect(law, power_watts / count, cap_watts)
    ratios = (effect.slowdown_low, effect.slowdown, effect.slowdown_high)
    low, middle, high = (power_watts * effect.power_ratio * ratio for ratio in ratios)
    return PowerEstimate(low=low, central=middle, high=high, left_idle_watts=0.0)
