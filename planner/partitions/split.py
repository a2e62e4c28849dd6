"""A slot problem cut into parts by job: the rows of each part, and its share of them.

Parts keep the rows of the whole problem (types, power domains, tenants), so prices are the same
arrays everywhere; of the grid they keep the configurations that their jobs know.
"""

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from planner.slots.coupling_rows import CouplingRows
from planner.slots.slot_problem import (
    ConfigurationGrid,
    Floats,
    Indices,
    PowerDomains,
    SlotFleet,
    SlotProblem,
    TenantQuotas,
)
from planner.solver.replan import WarmStart


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetPart:
    """One part: its problem with all of what is shared, and where its jobs and columns come from.

    jobs are rows of the whole problem, columns [S'] configurations of its grid.
    """

    problem: SlotProblem
    jobs: Indices
    columns: Indices


def split(
    problem: SlotProblem, part_of: Indices, warm: WarmStart | None = None
) -> tuple[FleetPart, ...]:
    """Return the parts of jobs with the same number in part_of [J], in order of the numbers."""
    return tuple(
        _part(problem, np.flatnonzero(part_of == number), warm) for number in np.unique(part_of)
    )


def _part(problem: SlotProblem, jobs: Indices, warm: WarmStart | None) -> FleetPart:
    fleet, grid = problem.jobs, problem.grid
    cost = fleet.base_cost[jobs]
    used = np.asarray(np.isfinite(cost).any(axis=(0, 1)))
    used[fleet.present[jobs]] = True
    required = None if fleet.required is None else fleet.required[jobs]
    if required is not None:
        used[required[required >= 0]] = True
    if warm is not None:
        used[np.unique(warm.announced[jobs])] = True
    columns = np.flatnonzero(used)
    place = np.full(len(used), -1, dtype=np.int16)
    place[columns] = np.arange(len(columns))
    planned = replace(
        fleet,
        names=tuple(fleet.names[job] for job in jobs),
        base_cost=np.ascontiguousarray(cost[:, :, columns]),
        power_kw=fleet.power_kw[np.ix_(jobs, columns)],
        leave_cost=fleet.leave_cost[np.ix_(jobs, columns)],
        enter_cost=fleet.enter_cost[np.ix_(jobs, columns)],
        layout_cost=fleet.layout_cost[jobs],
        present=place[fleet.present[jobs]].astype(np.int64),
        tenant=fleet.tenant[jobs],
        work=fleet.work[jobs],
        rate=fleet.rate[np.ix_(jobs, columns)],
        deadline=fleet.deadline[jobs],
        unfinished_price=fleet.unfinished_price[jobs],
        required=None if required is None else np.where(required >= 0, place[required], -1),
    )
    cut = ConfigurationGrid(
        names=tuple(grid.names[column] for column in columns),
        gpu_type=grid.gpu_type[columns],
        boards=grid.boards[columns],
        layout=grid.layout[columns],
        layout_change=grid.layout_change,
    )
    return FleetPart(problem=replace(problem, grid=cut, jobs=planned), jobs=jobs, columns=columns)


def warmth_of_part(part: FleetPart, warm: WarmStart) -> WarmStart:
    """Return the warm start of a part, in its own columns."""
    place = np.zeros(int(part.columns.max()) + 1, dtype=np.int16)
    place[part.columns] = np.arange(len(part.columns))
    return WarmStart(
        prices=replace(warm.prices, work=warm.prices.work[part.jobs]),
        announced=place[warm.announced[part.jobs]],
        kept=warm.kept[part.jobs],
        churn_price=warm.churn_price,
    )


def touched(part: FleetPart, rows: CouplingRows) -> npt.NDArray[np.bool_]:
    """Return a mask of the rows [R] that jobs of the part may use."""
    grid, jobs = part.problem.grid, part.problem.jobs
    kinds = np.unique(grid.gpu_type[grid.gpu_type >= 0])
    touches = np.zeros(len(rows.names), dtype=np.bool_)
    touches[kinds] = True
    touches[rows.types : rows.types + rows.domains] = rows.members[:, kinds].any(axis=1)
    touches[rows.types + rows.domains + np.unique(jobs.tenant[jobs.tenant >= 0])] = True
    return touches


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The shares of each part [P, H, R]: its floor, its free use, and its limit.

    nodes_on [P, G] is its share of the nodes that are on now. A row's cost is convex and grows
    with its floor, so the parts' costs together are at least the cost of the row.
    """

    floor: Floats
    free: Floats
    limit: Floats
    nodes_on: Floats


def limited(part: FleetPart, number: int, shares: Shares, rows: CouplingRows) -> SlotProblem:
    """Return the problem of a part that has its share to itself."""
    types, domains, problem = rows.types, rows.domains, part.problem
    limit, free, floor = (
        annotated[number].T for annotated in (shares.limit, shares.free, shares.floor)
    )
    fleet: SlotFleet = replace(
        problem.fleet,
        capacity=np.ascontiguousarray(limit[:types]),
        nodes_on=shares.nodes_on[number],
    )
    power: PowerDomains | None = None
    if problem.power is not None:
        power = replace(
            problem.power, limit_kw=np.ascontiguousarray(limit[types : types + domains])
        )
    quotas: TenantQuotas | None = None
    if problem.quotas is not None:
        teams = slice(types + domains, None)
        promised = np.minimum(floor[teams], free[teams])
        # A promise beyond the boards that the part was given is no promise it can keep.
        room = limit[:types].sum(axis=0)
        total = promised.sum(axis=0)
        share = np.minimum(1.0, np.divide(room, total, where=total > 0, out=np.ones_like(room)))
        quotas = replace(
            problem.quotas,
            guaranteed=promised * share,
            quota=np.ascontiguousarray(free[teams]),
            borrowable=np.maximum(limit[teams] - free[teams], 0.0),
        )
    return replace(problem, fleet=fleet, power=power, quotas=quotas)
