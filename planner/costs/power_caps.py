"""Effects of a power cap on a job's boards, by the law of their generation."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from data.catalogue.gpu_catalogue import CapLaw

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class CapEffect:
    """Per slot: power under the cap over power without, and time under it over time without.

    Not `measured`: somewhere boards are held below anything that was, and the slowdown there is
    that of the lowest measured point.
    """

    power_ratio: Values
    slowdown_low: Values
    slowdown: Values
    slowdown_high: Values
    measured: bool


def cap_effect(law: CapLaw, board_watts: Values, cap_watts: float) -> CapEffect:
    """Return the effect on boards that draw `board_watts` [slots] without the cap."""
    demand = np.maximum(board_watts, 1e-9)
    # In units of the larger of the two, so that the power of -8 neither over- nor underflows.
    larger = np.maximum(demand, law.reach * cap_watts)
    ratio = np.minimum(demand, law.reach * cap_watts) / larger
    settled = ratio * larger * (1 + ratio**law.sharpness) ** (-1 / law.sharpness)
    power_ratio = np.minimum(settled / demand, 1.0)
    low, middle, high = (
        np.interp(power_ratio, law.power_ratios, row)
        for row in (law.slowdown_low, law.slowdown, law.slowdown_high)
    )
    return CapEffect(
        power_ratio=power_ratio,
        slowdown_low=low,
        slowdown=middle,
        slowdown_high=high,
        measured=bool(power_ratio.min() >= law.power_ratios[0]),
    )
