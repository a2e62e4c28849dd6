"""Seeded planning instances: three GPU types, three kinds of jobs, everything shared and scarce.

35 % rigid jobs (exact board count, may wait at a penalty or move to another type), 30 % training
jobs (work, deadline, price of unfinished work), 35 % services (daily and weekly demand, expected
shortfall over five quantiles). Capacity, site power and quotas are set from the use of the optimum
without them, so that they bind in a stated share of slots. All figures are synthetic.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from planner.fleet.tenants import free_use
from planner.slots.coupling_rows import coupling_rows
from planner.slots.slot_problem import (
    ConfigurationGrid,
    PlannedJobs,
    PowerDomains,
    SlotFleet,
    SlotProblem,
    TenantQuotas,
)

Floats = npt.NDArray[np.float64]

COUNTS = (1, 2, 4, 8, 16)
TYPES = ("fast", "middle", "small")
BOARD_PRICE = np.array([2.4, 1.3, 0.7])
BOARD_KW = np.array([0.7, 0.4, 0.3])
SPEED = np.array([2.6, 1.3, 0.6])
SLICES = (1 / 7, 2 / 7, 3 / 7)
PUE = 1.2
NODE_KW = 1.0
SHORTFALL_PRICE = 4.0
CHECKPOINT_HOURS, RESTART_HOURS = 0.05, 0.1
_NORMAL_QUANTILES = np.array([-1.2816, -0.5244, 0.0, 0.5244, 1.2816])
"""The normal distribution's 0.1, 0.3, 0.5, 0.7 and 0.9."""
OFF = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Instance:
    """A problem with what is needed to charge a plan on other demand than the forecast's.

    `demand` [J, H] is the median demand of services (NaN: no service), `service` [J, S] what a
    configuration serves, `spread` the log-normal sigma that the problem's shortfall assumes.
    """

    problem: SlotProblem
    demand: Floats
    service: Floats
    spread: float
    slot_hours: float


def make_grid(*, mig: bool) -> ConfigurationGrid:
    """Return nothing, three types times five counts and, with `mig`, three slices of one type.

    Another type costs a job's whole layout cost, a new MIG partition half of it.
    """
    names, kinds, boards, layout = ["nothing"], [-1], [0.0], [0]
    for kind, name in enumerate(TYPES):
        for count in COUNTS:
            names.append(f"{count} x {name}")
            kinds.append(kind)
            boards.append(float(count))
            layout.append(1 + kind)
    if mig:
        for part, share in enumerate(SLICES):
            names.append(f"{part + 1}/7 {TYPES[0]}")
            kinds.append(0)
            boards.append(share)
            layout.append(4 + part)
    width = max(layout) + 1
    change = np.ones((width, width)) - np.eye(width)
    change[0, :] = change[:, 0] = 0.0
    change[4:, 4:] *= 0.5
    return ConfigurationGrid(
        names=tuple(names),
        gpu_type=np.array(kinds, dtype=np.int64),
        boards=np.array(boards),
        layout=np.array(layout, dtype=np.int64),
        layout_change=change,
    )


