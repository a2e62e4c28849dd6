"""Shared resources of all jobs as rows: use in a slot has a convex piecewise linear cost.

A row r of a slot costs, at use u: floor_price * (floor - u) below the floor, nothing up to `free`,
price * (u - free) up to `limit`, and over_penalty more beyond (infinity: hard). Capacity of a GPU
type, power of a domain and quota of a tenant are all of this form, so the primal knows one rule of
fit and the dual one conjugate. The order is G types, D power domains, K tenants.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from planner.slots.broken_limits import SLACK, WhenText, broken, slot_text
from planner.slots.slot_problem import Floats, SlotProblem


@dataclass(frozen=True, slots=True, kw_only=True)
class CouplingRows:
    """Arrays [H, R], R = G + D + K; members [D, G]; priced [R] says that a row is ever soft."""

    names: tuple[str, ...]
    types: int
    domains: int
    members: npt.NDArray[np.bool_]
    floor: Floats
    floor_price: Floats
    free: Floats
    price: Floats
    limit: Floats
    over_penalty: Floats
    priced: npt.NDArray[np.bool_]

    def cost_of_use(self, used: Floats) -> Floats:
        """Return the cost [H, R] of use [H, R]; infinite beyond a hard limit."""
        below = self.floor_price * np.maximum(self.floor - used, 0.0)
        between = self.price * np.clip(used - self.free, 0.0, self.limit - self.free)
        return np.asarray(below + between + _over(self.over_penalty, used - self.limit))

    def violations(self, used: Floats, when: WhenText = slot_text) -> tuple[str, ...]:
        """Name every soft row that the use [H, R] breaks, over its limit or below its floor."""
        over = used - self.limit
        short = np.where(self.floor_price > 0, self.floor - used, 0.0)
        texts: list[str] = []
        for row, name in enumerate(self.names):
            unit = "kW" if 0 <= row - self.types < self.domains else "GPUs"
            texts += broken(name, over[:, row], f"{unit} over its limit", when)
            texts += broken(name, short[:, row], f"{unit} below its guarantee", when)
        return tuple(texts)

    def fits(self, used: Floats) -> bool:
        """Return whether no hard limit is exceeded."""
        hard = np.isinf(self.over_penalty)
        return not bool((hard & (used > self.limit + SLACK)).any())


def _over(price: Floats, over: Floats) -> Floats:
    hard = np.isinf(price)
    soft_cost = np.where(hard, 0.0, price) * np.maximum(over, 0.0)
    return np.where(hard & (over > SLACK), np.inf, soft_cost)


def coupling_rows(problem: SlotProblem) -> CouplingRows:
    """Return the rows of a problem."""
    fleet, power, quotas = problem.fleet, problem.power, problem.quotas
    slots, types = problem.slots, len(fleet.gpu_types)
    zeros = np.zeros((slots, types))
    capacity = np.asarray(fleet.capacity.T, dtype=np.float64)
    hard = np.full((slots, types), np.inf)
    names = [f"capacity of {name}" for name in fleet.gpu_types]
    floor, floor_price, free = [zeros], [zeros], [capacity]
    price, limit, over = [zeros], [capacity], [hard]
    members = np.zeros((0, types), dtype=np.bool_)
    if power is not None:
        names += [f"power of {name}" for name in power.names]
        members = np.asarray(power.members, dtype=np.bool_)
        kilowatts = np.asarray(power.limit_kw.T, dtype=np.float64)
        nothing = np.zeros_like(kilowatts)
        floor.append(nothing)
        floor_price.append(nothing)
        free.append(kilowatts)
        price.append(nothing)
        limit.append(kilowatts)
        over.append(np.broadcast_to(power.over_penalty, kilowatts.shape))
    if quotas is not None:
        names += [f"quota of {name}" for name in quotas.names]
        shape = quotas.quota.T.shape
        floor.append(quotas.guaranteed.T)
        floor_price.append(np.broadcast_to(quotas.guarantee_price, shape))
        free.append(quotas.quota.T)
        price.append(np.broadcast_to(quotas.borrow_price, shape))
        limit.append(quotas.quota.T + quotas.borrowable.T)
        over.append(np.broadcast_to(quotas.over_penalty, shape))
    soft = np.hstack(floor_price) + np.hstack(price)
    over_penalty = np.ascontiguousarray(np.hstack(over))
    return CouplingRows(
        names=tuple(names),
        types=types,
        domains=len(members),
        members=members,
        floor=np.ascontiguousarray(np.hstack(floor)),
        floor_price=np.ascontiguousarray(np.hstack(floor_price)),
        free=np.ascontiguousarray(np.hstack(free)),
        price=np.ascontiguousarray(np.hstack(price)),
        limit=np.ascontiguousarray(np.hstack(limit)),
        over_penalty=over_penalty,
        priced=np.asarray((soft > 0).any(axis=0) | np.isfinite(over_penalty).any(axis=0)),
    )


def conjugate(rows: CouplingRows, price: Floats) -> Floats:
    """Return max over use u of price * u - cost_of_use(u) per row, for prices [H, R] in the box."""
    up = np.maximum(price, 0.0)
    within = rows.free * np.minimum(up, rows.price)
    beyond = rows.limit * np.maximum(up - rows.price, 0.0)
    return np.asarray(rows.floor * np.minimum(price, 0.0) + within + beyond)


def answering_use(rows: CouplingRows, price: Floats, used: Floats) -> Floats:
    """Return use [H, R] that attains the conjugate, nearest to `used` where it is not unique."""
    kink = np.where(rows.price > 0, rows.free, rows.limit)
    at_zero = np.clip(used, rows.floor, kink)
    at_price = np.clip(used, rows.free, rows.limit)
    return np.select(
        [price < 0, price == 0, price < rows.price, price == rows.price],
        [rows.floor, at_zero, rows.free, at_price],
        rows.limit,
    )
