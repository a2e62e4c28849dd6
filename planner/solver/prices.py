"""Prices of shared resources, by projected Adam steps on the Lagrangian dual.

    bound(y) = sum_j DP_j(y) - sum_rows conjugate(y) - boots_0 * nodes_on + least node cost

Every row has a price in a box: [0, inf) for a hard limit, down to -guarantee price and up to the
price of violation for a soft one. Nodes: a price w_t in [0, boot cost] on every boot makes
one node cost r_t = node_cost_t + w_t - w_{t+1}, and a board max(0, r_t) / boards per node. Written
so, the step on w sees the difference of nodes in use between two slots instead of all or nothing.

Adam needs no upper bound, unlike Polyak's step: 20 steps reach 0.05 % of the best bound.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from planner.slots.coupling_rows import CouplingRows, answering_use, conjugate
from planner.slots.dp_kernel import price_blocks
from planner.slots.lanes import LANES, Lanes
from planner.slots.slot_problem import Floats, Indices, SlotFleet


def max_nodes(fleet: SlotFleet) -> Floats:
    """Return the number of nodes of every type that may be on at once [G].

    A cheapest plan never has more on than are on now or than some slot's boards need.
    """
    there = np.ceil(fleet.capacity.max(axis=1) / fleet.boards_per_node - 1e-6)
    return np.asarray(np.maximum(there, fleet.nodes_on))


def reduced_node_cost(fleet: SlotFleet, boots: Floats) -> Floats:
    """Return node cost [H, G] with prices [H, G] in [0, boot cost] on every boot."""
    following = np.vstack([boots[1:], np.zeros((1, boots.shape[1]))])
    return np.asarray(fleet.node_cost.T + boots - following)


def node_bound(fleet: SlotFleet, worth: Floats) -> float:
    """Return the least sum of node cost - worth and boots, worth [H, G] of one node in a slot.

    Exact: the layers that are on now are alike, so are the others, and one layer is a dynamic
    program over off and on.
    """
    total = 0.0
    for kind, most in enumerate(max_nodes(fleet)):
        now = float(fleet.nodes_on[kind])
        boot = float(fleet.boot_cost[kind])
        gain = fleet.node_cost[kind] - worth[:, kind]
        off, on = np.zeros(2), np.array([0.0, np.inf])
        for slot in range(len(gain)):
            off, on = np.minimum(off, on), np.minimum(on, off + boot) + gain[slot]
        total += float(np.array([now, most - now]) @ np.minimum(off, on))
    return total


SMALL_JOBS = 200
_MOMENTUM, _MEMORY = 0.8, 0.95
_COLD_RATE, _COLD_DECAY = 0.12, 0.95
_MAX_PRICE = _COLD_RATE / (1 - _COLD_DECAY)
"""The sum of all steps of a cold search, in typical prices. The price of a limit that cannot be
kept is its penalty, which may be far beyond: it has steps of its own."""
_WARM_RATE, _WARM_DECAY, _WARM_STEPS = 0.02, 0.8, 3


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourcePrices:
    """rows [H, R] per board or kW, boots [H, G] per node switched on, work [B, 16] (lam)."""

    rows: Floats
    boots: Floats
    work: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockAnswer:
    """The answer of some blocks' jobs to prices: values [B, 16], their sum, use [H, R]."""

    value: float
    values: Floats
    used: Floats
    work: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceExchange(ABC):
    """The market of shared resources: prices go to jobs, and their answers come back."""

    rows: CouplingRows
    fleet: SlotFleet

    @property
    @abstractmethod
    def all_blocks(self) -> Indices:
        """Return every block of jobs."""

    @abstractmethod
    def ask(self, prices: ResourcePrices, blocks: Indices, *, searches: int) -> BlockAnswer:
        """Return the optimum of every job of the blocks at these prices."""

    @abstractmethod
    def free_prices(self) -> ResourcePrices:
        """Return prices of zero; work at a third of what unfinished work costs."""

    def node_price(self, prices: ResourcePrices) -> Floats:
        """Return the price of a board for its node [H, G]."""
        reduced = reduced_node_cost(self.fleet, prices.boots)
        return np.asarray(np.maximum(reduced, 0.0) / self.fleet.boards_per_node)

    def charges(self, prices: ResourcePrices) -> tuple[Floats, Floats, Floats]:
        """Return the price of a board [H, G], of a kW [H, G] and of a tenant's board [H, K + 1]."""
        types, domains = self.rows.types, self.rows.domains
        board = prices.rows[:, :types] + self.node_price(prices)
        kilowatt = prices.rows[:, types : types + domains] @ self.rows.members.astype(np.float64)
        tenant = prices.rows[:, types + domains :]
        return board, kilowatt, np.hstack([tenant, np.zeros((len(tenant), 1))])

    def constant(self, prices: ResourcePrices) -> float:
        """Return the part of the bound that no job decides."""
        reduced = reduced_node_cost(self.fleet, prices.boots)
        nodes = (max_nodes(self.fleet) * np.minimum(reduced, 0.0)).sum()
        now = (prices.boots[0] * self.fleet.nodes_on).sum()
        return float(nodes - now - self.conjugates(prices))

    def boxed(self, rows: Floats, boots: Floats) -> ResourcePrices:
        """Return free prices with these of rows [H, R] and boots [H, G], brought into their box.

        Work is priced as in `free_prices`.
        """
        high = np.maximum(self.rows.over_penalty, self.rows.price)
        return replace(
            self.free_prices(),
            rows=np.clip(rows, -self.rows.floor_price, high),
            boots=np.clip(boots, 0.0, self.fleet.boot_cost),
        )

    def conjugates(self, prices: ResourcePrices) -> float:
        """Return the sum of the rows' conjugates at these prices: the worth of their limits."""
        return float(conjugate(self.rows, prices.rows).sum())

    def excess(self, prices: ResourcePrices, used: Floats) -> tuple[Floats, Floats]:
        """Return the supergradient at use [H, R]: of the row prices and of the boot prices."""
        reduced = reduced_node_cost(self.fleet, prices.boots)
        share = used[:, : self.rows.types] / self.fleet.boards_per_node
        nodes = np.where(reduced < 0, max_nodes(self.fleet), share)
        before = np.vstack([self.fleet.nodes_on[None, :], nodes[:-1]])
        return used - answering_use(self.rows, prices.rows, used), nodes - before


