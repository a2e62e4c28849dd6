"""Refuse a problem that contradicts itself, naming the job, the slot and the limit."""

import numpy as np
import numpy.typing as npt

from data.base.errors import ImpossibleProblemError
from planner.slots.broken_limits import SLACK
from planner.slots.slot_problem import ConfigurationGrid, PowerDomains, SlotProblem, TenantQuotas
from planner.slots.survey_kernel import NOTHING_ALLOWED, SOUND, UNKNOWN_COST, CostSurvey

_MAX_CONFIGURATIONS = 32_767
"""A path is int16."""


def check_problem(problem: SlotProblem) -> None:
    """Raise ImpossibleProblemError unless shapes, figures, limits and pins make sense."""
    if problem.slots < 1:
        raise ImpossibleProblemError("the problem has no slot", "plan at least one slot ahead")
    _check_grid(problem.grid)
    _check_fleet(problem)
    _check_jobs(problem)
    if problem.power is not None:
        _check_power(problem.power, problem.slots, len(problem.fleet.gpu_types))
    if problem.quotas is not None:
        _check_quotas(problem.quotas, problem)
    _check_pins(problem)


def _refuse(wrong: npt.NDArray[np.bool_], what: str, hint: str) -> None:
    """Refuse an array with a wrong entry, with the position of the first."""
    if wrong.any():
        place = ", ".join(str(int(entry)) for entry in np.argwhere(wrong)[0])
        raise ImpossibleProblemError(f"{what} at [{place}]", hint)


def _shape(name: str, array: npt.NDArray[np.generic], expected: tuple[int, ...]) -> None:
    if array.shape != expected:
        raise ImpossibleProblemError(
            f"{name} has the shape {array.shape}, expected {expected}", "give one entry for each"
        )


def _unusable(values: npt.NDArray[np.floating], *, finite: bool = True) -> npt.NDArray[np.bool_]:
    """Return a mask of values that are unknown, negative, or infinite though they must not be."""
    wrong = ~(values >= 0)
    return np.asarray(wrong | ~np.isfinite(values)) if finite else np.asarray(wrong)


def _check_grid(grid: ConfigurationGrid) -> None:
    size, layouts = len(grid.names), len(grid.layout_change)
    if not 1 <= size <= _MAX_CONFIGURATIONS:
        raise ImpossibleProblemError(
            f"the grid has {size} configurations", f"give 1 to {_MAX_CONFIGURATIONS}"
        )
    for name, array in (("gpu_type", grid.gpu_type), ("boards", grid.boards)):
        _shape(f"grid.{name}", array, (size,))
    _shape("grid.layout", grid.layout, (size,))
    _shape("grid.layout_change", grid.layout_change, (layouts, layouts))
    _refuse(_unusable(grid.boards), "boards are unknown or negative", "give boards >= 0")
    _refuse(_unusable(grid.layout_change), "layout_change is unknown or negative", "give >= 0")
    wrong = (grid.layout < 0) | (grid.layout >= layouts)
    _refuse(wrong, "layout is not a row of layout_change", "number the layouts from 0")
    wrong = (grid.gpu_type < 0) != (grid.boards == 0)
    _refuse(wrong, "boards without a type, or a type without boards", "nothing is type -1")


def _check_fleet(problem: SlotProblem) -> None:
    fleet = problem.fleet
    types = len(fleet.gpu_types)
    _shape("fleet.capacity", fleet.capacity, (types, problem.slots))
    _shape("fleet.node_cost", fleet.node_cost, (types, problem.slots))
    for name in ("boards_per_node", "boot_cost", "nodes_on"):
        values = getattr(fleet, name)
        _shape(f"fleet.{name}", values, (types,))
        _refuse(_unusable(values), f"fleet.{name} is unknown or negative", "give a number >= 0")
    _refuse(fleet.boards_per_node <= 0, "a node without boards", "give boards_per_node > 0")
    for name in ("capacity", "node_cost"):
        wrong = _unusable(getattr(fleet, name))
        _refuse(wrong, f"fleet.{name} [type, slot] is unknown or negative", "give a number >= 0")
    wrong = problem.grid.gpu_type >= types
    _refuse(wrong, "grid.gpu_type names a type that the fleet lacks", "add the type to the fleet")


def _check_jobs(problem: SlotProblem) -> None:
    jobs, (count, slots, size) = problem.jobs, problem.jobs.base_cost.shape
    _shape("jobs.base_cost", jobs.base_cost, (count, slots, len(problem.grid.names)))
    for name in ("power_kw", "leave_cost", "enter_cost", "rate"):
        values = getattr(jobs, name)
        _shape(f"jobs.{name}", values, (count, size))
        _refuse(_unusable(values), f"jobs.{name} is unknown or negative", "give a number >= 0")
    for name in ("layout_cost", "work", "unfinished_price"):
        values = getattr(jobs, name)
        _shape(f"jobs.{name}", values, (count,))
        _refuse(_unusable(values), f"jobs.{name} is unknown or negative", "give a number >= 0")
    for name in ("present", "tenant", "deadline"):
        _shape(f"jobs.{name}", getattr(jobs, name), (count,))
    if len(jobs.names) != count:
        raise ImpossibleProblemError(f"{len(jobs.names)} names for {count} jobs", "name every job")
    wrong = (jobs.present < 0) | (jobs.present >= size)
    _refuse(wrong, "jobs.present is no configuration of the grid", "add what the job holds now")
    tenants = 0 if problem.quotas is None else len(problem.quotas.names)
    wrong = jobs.tenant >= max(tenants, 0)
    _refuse(wrong, "jobs.tenant has no quota", "give the tenant a quota, or the job tenant -1")


