"""The certified lower bound of a plan: the best of three, in float64, with its name.

`prices`: the Lagrangian value at the best prices. `prices and labels`: the same with every job
that has work bounded by labels. `jobs alone`: every job on its own optimum plus the nodes that jobs
bound to one type need in any case, whole nodes counted; it wins on a handful of jobs.
Nodes are counted as ceil(boards in use / boards per node), so Martello and Toth's L2 on board
counts is not a bound of this problem: it is one where jobs must not be repacked.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from data.base.errors import PlanningError
from planner.slots.slot_problem import Floats
from planner.solver.bound_kernel import job_values
from planner.solver.insertion_kernel import node_total
from planner.solver.kernel_problem import KernelProblem, empty_draft, uncoupled
from planner.solver.prices import Market, PriceExchange, ResourcePrices, node_bound
from planner.solver.primal import InsertionPrices, charges_of

BY_PRICES, BY_LABELS, BY_JOBS = "prices", "prices and labels", "jobs alone"
BY_MODEL = "exact model"
_CHUNK = 8
_ROUNDING = 1e-6
"""Share of a cost that sums of floats in another order may differ by."""
_FEW_JOBS = 256
"""With more jobs, what whole nodes add is nothing beside what prices add."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """A lower bound of every plan's cost, and which of the bounds it is."""

    value: float
    name: str


def checked_bound(bound: float, cost: float) -> float:
    """Return the bound to publish beside the cost of a feasible plan.

    A bound above the cost is wrong, whatever made it: it raises PlanningError instead of being cut
    down to a gap of zero.
    """
    if bound > cost + _ROUNDING * max(1.0, abs(cost)):
        raise PlanningError(
            f"the lower bound {bound:.6f} lies above the cost {cost:.6f} of a feasible plan",
            "the certificate is wrong: report it with the problem",
        )
    return min(bound, cost)


def priced_constant(market: PriceExchange, prices: ResourcePrices) -> float:
    """Return the part of the Lagrangian that no job decides, with the best numbers of nodes."""
    worth = market.node_price(prices) * market.fleet.boards_per_node
    rows = market.conjugates(prices)
    return max(market.constant(prices), node_bound(market.fleet, worth) - rows)


def certified_bound(
    kernel: KernelProblem,
    market: Market,
    prices: ResourcePrices,
    *,
    forced: Floats,
    label_room: int,
    expired: Callable[[], bool],
) -> Bound:
    """Return the best bound that these prices certify."""
    charges = charges_of(market, prices)
    constant = priced_constant(market, prices)
    jobs = jobs_bound(kernel, charges, label_room=label_room, expired=expired)
    bound = replace(jobs, value=jobs.value + constant)
    return better_with_jobs_alone(bound, kernel, charges.lam, forced)


def better_with_jobs_alone(
    bound: Bound, kernel: KernelProblem, lam: Floats, forced: Floats
) -> Bound:
    """Return the better of a bound and, with few jobs, that of every job on its own."""
    if len(kernel.present) > _FEW_JOBS:
        return bound
    return better(bound, jobs_alone(kernel, lam, forced))


def jobs_bound(
    kernel: KernelProblem, charges: InsertionPrices, *, label_room: int, expired: Callable[[], bool]
) -> Bound:
    """Return the jobs' part of the bound of these charges: what they cost at least in all.

    Labels are run job by job until expired; the jobs left then keep the bound of their prices.
    """
    values = np.zeros(len(kernel.present))
    draft = empty_draft(kernel, charges.lam)
    free = uncoupled(kernel)
    job_values(free, np.arange(len(values)), charges.rows, charges.nodes, draft, 0, values)
    bound = Bound(value=float(values.sum()), name=BY_PRICES)
    workers = np.flatnonzero(kernel.work > 0)
    if label_room > 0 and len(workers) and not expired():
        at, size = 0, 1  # one job first: with milliseconds left a whole chunk would be late
        while at < len(workers) and not (at and expired()):
            part = workers[at : at + size]
            job_values(free, part, charges.rows, charges.nodes, draft, label_room, values)
            at, size = at + size, min(2 * size, _CHUNK)
        bound = better(bound, Bound(value=float(values.sum()), name=BY_LABELS))
    return bound


def jobs_alone(kernel: KernelProblem, lam: Floats, forced: Floats) -> Bound:
    """Return the sum of the jobs' own optima and of the nodes that forced boards [H, G] need."""
    values = np.zeros(len(kernel.present))
    free, draft = uncoupled(kernel), empty_draft(kernel, lam)
    nothing = np.zeros_like(kernel.limit)
    unpriced = np.zeros_like(kernel.node_cost)
    job_values(free, np.arange(len(values)), nothing, unpriced, draft, 0, values)
    nodes = sum(node_total(kernel, kind, forced) for kind in range(forced.shape[1]))
    return Bound(value=float(values.sum() + nodes), name=BY_JOBS)


def better(one: Bound, other: Bound) -> Bound:
    """Return the higher of two bounds."""
    return other if other.value > one.value else one