@dataclass(frozen=True, slots=True, kw_only=True)
class Market(PriceExchange):
    """The packed jobs and their shared resources, with the answers to prices."""

    lanes: Lanes

    @property
    def all_blocks(self) -> Indices:
        """Return every block."""
        return np.arange(len(self.lanes.rows))

    def ask(self, prices: ResourcePrices, blocks: Indices, *, searches: int) -> BlockAnswer:
        """Return the optimum of every job of the blocks at these prices."""
        board, kilowatt, tenant = (
            np.ascontiguousarray(charge, dtype=np.float32) for charge in self.charges(prices)
        )
        value = np.zeros((len(self.lanes.rows), LANES))
        used = np.zeros_like(prices.rows)
        work = prices.work.copy()
        members = self.rows.members
        price_blocks(
            self.lanes, blocks, board, kilowatt, tenant, members, searches, work, value, used
        )
        return BlockAnswer(value=float(value.sum()), values=value, used=used, work=work)

    def free_prices(self) -> ResourcePrices:
        """Return prices of zero; work at a third of what unfinished work costs."""
        shape = self.rows.limit.shape
        return ResourcePrices(
            rows=np.zeros(shape),
            boots=np.zeros((shape[0], self.rows.types)),
            work=self.lanes.unfinished_price / 3,
        )


class Adam:
    """Projected Adam on the prices of a market; `step` moves once along an excess."""

    def __init__(self, market: PriceExchange, scale: Floats, *, rate: float, decay: float) -> None:
        self._market = market
        self._scale = scale
        self._rate, self._decay = rate, decay
        slots, types = len(market.rows.limit), market.rows.types
        self._mean = np.zeros((slots, scale.size + types))
        self._square = np.zeros_like(self._mean)
        self._boot = market.fleet.boot_cost
        self._low = -market.rows.floor_price
        self._high = np.maximum(market.rows.over_penalty, market.rows.price)
        self._steps = 0

    def step(self, prices: ResourcePrices, used: Floats) -> ResourcePrices:
        """Return the prices after one step at the use [H, R] of all jobs."""
        over, switched = self._market.excess(prices, used)
        slope = np.hstack([over, switched])
        self._mean = _MOMENTUM * self._mean + (1 - _MOMENTUM) * slope
        self._square = _MEMORY * self._square + (1 - _MEMORY) * slope**2
        size = self._rate * self._decay**self._steps
        self._steps += 1
        mean = self._mean / (1 - _MOMENTUM**self._steps)
        square = self._square / (1 - _MEMORY**self._steps)
        move = size * mean / (np.sqrt(square) + 1e-9)
        rows = over.shape[1]
        charged = prices.rows + move[:, :rows] * self._scale
        switching = prices.boots + 0.5 * move[:, rows:] * self._boot
        return replace(
            prices,
            rows=np.clip(charged, self._low, self._high),
            boots=np.clip(switching, 0.0, self._boot),
        )


