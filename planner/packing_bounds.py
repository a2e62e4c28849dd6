"""Capacity prices and the lower bound that they certify.

Lagrangian of the capacity rows: LB(mu) = sum_j DP_j(cost + mu * boards) - sum mu * capacity, valid
for any mu >= 0. Prices move by a projected Adam step, which needs no upper bound.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.job_paths import best_paths
from planner.problem import PlanningProblem

Values = npt.NDArray[np.float64]
Indices = npt.NDArray[np.int64]
_ITERATIONS = 60
_DECAY = 0.95
_PATIENCE = 12
_SMALLEST_GAIN = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices [T, G] per board and slot, the bound that they certify, and the paths [T, J]."""

    prices: Values
    lower_bound: float
    path: Indices


def usage_of(problem: PlanningProblem, path: Indices) -> Values:
    """Give the boards in use [T, G] of paths [T, J]."""
    slots, jobs = path.shape
    columns = np.arange(jobs)[None, :]
    models = problem.model_of[path, columns]
    boards = problem.boards[path, columns]
    rows = np.broadcast_to(np.arange(slots)[:, None], path.shape)
    used = np.zeros((slots, len(problem.gpu_models)))
    holding = models >= 0
    np.add.at(used, (rows[holding], models[holding]), boards[holding])
    return used


def priced_cost(problem: PlanningProblem, prices: Values) -> Values:
    """Give the slot costs [T, C, J] with every board charged its price."""
    padded = np.hstack([prices, np.zeros((len(prices), 1))])
    return np.asarray(problem.slot_cost + padded[:, problem.model_of] * problem.boards)


def capacity_prices(problem: PlanningProblem) -> Prices:
    """Give the best prices found in at most 60 steps; they are zero where nothing is scarce."""
    slots = len(problem.slot_starts)
    prices = np.zeros((slots, len(problem.gpu_models)))
    mean, square = np.zeros_like(prices), np.zeros_like(prices)
    known = [model.price_per_hour for model in problem.catalogue]
    step = 0.3 * float(np.median(known)) * problem.planning.slot_minutes / 60
    best: Prices | None = None
    stale = 0
    for iteration in range(_ITERATIONS):
        values, path = best_paths(priced_cost(problem, prices), problem.enter_cost)
        bound = float(values.sum() - (prices * problem.capacity).sum())
        gain = np.inf if best is None else bound - best.lower_bound
        if gain > 0:
            best = Prices(prices=prices, lower_bound=bound, path=path)
        stale = 0 if gain > _SMALLEST_GAIN * abs(bound) else stale + 1
        excess = usage_of(problem, path) - problem.capacity
        if stale >= _PATIENCE or (not prices.any() and (excess <= 1e-9).all()):
            break
        mean = 0.8 * mean + 0.2 * excess
        square = 0.95 * square + 0.05 * excess**2
        move = step * _DECAY**iteration * (mean / (1 - 0.8 ** (iteration + 1)))
        prices = np.clip(prices + move / (np.sqrt(square) + 1e-9), 0.0, None)
    if best is None:
        raise RuntimeError("no price iteration ran")
    return best