def check_costs(problem: SlotProblem, costs: CostSurvey) -> None:
    """Raise unless every job has a known cost and a configuration that could fit in every slot."""
    job, slot, fault = costs.fault
    if fault == SOUND:
        return
    name = problem.jobs.names[job]
    if fault == UNKNOWN_COST:
        raise ImpossibleProblemError(
            f"job {name!r} has an unknown cost in slot {slot}: its demand is missing",
            "leave the configuration out (infinite cost) or forecast the demand",
        )
    if fault == NOTHING_ALLOWED:
        raise ImpossibleProblemError(
            f"job {name!r} is allowed nothing in slot {slot}",
            "allow one configuration in each slot",
        )
    allowed = np.flatnonzero(np.isfinite(problem.jobs.base_cost[job, slot]))
    kinds = sorted({problem.fleet.gpu_types[kind] for kind in problem.grid.gpu_type[allowed]})
    raise ImpossibleProblemError(
        f"job {name!r} is larger than the capacity of {', '.join(kinds)} in slot {slot}",
        "offer it a smaller configuration, or let it hold nothing there",
    )


def _check_power(power: PowerDomains, slots: int, types: int) -> None:
    domains = len(power.names)
    _shape("power.members", power.members, (domains, types))
    _shape("power.limit_kw", power.limit_kw, (domains, slots))
    _shape("power.over_penalty", power.over_penalty, (domains,))
    wrong = _unusable(power.limit_kw)
    _refuse(wrong, "power.limit_kw [domain, slot] is unknown or negative", "give kW >= 0")
    wrong = _unusable(power.over_penalty, finite=False)
    _refuse(wrong, "power.over_penalty is unknown or negative", "give a price, infinite when hard")


def _check_quotas(quotas: TenantQuotas, problem: SlotProblem) -> None:
    tenants = len(quotas.names)
    for name in ("guaranteed", "quota", "borrowable"):
        values = getattr(quotas, name)
        _shape(f"quotas.{name}", values, (tenants, problem.slots))
        wrong = _unusable(values)
        _refuse(wrong, f"quotas.{name} [tenant, slot] is unknown or negative", "give boards >= 0")
    for name in ("guarantee_price", "borrow_price", "over_penalty"):
        values = getattr(quotas, name)
        _shape(f"quotas.{name}", values, (tenants,))
        wrong = _unusable(values, finite=name != "over_penalty")
        _refuse(wrong, f"quotas.{name} is unknown or negative", "give a price >= 0")
    wrong = quotas.over_penalty < quotas.borrow_price
    _refuse(
        wrong, "quotas.over_penalty is below borrow_price", "breaking costs more than borrowing"
    )
    wrong = quotas.guaranteed > quotas.quota
    _refuse(wrong, "a guarantee [tenant, slot] is above the quota", "raise the quota")


def _check_pins(problem: SlotProblem) -> None:
    """Raise unless pinned slots are allowed, and pinned jobs fit together."""
    jobs, required = problem.jobs, problem.jobs.required
    if required is None:
        return
    _shape("jobs.required", required, (problem.size, problem.slots))
    rows, slots = np.nonzero(required >= 0)
    options = required[rows, slots].astype(np.int64)
    beyond = options >= len(problem.grid.names)
    allowed = np.isfinite(jobs.base_cost[rows, slots, np.where(beyond, 0, options)]) & ~beyond
    if not allowed.all():
        at = int(np.flatnonzero(~allowed)[0])
        raise ImpossibleProblemError(
            f"job {jobs.names[rows[at]]!r} is pinned in slot {slots[at]} to configuration "
            f"{options[at]}, which it may not take",
            "allow the configuration or remove the pin",
        )
    kinds = problem.grid.gpu_type[options]
    boards = np.zeros_like(problem.fleet.capacity, dtype=np.float64)
    holding = kinds >= 0
    np.add.at(boards, (kinds[holding], slots[holding]), problem.grid.boards[options[holding]])
    over = boards > problem.fleet.capacity + SLACK
    if over.any():
        kind, slot = (int(entry) for entry in np.argwhere(over)[0])
        name = problem.fleet.gpu_types[kind]
        names = [
            jobs.names[row]
            for row, at, other in zip(rows, slots, kinds, strict=True)
            if at == slot and other == kind
        ]
        raise ImpossibleProblemError(
            f"pinned jobs hold {boards[kind, slot]:g} boards of {name} in slot {slot}, capacity is "
            f"{problem.fleet.capacity[kind, slot]:g}: {', '.join(map(repr, names[:5]))}",
            "remove a pin or add capacity",
        )