def price_scale(market: PriceExchange, answer: BlockAnswer) -> Floats:
    """Return a typical price [R] of a board or kW: what the jobs pay for one at zero prices."""
    types, domains = market.rows.types, market.rows.domains
    boards = answer.used[:, :types].sum()
    unit = abs(answer.value) / boards if boards > 0 else 1.0
    scale = np.full(len(market.rows.names), max(unit, 1e-9))
    power = answer.used[:, types : types + domains].sum(axis=0)
    for domain in range(domains):
        fed = answer.used[:, :types][:, market.rows.members[domain]].sum()
        if power[domain] > 0:
            scale[types + domain] = unit * fed / power[domain]
    return scale


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceSearch:
    """The best prices found and the bound by iteration.

    values [B, 16] are the jobs' at the best prices; scale [R] is that of the steps.
    """

    prices: ResourcePrices
    bound: float
    values: Floats
    scale: Floats
    trace: tuple[float, ...]


def search_prices(
    market: PriceExchange,
    start: ResourcePrices,
    *,
    iterations: int,
    rate: float,
    decay: float,
    scale: Floats | None = None,
    patience: int = 5,
    smallest_gain: float = 1e-4,
    expired: Callable[[], bool] = lambda: False,
) -> PriceSearch:
    """Return the best prices of at most so many steps, at least one evaluation.

    Stops when `patience` steps gained less than `smallest_gain` of the bound, or when expired.
    """
    prices, best, bound = start, start, -np.inf
    values = np.zeros_like(start.work)
    adam: Adam | None = None
    trace: list[float] = []
    for iteration in range(iterations + 1):
        searches = 8 if iteration == 0 else 4
        answer = market.ask(prices, market.all_blocks, searches=searches)
        value = answer.value + market.constant(prices)
        prices = replace(prices, work=answer.work)
        if value > bound:
            best, bound, values = prices, value, answer.values
        trace.append(bound)
        stale = len(trace) > patience and (
            bound - trace[-1 - patience] < smallest_gain * abs(bound)
        )
        if stale or iteration == iterations or expired():
            break
        if scale is None:
            scale = price_scale(market, answer)
        if adam is None:
            adam = Adam(market, scale, rate=rate, decay=decay)
        prices = adam.step(prices, answer.used)
    scale = price_scale(market, answer) if scale is None else scale
    return PriceSearch(prices=best, bound=bound, values=values, scale=scale, trace=tuple(trace))


def settled_prices(
    market: PriceExchange,
    start: ResourcePrices,
    *,
    jobs: int,
    most_steps: int,
    warm: bool,
    expired: Callable[[], bool],
) -> PriceSearch:
    """Search prices for so many jobs: cold in long steps, warm in at most three short ones.

    A step of a small problem costs a millisecond, so these are searched to the end. Limits with a
    high penalty are searched once more in steps of that size, and then in small ones.
    """
    small = jobs <= SMALL_JOBS
    search = partial(
        search_prices,
        market,
        iterations=min(_WARM_STEPS, most_steps) if warm else most_steps,
        rate=_WARM_RATE if warm else _COLD_RATE,
        decay=_WARM_DECAY if warm else _COLD_DECAY,
        patience=30 if small else 5,
        smallest_gain=1e-7 if small else 2e-5,
        expired=expired,
    )
    best = search(start)
    penalty = market.rows.over_penalty.max(axis=0, initial=0.0)
    far = np.isfinite(penalty) & (penalty > _MAX_PRICE * best.scale)
    for scale in (np.where(far, penalty / _MAX_PRICE, best.scale), best.scale):
        other = search(best.prices, scale=scale) if far.any() and not warm else best
        if other.bound <= best.bound:
            break
        best = replace(other, scale=best.scale, trace=best.trace + other.trace)
    return best
