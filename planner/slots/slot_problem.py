"""The problem as a value: options of every job in every slot, and shared resources.

Sizes: J jobs, H slots, S configurations of the grid, G GPU types, D power domains, K tenants,
Y layouts. Money is in one currency, power in kW, counts in boards; a MIG slice is a fraction of a
board. Costs of a slot contain its length. Not allowed is a cost of infinity.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]
Path = npt.NDArray[np.int16]

NOTHING = -1
"""Type of a configuration that holds nothing, tenant of a job without quota, slot without pin."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigurationGrid:
    """The configurations of all jobs: gpu_type [S] (-1: holds nothing), boards [S], layout [S].

    A power cap level, a parallelism or a MIG profile is a row of its own. `layout_change` [Y, Y]
    is the cost of changing between layouts in units of a job's own `layout_cost`: 1 between types
    and 0 elsewhere says "another GPU type costs extra"; a MIG repartition table goes here too.
    """

    names: tuple[str, ...]
    gpu_type: Indices
    boards: Floats
    layout: Indices
    layout_change: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJobs:
    """The costs of single jobs.

    base_cost [J, H, S] (infinite where not allowed), power_kw [J, S] with the job's share of its
    nodes, leave_cost and enter_cost [J, S], layout_cost [J], present [J] (configuration of now),
    tenant [J] (-1: none). `required` [J, H] pins a slot to a configuration (-1: free): frozen
    first slots, protected jobs. Changing from a to b != a costs leave(a) + enter(b) +
    layout_cost * layout_change.

    Work: work [J] in units (0: none), rate [J, S] in units per slot, counted in the slots before
    deadline [J]; what is missing then costs unfinished_price [J] per unit.
    """

    names: tuple[str, ...]
    base_cost: Singles
    power_kw: Singles
    leave_cost: Singles
    enter_cost: Singles
    layout_cost: Singles
    present: Indices
    tenant: Indices
    work: Floats
    rate: Singles
    deadline: Indices
    unfinished_price: Floats
    required: Path | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFleet:
    """Boards per type and slot, capacity [G, H], and what a switched-on node costs by itself.

    boards_per_node [G]; node_cost [G, H] per node and slot (idle power, energy price inside);
    boot_cost [G] per node switched on; nodes_on [G] now. Switched-on nodes are at least
    ceil(boards in use / boards_per_node): jobs may be repacked inside a type.
    """

    gpu_types: tuple[str, ...]
    capacity: Floats
    boards_per_node: Floats
    node_cost: Floats
    boot_cost: Floats
    nodes_on: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class PowerDomains:
    """Racks or the site: members [D, G] (True: the type is fed by it), limit_kw [D, H].

    A kW above the limit costs over_penalty [D] per slot; infinity makes the limit hard.
    """

    names: tuple[str, ...]
    members: npt.NDArray[np.bool_]
    limit_kw: Floats
    over_penalty: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantQuotas:
    """Boards per tenant and slot, all types together; all arrays [K, H], prices [K].

    Below `guaranteed` every missing board costs guarantee_price; above `quota` every borrowed board
    costs borrow_price; above quota + borrowable every board costs over_penalty (infinity: hard).
    `guaranteed` should not exceed what the tenant asks for: it is a floor on use.
    """

    names: tuple[str, ...]
    guaranteed: Floats
    guarantee_price: Floats
    quota: Floats
    borrow_price: Floats
    borrowable: Floats
    over_penalty: Floats


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotProblem:
    """Everything that a plan depends on; `check_problem` says whether it makes sense.

    A job changes its configuration at most `max_changes` times within any `change_window` slots;
    0: as often as pays.
    """

    grid: ConfigurationGrid
    jobs: PlannedJobs
    fleet: SlotFleet
    power: PowerDomains | None = None
    quotas: TenantQuotas | None = None
    max_changes: int = 0
    change_window: int = 1

    @property
    def slots(self) -> int:
        """Return H."""
        return int(self.jobs.base_cost.shape[1])

    @property
    def size(self) -> int:
        """Return J."""
        return int(self.jobs.base_cost.shape[0])


def pinned_cost(jobs: PlannedJobs) -> Singles:
    """Return base_cost [J, H, S] with every configuration but a pinned one forbidden.

    It is the problem's own array when nothing is pinned.
    """
    if jobs.required is None or not (jobs.required >= 0).any():
        return np.ascontiguousarray(jobs.base_cost, dtype=np.float32)
    cost = np.array(jobs.base_cost, dtype=np.float32)
    rows, slots = np.nonzero(jobs.required >= 0)
    pinned = cost[rows, slots, jobs.required[rows, slots]]
    cost[rows, slots] = np.inf
    cost[rows, slots, jobs.required[rows, slots]] = pinned
    return cost


def paths_of_today(jobs: PlannedJobs, cost: Singles) -> Path:
    """Return the paths [J, H] that keep every job as it is now, with pins and allowed slots obeyed.

    Where the present configuration is not allowed, the job takes its cheapest one of the slot.
    """
    present = np.repeat(jobs.present[:, None], cost.shape[1], axis=1)
    today = np.take_along_axis(cost, present[:, :, None], axis=2)[:, :, 0]
    jobs_at, slots_at = np.nonzero(~np.isfinite(today))
    present[jobs_at, slots_at] = cost[jobs_at, slots_at].argmin(axis=1)
    return np.asarray(present, dtype=np.int16)
