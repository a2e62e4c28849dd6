"""The objective of a round: finish much work soon, restart only where it pays.

A job with work R left, goodput g(c) and time T = R / g(c) is worth R_h^-beta T^-p on c. R_h is R
in hours of one fastest GPU. Short jobs go first, since p is above 0; beta below 0 gives some of it
back to long ones. A move counts as if every T were longer by the restart's share of the time until
the next one: what a restart costs is spread over what it buys.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveSettings:
    """The numbers of the objective; the defaults were chosen on Philly workloads 1 and 2 alone.

    `short_first` is beta, `speed_power` p. `restart_weight` multiplies the amortised restart,
    `horizons_s` bound the time it is spread over, which is age / (restarts + 1) inside them. A job
    whose restart takes `costly_restart_s` or more stays where it is for at least
    `residence_restarts` times that, or waits, but for idle GPUs.
    """

    short_first: float = -0.1
    speed_power: float = 0.4
    restart_weight: float = 1.5
    horizons_s: tuple[float, float] = (120.0, 3600.0)
    waiting_cost: float = 50.0
    costly_restart_s: float = 100.0
    residence_restarts: float = 10.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class RoundJobs:
    """Arrays over the jobs [J] and configurations [C] of a round.

    `goodput` [J, C] is 0 where it is unknown or barred, `allowed` [J, C] says which may be taken,
    `present` [J] is the present configuration (-1: none), `locked` [J] that it must stay. Times: s.
    """

    goodput: Floats
    allowed: Flags
    remaining: Floats
    reference: Floats
    present: Ints
    locked: Flags
    restart: Floats
    horizon: Floats
    resident: Floats


def completion_seconds(jobs: RoundJobs) -> Floats:
    """Return T0 [J, C] = work left / goodput, infinite where the goodput is 0."""
    with np.errstate(divide="ignore"):
        return np.asarray(jobs.remaining[:, None] / jobs.goodput, dtype=np.float64)


def costs(jobs: RoundJobs, settings: ObjectiveSettings) -> Floats:
    """Return the cost [J, C + 1] of every choice, the last being nothing; infinite when barred."""
    count, configs = jobs.goodput.shape
    profiled = jobs.goodput.any(axis=1)
    time = completion_seconds(jobs)
    running = jobs.present >= 0
    moves = np.broadcast_to(running[:, None], time.shape).copy()
    rows = np.flatnonzero(running)
    moves[rows, jobs.present[rows]] = False
    horizon = np.minimum(jobs.horizon[:, None], np.maximum(time, 1.0))
    slower = 1.0 + settings.restart_weight * jobs.restart[:, None] / horizon
    charged = np.where(moves, time * slower, time) / _HOUR
    worth = np.maximum(jobs.remaining / (_HOUR * jobs.reference), 1e-9) ** -settings.short_first
    cost = np.full((count, configs + 1), np.inf)
    usable = jobs.allowed & (jobs.goodput > 0)
    with np.errstate(divide="ignore"):
        value = -worth[:, None] * charged**-settings.speed_power
    cost[:, :configs] = np.where(usable, value, np.inf)
    cost[:, configs] = 0.0
    cost[~profiled, :configs] = np.where(jobs.allowed[~profiled], 0.0, np.inf)
    cost[~profiled, configs] = settings.waiting_cost
    _keep_costly(cost, jobs, settings)
    for row in np.flatnonzero(jobs.locked & (jobs.present >= 0)):
        stay = cost[row, jobs.present[row]]
        cost[row] = np.inf
        cost[row, jobs.present[row]] = stay if np.isfinite(stay) else 0.0
    return cost


def _keep_costly(cost: Floats, jobs: RoundJobs, settings: ObjectiveSettings) -> None:
    """Let jobs of costly restarts only stay or wait for their residence.

    They may wait: a short queue of short jobs is worth more than what a long one does meanwhile.
    Barring that as well cost 8 % of mean JCT on Philly 1 and 2.
    """
    stay = (
        (jobs.present >= 0)
        & (jobs.restart >= settings.costly_restart_s)
        & (jobs.resident < settings.residence_restarts * jobs.restart)
    )
    for row in np.flatnonzero(stay):
        present_cost = cost[row, jobs.present[row]]
        if np.isfinite(present_cost):
            cost[row, :-1] = np.inf
            cost[row, jobs.present[row]] = present_cost