def make_instance(
    jobs: int,
    slots: int = 168,
    *,
    seed: int,
    slot_hours: float = 1.0,
    mig: bool = False,
    training: bool = True,
    binding: float = 0.44,
    spread: float = 0.25,
) -> Instance:
    """Return an instance; about a share `binding` of the slots is scarce in every type."""
    rng = np.random.default_rng(seed)
    grid = make_grid(mig=mig)
    hours = np.arange(slots) * slot_hours
    energy = 0.12 + 0.05 * np.sin(2 * np.pi * (hours - 15) / 24) + 0.02 * rng.random(slots)
    held = np.maximum(grid.gpu_type, 0)
    has_boards = grid.boards > 0
    size = len(grid.names)
    base = np.full((jobs, slots, size), np.inf, dtype=np.float32)
    speed = SPEED * rng.uniform(0.8, 1.2, (jobs, 3))
    efficiency = rng.uniform(0.78, 0.97, jobs)
    load = rng.uniform(0.45, 0.9, jobs)
    doublings = np.log2(np.maximum(grid.boards, 1.0))
    service = speed[:, held] * grid.boards * efficiency[:, None] ** doublings
    power = load[:, None] * (BOARD_KW[held] * grid.boards)[None, :] * 1.1
    rent = BOARD_PRICE[held] * grid.boards
    running = slot_hours * (rent[None, None, :] + energy[None, :, None] * PUE * power[:, None, :])
    kinds = rng.choice(3, size=jobs, p=[0.35, 0.30, 0.35] if training else [0.5, 0.0, 0.5])
    demand = np.full((jobs, slots), np.nan)
    work, deadline = np.zeros(jobs), np.full(jobs, slots, dtype=np.int64)
    unfinished = np.zeros(jobs)
    for job in range(jobs):
        allowed = _allowed(rng, grid, rigid=kinds[job] == 0)
        if kinds[job] == 0:
            first, last = _life(rng, slots, slot_hours)
            base[job, :, OFF] = 0.0
            base[job, first:last, OFF] = 2.0 * running[job, first:last][:, allowed].min(axis=1)
            base[job, first:last, allowed] = running[job, first:last, allowed]
        elif kinds[job] == 1:
            first = int(slots * max(0.0, rng.uniform(-0.3, 0.6)))
            last = first + max(2, int((slots - first) * rng.uniform(0.4, 1.0)))
            base[job, :, OFF] = 0.0
            base[job, first:last, allowed] = running[job, first:last, allowed]
            own = service[job, allowed]
            work[job] = (last - first) * rng.uniform(0.25, 0.75) * np.median(own)
            deadline[job] = last
            unfinished[job] = 3.0 * slot_hours * (rent[allowed] / own).min()
        else:
            demand[job] = _demand(rng, hours)
            base[job, :, OFF] = 0.0
            base[job][:, allowed] = running[job][:, allowed]
            held_or_off = np.flatnonzero(allowed | ~has_boards)
            base[job][:, held_or_off] += shortfall(
                demand[job], service[job, held_or_off], spread, slot_hours
            )
    present = _present(rng, base)
    jobs_value = PlannedJobs(
        names=tuple(f"job-{number}" for number in range(jobs)),
        base_cost=base,
        power_kw=power.astype(np.float32),
        leave_cost=np.broadcast_to(CHECKPOINT_HOURS * rent, (jobs, size)).astype(np.float32),
        enter_cost=np.broadcast_to(RESTART_HOURS * rent, (jobs, size)).astype(np.float32),
        layout_cost=rng.uniform(0.1, 0.6, jobs).astype(np.float32),
        present=present,
        tenant=rng.integers(0, 8, jobs),
        work=work,
        rate=np.where(kinds[:, None] == 1, service, 0.0).astype(np.float32),
        deadline=deadline,
        unfinished_price=unfinished,
    )
    problem = _coupled(rng, grid, jobs_value, energy * slot_hours * PUE * NODE_KW, binding)
    return Instance(
        problem=problem, demand=demand, service=service, spread=spread, slot_hours=slot_hours
    )


def _allowed(
    rng: np.random.Generator, grid: ConfigurationGrid, *, rigid: bool
) -> npt.NDArray[np.bool_]:
    """Return which configurations a job may take: rigid ones a count, others a range."""
    types = rng.permutation(3)[: rng.integers(2, 4)]
    on_type = np.isin(grid.gpu_type, types)
    if rigid:
        count = rng.choice(COUNTS, p=[0.3, 0.25, 0.2, 0.15, 0.1])
        return np.asarray(on_type & (grid.boards == count))
    least = rng.choice([0.0, 1.0, 2.0], p=[0.3, 0.5, 0.2])
    return np.asarray(on_type & (grid.boards >= least) & (grid.boards > 0))


def _life(rng: np.random.Generator, slots: int, slot_hours: float) -> tuple[int, int]:
    first = int(slots * max(0.0, rng.uniform(-0.5, 0.9)))
    length = int(np.ceil(np.exp(rng.normal(3.0, 1.0)) / slot_hours))
    return first, min(slots, first + max(2, length))


