"""Board power of a job under another configuration.

A freed board stays powered unless its node is switched off, which is a recommendation of its own:
its idle power is therefore not counted as saved. A board that is held draws a little more.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.costs.configurations import Option
from planner.costs.free_boards import FreeBoard, free_board, freed_board
from planner.costs.power_caps import cap_effect
from planner.costs.terms import Terms
from planner.jobs.expected_value import mean_of
from planner.jobs.job_demand import JobDemand
from planner.jobs.power_curve import HOLDING_SHARES, PowerCurve

Values = npt.NDArray[np.float64]

MODEL_ERROR = 0.1
"""Half-width of what scaling active power to other devices may be wrong by."""

HIDDEN = ((np.arange(20) + 0.5) / 20) ** 4
"""Equally likely shares of added boards that work takes which found none before: mostly little; an
assumption, set on seeds 1, 3 and 4 of `benchmarks.promises`."""


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
    power_watts: Values, present: Option, option: Option, terms: Terms, curve: PowerCurve
) -> PowerEstimate:
    """Return the power under `option` of a job that draws `power_watts` per slot now.

    The active part follows the work by the job's `curve`, and scales with the power range on
    another model. Under a cap the work takes longer at less power. Errors: UnknownGpuModelError.
    """
    there = terms.catalogue.get(option.configuration.gpu_model)
    if option is present:
        return PowerEstimate(
            low=power_watts, central=power_watts, high=power_watts, left_idle_watts=0.0
        )
    if option.configuration.power_cap_watts is not None:
        return _capped(power_watts, present, option.configuration.power_cap_watts, terms)
    here = free_under(power_watts, present, option, terms)
    if not option.boards:
        nothing = np.zeros_like(power_watts)
        watts = present.boards * here.mean
        return PowerEstimate(low=nothing, central=nothing, high=nothing, left_idle_watts=watts)
    same = option.configuration.gpu_model == present.configuration.gpu_model
    then = here if same else free_board(there)
    busy = 1 + HOLDING_SHARES[1]
    active = np.clip(power_watts - present.boards * here.mean * busy, 0.0, None)
    active = active * power_per_work(present, option, terms, curve)
    if option.grows:
        active = active * (1 + float(HIDDEN.mean()) * (option.service / present.service - 1))
    return PowerEstimate(
        low=active * (1 - MODEL_ERROR) + option.boards * then.low * (1 + HOLDING_SHARES[0]),
        central=active + option.boards * then.mean * busy,
        high=active * (1 + MODEL_ERROR) + option.boards * then.high * (1 + HOLDING_SHARES[2]),
        left_idle_watts=present.boards * here.mean - option.boards * then.mean,
    )


def free_under(power_watts: Values, present: Option, option: Option, terms: Terms) -> FreeBoard:
    """Return the power of a free board of the present model, by the job's power."""
    here = terms.catalogue.get(present.configuration.gpu_model)
    if option.paused:  # its work is put off and not saved: idle boards as plans count them
        return FreeBoard(low=here.idle_watts_low, mean=here.idle_watts, high=here.idle_watts_high)
    if not len(power_watts) or present.configuration.mig_profile:
        return free_board(here)
    rests = not option.boards
    watts = power_watts.mean() if rests else power_watts.min()
    return freed_board(here, float(watts) / present.boards, rests=rests, boards=present.boards)


def expected_draw(
    demand: JobDemand, present: Option, option: Option, terms: Terms
) -> Values | None:
    """Return the power that a job's forecast leads to expect, with what is left idle, W [slots].

    None where power is unknown. A cap bites the deeper the more a job draws, so what it saves is
    the mean over the forecast and not what it saves of the median forecast.
    """
    if demand.power_q50 is None:
        return None
    power = power_under(demand.power_q50, present, option, terms, demand.power_curve)
    drawn = np.asarray(power.central + power.left_idle_watts)
    paths = (demand.power_q10, demand.power_q50, demand.power_q90)
    if option.configuration.power_cap_watts is None or option is present:
        return drawn
    saved = [
        path - power_under(path, present, option, terms, demand.power_curve).central
        for path in paths
        if path is not None
    ]
    return drawn if len(saved) < len(paths) else np.asarray(demand.power_q50 - mean_of(*saved))


def power_per_work(present: Option, option: Option, terms: Terms, curve: PowerCurve) -> float:
    """Return the ratio of an option's power to the present one, beyond idle boards.

    In a slice or beside another job, work keeps a part of a whole board busy: its activity is that
    of the same work on the whole board.
    """
    if not option.boards:
        return 0.0
    here = terms.catalogue.get(present.configuration.gpu_model)
    there = terms.catalogue.get(option.configuration.gpu_model)
    ranges = (there.tdp_watts - there.idle_watts) / (here.tdp_watts - here.idle_watts)
    now, then = present.configuration, option.configuration
    boards = then.gpu_count / now.gpu_count
    return ranges * boards * curve.rise(activity_ratio(present, option, terms))


def activity_ratio(present: Option, option: Option, terms: Terms) -> float:
    """Return the ratio of boards' activity under an option to that of now, for the same work."""
    now, then = present.configuration, option.configuration
    if now.mig_profile or then.mig_profile:
        speeds = [terms.catalogue.get(board.gpu_model).relative_speed for board in (now, then)]
        return now.gpu_count * speeds[0] / (then.gpu_count * speeds[1])
    return present.service / option.service


def cap_draw(
    power_watts: Values, present: Option, cap_watts: float, terms: Terms
) -> tuple[Values, tuple[Values, Values, Values]]:
    """Return the power under a cap of work that is not slowed, and what slower work adds to it.

    q10, median and q90 of that, averaged so that slower work is counted to its end.
    """
    law = terms.cap_laws[present.configuration.gpu_model]
    effect = cap_effect(law, power_watts / present.configuration.gpu_count, cap_watts)
    capped = power_watts * effect.power_ratio
    low, middle, high = (
        capped * (row - 1) for row in (effect.slowdown_low, effect.slowdown, effect.slowdown_high)
    )
    return capped, (low, middle, high)


def _capped(power_watts: Values, present: Option, cap_watts: float, terms: Terms) -> PowerEstimate:
    """Return the power under a cap: in the mean slower work draws more than in the median."""
    capped, added = cap_draw(power_watts, present, cap_watts, terms)
    return PowerEstimate(
        low=capped + added[0],
        central=capped + mean_of(*added),
        high=capped + added[2],
        left_idle_watts=0.0,
    )
