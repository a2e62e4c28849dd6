"""Plan on a forecast, pay for what really came: services' demand with a log-normal AR(1) error."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from benchmarks._warm_start import warmth_of
from benchmarks.exact_plan import true_cost
from benchmarks.plan_heuristics import Paths, clipped, per_job, per_slot, reactive, static
from benchmarks.plan_instances import Instance, make_instance, shortfall
from planner.slots.slot_problem import SlotProblem
from planner.solver.solve import solve
from planner.solver.solved_plan import Effort, SolvedPlan

Floats = npt.NDArray[np.float64]
MEMORY = 0.8
_ROLLING = Effort(price_steps=20, dive_chunks=10, moves=1500, label_room=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a policy cost on the truth, above the oracle in percent, and its changes."""

    name: str
    cost: float
    above_percent: float
    changes_per_job_day: float


def errors(jobs: int, slots: int, spread: float, seed: int) -> Floats:
    """Return stationary AR(1) errors [J, H] of the logarithm of demand, sd `spread`."""
    rng = np.random.default_rng(seed + 1000)
    shocks = rng.normal(0.0, spread * np.sqrt(1 - MEMORY**2), (jobs, slots))
    found = np.empty((jobs, slots))
    found[:, 0] = rng.normal(0.0, spread, jobs)
    for slot in range(1, slots):
        found[:, slot] = MEMORY * found[:, slot - 1] + shocks[:, slot]
    return found


def with_demand(instance: Instance, demand: Floats, spread: float) -> SlotProblem:
    """Return the problem with the shortfall of another demand [J, H] (NaN: no service)."""
    jobs = instance.problem.jobs
    cost = jobs.base_cost.copy()
    for job in np.flatnonzero(np.isfinite(instance.demand).all(axis=1)):
        before = shortfall(
            instance.demand[job], instance.service[job], instance.spread, instance.slot_hours
        )
        after = shortfall(demand[job], instance.service[job], spread, instance.slot_hours)
        cost[job] += (after - before).astype(np.float32)
    return replace(instance.problem, jobs=replace(jobs, base_cost=cost))


def window(
    problem: SlotProblem, first: int, length: int, present: npt.NDArray[np.int64], work: Floats
) -> SlotProblem:
    """Return the problem of the slots [first, first + length): later work is pro-rated."""
    part = slice(first, min(problem.slots, first + length))
    jobs, fleet, power, quotas = problem.jobs, problem.fleet, problem.power, problem.quotas
    left = np.maximum(jobs.deadline - first, 0)
    inside = np.minimum(left, part.stop - first)
    share = np.divide(inside, left, out=np.zeros(len(left)), where=left > 0)
    kind = problem.grid.gpu_type[present]
    held = np.array(
        [
            problem.grid.boards[present[kind == number]].sum()
            for number in range(len(fleet.gpu_types))
        ]
    )
    return replace(
        problem,
        jobs=replace(
            jobs,
            base_cost=np.ascontiguousarray(jobs.base_cost[:, part]),
            present=present,
            work=np.maximum(work, 0.0) * share,
            deadline=inside.astype(np.int64),
        ),
        fleet=replace(
            fleet,
            capacity=fleet.capacity[:, part],
            node_cost=fleet.node_cost[:, part],
            nodes_on=np.ceil(held / fleet.boards_per_node),
        ),
        power=None if power is None else replace(power, limit_kw=power.limit_kw[:, part]),
        quotas=None
        if quotas is None
        else replace(
            quotas,
            guaranteed=quotas.guaranteed[:, part],
            quota=quotas.quota[:, part],
            borrowable=quotas.borrowable[:, part],
        ),
    )


def rolled(
    instance: Instance, error: Floats, spread: float, *, length: int, every: int = 1
) -> Paths:
    """Return paths of planning `length` slots every `every` slots and doing the first of each."""
    slots, size = instance.problem.slots, instance.problem.size
    jobs = instance.problem.jobs
    present, work = jobs.present.copy(), jobs.work.copy()
    paths = np.zeros((size, slots), dtype=np.int16)
    before: SolvedPlan | None = None
    for first in range(0, slots, every):
        ahead = np.arange(slots) - first
        fading = np.where(ahead >= 0, MEMORY ** np.maximum(ahead, 0), 0.0)
        forecast = instance.demand * np.exp(error[:, [first]] * fading)
        problem = window(with_demand(instance, forecast, spread), first, length, present, work)
        warm = None
        if before is not None and before.paths.shape[1] == problem.slots:
            warm = warmth_of(
                before.paths,
                before.prices,
                origin=np.arange(size),
                present=present,
                elapsed=every,
                churn_price=0.05,
            )
        before = solve(problem, budget_seconds=np.inf, effort=_ROLLING, warm=warm)
        for step in range(min(every, slots - first)):
            paths[:, first + step] = before.paths[:, step]
            present = before.paths[:, step].astype(np.int64)
            done = jobs.rate[np.arange(size), present] * (first + step < jobs.deadline)
            work = work - done
    return paths


def changes(paths: Paths, instance: Instance) -> float:
    """Return changes of configuration per job and day."""
    days = instance.problem.slots * instance.slot_hours / 24
    return float((np.diff(paths, axis=1) != 0).sum() / instance.problem.size / days)


def simulate(jobs: int, slots: int, spread: float, *, seed: int = 1) -> list[Outcome]:
    """Return all policies on one instance, charged on the truth; the oracle knew it."""
    instance = make_instance(jobs, slots, seed=seed, spread=spread)
    error = errors(jobs, slots, spread, seed)
    seen = instance.demand * np.exp(error)
    truth = with_demand(instance, seen, 0.0)
    once = Effort(price_steps=60, dive_chunks=10, moves=20_000, label_room=0)
    point = with_demand(instance, instance.demand, 0.0)
    policies: dict[str, Callable[[], Paths]] = {
        "oracle (truth known)": lambda: solve(truth, budget_seconds=np.inf, effort=once).paths,
        "rolling 24 h, every hour, expected shortfall": lambda: rolled(
            instance, error, spread, length=24
        ),
        "rolling 6 h, every hour": lambda: rolled(instance, error, spread, length=6),
        "plan once, expected shortfall": lambda: (
            solve(instance.problem, budget_seconds=np.inf, effort=once).paths
        ),
        "plan once, point forecast": lambda: solve(point, budget_seconds=np.inf, effort=once).paths,
        "per-job program alone, clipped": lambda: clipped(truth, per_job(instance.problem)),
        "per-slot first fit decreasing": lambda: per_slot(instance.problem),
        "static mean": lambda: clipped(truth, static(instance, peak=False)),
        "static peak": lambda: clipped(truth, static(instance, peak=True)),
        "reactive 0.9 / 0.5": lambda: clipped(truth, reactive(instance, seen)),
    }
    found: list[Outcome] = []
    for name, policy in policies.items():
        paths = policy()
        cost = true_cost(truth, paths)
        best = found[0].cost if found else cost
        found.append(
            Outcome(
                name=name,
                cost=cost,
                above_percent=100 * (cost / best - 1),
                changes_per_job_day=changes(paths, instance),
            )
        )
    return found