def _demand(rng: np.random.Generator, hours: Floats) -> Floats:
    level = np.exp(rng.normal(1.6, 0.8))
    daily = 1 + rng.uniform(0.3, 0.8) * np.sin(2 * np.pi * (hours - rng.uniform(8, 16)) / 24)
    weekend = np.where((hours // 24) % 7 >= 5, rng.uniform(0.5, 1.0), 1.0)
    return np.asarray(level * daily * weekend)


def shortfall(demand: Floats, service: Floats, spread: float, slot_hours: float) -> Floats:
    """Return expected shortfall's cost [H, S] over five quantiles of a log-normal demand [H]."""
    levels = demand[:, None] * np.exp(spread * _NORMAL_QUANTILES)[None, :]
    missing = np.maximum(levels[:, :, None] - service[None, None, :], 0.0).mean(axis=1)
    return np.asarray(SHORTFALL_PRICE * slot_hours * missing)


def _present(rng: np.random.Generator, base: npt.NDArray[np.float32]) -> npt.NDArray[np.int64]:
    """Return configurations of now: the cheapest of the first slot, a quarter of them others."""
    present = base[:, 0].argmin(axis=1).astype(np.int64)
    for job in np.flatnonzero(rng.random(len(base)) < 0.25):
        present[job] = rng.choice(np.flatnonzero(np.isfinite(base[job, 0])))
    return present


def _coupled(
    rng: np.random.Generator,
    grid: ConfigurationGrid,
    jobs: PlannedJobs,
    node_cost: Floats,
    binding: float,
) -> SlotProblem:
    """Return the problem with limits that the plan without limits exceeds in a share of slots."""
    slots, tenants = jobs.base_cost.shape[1], 8
    unlimited = np.full((3, slots), 1e9)
    boundless = np.full((tenants, slots), 1e9)
    fleet = SlotFleet(
        gpu_types=TYPES,
        capacity=unlimited,
        boards_per_node=np.full(3, 8.0),
        node_cost=np.zeros((3, slots)),
        boot_cost=np.zeros(3),
        nodes_on=np.zeros(3),
    )
    power = PowerDomains(
        names=("the site",),
        members=np.ones((1, 3), dtype=np.bool_),
        limit_kw=np.full((1, slots), 1e9),
        over_penalty=np.array([np.inf]),
    )
    quotas = TenantQuotas(
        names=tuple(f"tenant-{number}" for number in range(tenants)),
        guaranteed=np.zeros((tenants, slots)),
        guarantee_price=np.full(tenants, 0.5),
        quota=boundless,
        borrow_price=np.full(tenants, 0.3),
        borrowable=np.zeros((tenants, slots)),
        over_penalty=np.full(tenants, np.inf),
    )
    free = SlotProblem(grid=grid, jobs=jobs, fleet=fleet, power=power, quotas=quotas)
    used = free_use(free, coupling_rows(free))
    limit = np.quantile(used, 1 - binding, axis=0)
    boards = np.ceil(limit[:3] / 8) * 8
    capacity = np.repeat(boards[:, None], slots, axis=1)
    down = slice(slots // 3, slots // 3 + max(1, slots // 14))
    capacity[0, down] = np.ceil(0.7 * boards[0] / 8) * 8
    kilowatts = np.full((1, slots), limit[3] * 1.03)
    evening = (np.arange(slots) % 24 >= 18) & (np.arange(slots) % 24 < 21)
    kilowatts[0, evening] *= 0.92
    share = np.quantile(used[:, 4:], 0.86, axis=0)
    quota = np.repeat(np.ceil(share)[:, None], slots, axis=1)
    guaranteed = np.minimum(np.floor(0.4 * quota), np.floor(0.5 * used[:, 4:].T))
    # Of one job or two the fleet may have no board in a slot, and then nobody is guaranteed any.
    guaranteed[:, guaranteed.sum(axis=0) > capacity.sum(axis=0)] = 0
    return replace(
        free,
        fleet=replace(
            fleet,
            capacity=capacity,
            node_cost=np.repeat(node_cost[None, :], 3, axis=0),
            boot_cost=np.full(3, 1.0),
            nodes_on=np.ceil(_held(grid, jobs) / 8),
        ),
        power=replace(power, limit_kw=kilowatts),
        quotas=replace(
            quotas,
            guaranteed=guaranteed,
            quota=quota,
            borrowable=np.ceil(0.25 * quota * rng.uniform(0.8, 1.2, (tenants, 1))),
        ),
    )


def _held(grid: ConfigurationGrid, jobs: PlannedJobs) -> Floats:
    kind = grid.gpu_type[jobs.present]
    boards = grid.boards[jobs.present]
    return np.array([boards[kind == number].sum() for number in range(3)])
