"""The planning problem as one mixed integer program for HiGHS and CP-SAT, and its arithmetic.

`true_cost` adds up what paths cost without any of the solver's code, so that both the solver and
the models are held against it. Changes are modelled by what is left, what is entered and the flow
between layouts, which needs O(configurations) columns a slot where pairs would need their square.
"""

import pickle
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_matrix, csr_matrix

from planner.slots.slot_problem import SlotProblem, pinned_cost

Floats = npt.NDArray[np.float64]
ROOT = Path(__file__).parents[1]


def true_cost(problem: SlotProblem, paths: npt.NDArray[np.int16]) -> float:
    """Return the cost of paths [J, H]; infinite when a hard limit, a pin or a ban is broken."""
    jobs, grid, fleet = problem.jobs, problem.grid, problem.fleet
    cost = pinned_cost(jobs)
    types, slots = len(fleet.gpu_types), problem.slots
    boards, power = np.zeros((types, slots)), np.zeros((types, slots))
    tenants = np.zeros((1 if problem.quotas is None else len(problem.quotas.names), slots))
    total = 0.0
    for job, path in enumerate(paths):
        before, work = int(jobs.present[job]), 0.0
        for slot, now in enumerate(int(entry) for entry in path):
            total += float(cost[job, slot, now])
            if now != before:
                layouts = grid.layout_change[grid.layout[before], grid.layout[now]]
                total += float(jobs.leave_cost[job, before] + jobs.enter_cost[job, now])
                total += float(jobs.layout_cost[job] * layouts)
            if slot < jobs.deadline[job]:
                work += float(jobs.rate[job, now])
            if grid.gpu_type[now] >= 0:
                boards[grid.gpu_type[now], slot] += grid.boards[now]
                power[grid.gpu_type[now], slot] += jobs.power_kw[job, now]
                if jobs.tenant[job] >= 0:
                    tenants[jobs.tenant[job], slot] += grid.boards[now]
            before = now
        total += float(jobs.unfinished_price[job] * max(0.0, jobs.work[job] - work))
        held = np.concatenate([[jobs.present[job]], path])
        changed = (held[1:] != held[:-1]).astype(int)
        busiest = np.convolve(changed, np.ones(problem.change_window, dtype=int)).max()
        if problem.max_changes and busiest > problem.max_changes:
            return float("inf")
    if (boards > fleet.capacity + 1e-5).any():
        return float("inf")
    total += sum(_node_cost(problem, kind, boards[kind]) for kind in range(types))
    return total + _soft_cost(problem, power, tenants)


def _node_cost(problem: SlotProblem, kind: int, boards: Floats) -> float:
    """Return the cost of the best numbers of nodes, by trying every number in every slot."""
    fleet = problem.fleet
    need = np.ceil(boards / fleet.boards_per_node[kind] - 1e-6)
    most = int(max(need.max(), fleet.nodes_on[kind]))
    counts = np.arange(most + 1)
    value = np.where(counts == fleet.nodes_on[kind], 0.0, np.inf)
    for slot in range(problem.slots):
        more = np.maximum(counts[None, :] - counts[:, None], 0) * fleet.boot_cost[kind]
        value = (value[:, None] + more).min(axis=0) + counts * fleet.node_cost[kind, slot]
        value[counts < need[slot]] = np.inf
    return float(value.min())


def _soft_cost(problem: SlotProblem, power: Floats, tenants: Floats) -> float:
    total = 0.0
    if problem.power is not None:
        for domain, fed in enumerate(problem.power.members):
            over = np.maximum(power[fed].sum(axis=0) - problem.power.limit_kw[domain], 0.0)
            over[over < 1e-5] = 0.0
            if over.any():
                total += float(over.sum() * problem.power.over_penalty[domain])
    if problem.quotas is not None:
        quotas = problem.quotas
        for tenant, used in enumerate(tenants):
            short = np.maximum(quotas.guaranteed[tenant] - used, 0.0)
            total += float(quotas.guarantee_price[tenant] * short.sum())
            over = np.maximum(used - quotas.quota[tenant], 0.0)
            beyond = np.maximum(over - quotas.borrowable[tenant], 0.0)
            beyond[beyond < 1e-5] = 0.0
            total += float(quotas.borrow_price[tenant] * (over - beyond).sum())
            if beyond.any():
                total += float(quotas.over_penalty[tenant] * beyond.sum())
    return total


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactModel:
    """min cost @ x, low <= matrix @ x <= high, 0 <= x <= upper, x whole where whole is 1."""

    cost: Floats
    upper: Floats
    whole: Floats
    matrix: csr_matrix
    low: Floats
    high: Floats


@dataclass(slots=True)
class Program:
    """A mixed integer program under construction: columns and rows."""

    cost: list[Floats] = field(default_factory=list)
    upper: list[Floats] = field(default_factory=list)
    whole: list[Floats] = field(default_factory=list)
    columns: int = 0
    entries: list[tuple[Floats, Floats, Floats]] = field(default_factory=list)
    low: list[Floats] = field(default_factory=list)
    high: list[Floats] = field(default_factory=list)
    rows: int = 0

    def add(self, cost: Floats, upper: float, *, whole: bool) -> npt.NDArray[np.int64]:
        """Add columns of this cost; give their numbers in the shape of `cost`."""
        size = cost.size
        self.cost.append(cost.ravel())
        self.upper.append(np.full(size, upper))
        self.whole.append(np.full(size, float(whole)))
        self.columns += size
        return np.arange(self.columns - size, self.columns).reshape(cost.shape)

    def rows_of(
        self,
        terms: list[tuple[npt.NDArray[np.int64], Floats | float]],
        low: Floats | float,
        high: Floats | float,
    ) -> None:
        """Add rows: every term is columns [rows, n] with their coefficients."""
        count = len(terms[0][0])
        for numbers, factor in terms:
            at = np.repeat(np.arange(self.rows, self.rows + count), numbers.shape[1])
            factors = np.broadcast_to(np.asarray(factor, dtype=np.float64), numbers.shape)
            self.entries.append((at.astype(float), numbers.ravel().astype(float), factors.ravel()))
        self.low.append(np.broadcast_to(np.asarray(low, dtype=np.float64), (count,)))
        self.high.append(np.broadcast_to(np.asarray(high, dtype=np.float64), (count,)))
        self.rows += count

    def model(self) -> ExactModel:
        """Return the finished program."""
        rows, columns, factors = (
            np.concatenate(parts) for parts in zip(*self.entries, strict=True)
        )
        place = (rows.astype(np.int64), columns.astype(np.int64))
        return ExactModel(
            cost=np.concatenate(self.cost),
            upper=np.concatenate(self.upper),
            whole=np.concatenate(self.whole),
            matrix=coo_matrix((factors, place), shape=(self.rows, self.columns)).tocsr(),
            low=np.concatenate(self.low),
            high=np.concatenate(self.high),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactResult:
    """What a solver of the model came back with; NaN: nothing."""

    status: str
    cost: float
    bound: float
    seconds: float


def exact_model(problem: SlotProblem) -> ExactModel:
    """Return the program of a problem."""
    jobs, grid, fleet = problem.jobs, problem.grid, problem.fleet
    program = Program()
    slots, types = problem.slots, len(fleet.gpu_types)
    boards: list[list[list[tuple[int, float]]]] = [[[] for _ in range(slots)] for _ in range(types)]
    power: list[list[list[tuple[int, float]]]] = [[[] for _ in range(slots)] for _ in range(types)]
    owners: dict[int, list[list[tuple[int, float]]]] = {}
    cost = pinned_cost(jobs).astype(np.float64)
    for job in range(problem.size):
        options = np.flatnonzero(np.isfinite(cost[job]).any(axis=0))
        options = np.union1d(options, [jobs.present[job]])
        chosen = _job_columns(program, problem, job, options, cost[job][:, options])
        mine = owners.setdefault(int(jobs.tenant[job]), [[] for _ in range(slots)])
        for index, option in enumerate(options):
            kind = int(grid.gpu_type[option])
            if kind < 0:
                continue
            for slot in range(slots):
                column = int(chosen[slot, index])
                boards[kind][slot].append((column, float(grid.boards[option])))
                power[kind][slot].append((column, float(jobs.power_kw[job, option])))
                mine[slot].append((column, float(grid.boards[option])))
    for kind in range(types):
        _node_rows(program, problem, kind, boards[kind])
    _power_rows(program, problem, power)
    _quota_rows(program, problem, owners)
    return program.model()


def _job_columns(
    program: Program,
    problem: SlotProblem,
    job: int,
    options: npt.NDArray[np.int64],
    cost: Floats,
) -> npt.NDArray[np.int64]:
    """Add one job; give its choice columns [H, options]."""
    jobs, grid, slots = problem.jobs, problem.grid, problem.slots
    allowed = np.isfinite(cost)
    chosen = program.add(np.where(allowed, cost, 0.0), 1.0, whole=True)
    banned = chosen[~allowed]
    if banned.size:
        program.rows_of([(banned[:, None], 1.0)], 0.0, 0.0)
    program.rows_of([(chosen, 1.0)], 1.0, 1.0)
    leave = np.broadcast_to(jobs.leave_cost[job, options].astype(np.float64), cost.shape)
    enter = np.broadcast_to(jobs.enter_cost[job, options].astype(np.float64), cost.shape)
    left, entered = (program.add(entry, 1.0, whole=True) for entry in (leave, enter))
    start = (options == jobs.present[job]).astype(np.float64)
    for slot in range(slots):
        now, out, into = chosen[slot][:, None], left[slot][:, None], entered[slot][:, None]
        change = [(now, 1.0), (into, -1.0), (out, 1.0)]
        kept: list[tuple[npt.NDArray[np.int64], Floats | float]] = [(out, 1.0)]
        if slot:
            before = chosen[slot - 1][:, None]
            program.rows_of([*change, (before, -1.0)], 0.0, 0.0)
            program.rows_of([*kept, (before, -1.0)], -np.inf, 0.0)
        else:
            program.rows_of(change, start, start)
            program.rows_of(kept, -np.inf, start)
        program.rows_of([(into, 1.0), (now, -1.0)], -np.inf, 0.0)
    for first in range(slots if problem.max_changes else 0):
        changes = entered[first : first + problem.change_window].reshape(1, -1)
        program.rows_of([(changes, 1.0)], 0.0, float(problem.max_changes))
    layouts = np.unique(grid.layout[options])
    table = jobs.layout_cost[job] * grid.layout_change[np.ix_(layouts, layouts)]
    flow = program.add(
        np.broadcast_to(table, (slots, *table.shape)).astype(np.float64), 1.0, whole=True
    )
    for index, layout in enumerate(layouts):
        inside = grid.layout[options] == layout
        program.rows_of([(flow[:, index, :], 1.0), (left[:, inside], -1.0)], 0.0, 0.0)
        program.rows_of([(flow[:, :, index], 1.0), (entered[:, inside], -1.0)], 0.0, 0.0)
    if jobs.work[job] > 0:
        missing = program.add(np.array([[jobs.unfinished_price[job]]]), np.inf, whole=False)
        counted = chosen[: int(jobs.deadline[job])]
        rate = np.broadcast_to(jobs.rate[job, options].astype(np.float64), counted.shape)
        program.rows_of(
            [(counted.reshape(1, -1), rate.reshape(1, -1)), (missing, 1.0)],
            float(jobs.work[job]),
            np.inf,
        )
    return chosen


def _term(
    entries: list[tuple[int, float]],
) -> tuple[npt.NDArray[np.int64], Floats]:
    numbers = np.array([[entry for entry, _ in entries]], dtype=np.int64).reshape(1, -1)
    return numbers, np.array([[factor for _, factor in entries]]).reshape(1, -1)


def _node_rows(
    program: Program, problem: SlotProblem, kind: int, used: list[list[tuple[int, float]]]
) -> None:
    fleet = problem.fleet
    most = float(np.ceil(fleet.capacity[kind].max() / fleet.boards_per_node[kind]))
    most = max(most, float(fleet.nodes_on[kind]))
    nodes = program.add(fleet.node_cost[kind].astype(np.float64), most, whole=True)
    fired = program.add(np.full(problem.slots, fleet.boot_cost[kind]), most, whole=True)
    for slot in range(problem.slots):
        term = _term(used[slot])
        room = -float(fleet.boards_per_node[kind])
        program.rows_of([term], -np.inf, float(fleet.capacity[kind, slot]))
        program.rows_of([term, (nodes[slot].reshape(1, 1), room)], -np.inf, 0.0)
        terms = [(nodes[slot].reshape(1, 1), 1.0), (fired[slot].reshape(1, 1), -1.0)]
        before = float(fleet.nodes_on[kind])
        if slot:
            terms.append((nodes[slot - 1].reshape(1, 1), -1.0))
            before = 0.0
        program.rows_of(terms, -np.inf, before)


def _power_rows(
    program: Program, problem: SlotProblem, power: list[list[list[tuple[int, float]]]]
) -> None:
    if problem.power is None:
        return
    for domain, fed in enumerate(problem.power.members):
        price = float(problem.power.over_penalty[domain])
        for slot in range(problem.slots):
            entries = [pair for kind in np.flatnonzero(fed) for pair in power[kind][slot]]
            terms = [_term(entries)]
            if np.isfinite(price):
                terms.append((program.add(np.array([[price]]), np.inf, whole=False), -1.0))
            program.rows_of(terms, -np.inf, float(problem.power.limit_kw[domain, slot]))


def _quota_rows(
    program: Program,
    problem: SlotProblem,
    owners: dict[int, list[list[tuple[int, float]]]],
) -> None:
    quotas = problem.quotas
    if quotas is None:
        return
    for tenant, used in owners.items():
        if tenant < 0:
            continue
        for slot in range(problem.slots):
            term = _term(used[slot])
            short = program.add(np.array([[quotas.guarantee_price[tenant]]]), np.inf, whole=False)
            program.rows_of([term, (short, 1.0)], float(quotas.guaranteed[tenant, slot]), np.inf)
            terms = [term]
            room = float(quotas.borrowable[tenant, slot])
            borrowed = program.add(np.array([[quotas.borrow_price[tenant]]]), room, whole=False)
            terms.append((borrowed, -1.0))
            price = float(quotas.over_penalty[tenant])
            if np.isfinite(price):
                terms.append((program.add(np.array([[price]]), np.inf, whole=False), -1.0))
            program.rows_of(terms, -np.inf, float(quotas.quota[tenant, slot]))


def solve_with_highs(model: ExactModel, seconds: float) -> ExactResult:
    """Return what HiGHS finds in so many seconds."""
    started = time.monotonic()
    found = milp(
        model.cost,
        integrality=model.whole,
        bounds=Bounds(np.zeros_like(model.upper), model.upper),
        constraints=LinearConstraint(model.matrix, model.low, model.high),
        options={"time_limit": seconds, "mip_rel_gap": 1e-9},
    )
    bound = getattr(found, "mip_dual_bound", None)
    return ExactResult(
        status="optimal" if found.status == 0 else f"stopped ({found.status})",
        cost=float("nan") if found.x is None else float(model.cost @ found.x),
        bound=float("nan") if bound is None else float(bound),
        seconds=time.monotonic() - started,
    )


def solve_with_cp_sat(model: ExactModel, seconds: float, *, workers: int = 2) -> ExactResult:
    """Return what CP-SAT finds, in a process of its own (see benchmarks._cp_sat_plan)."""
    answer = subprocess.run(  # noqa: S603 # our own module with two numbers
        [sys.executable, "-m", "benchmarks._cp_sat_plan", str(seconds), str(workers)],
        input=pickle.dumps(model),
        capture_output=True,
        check=True,
        cwd=ROOT,
    )
    found: ExactResult = pickle.loads(answer.stdout)  # noqa: S301 # our own process wrote it
    return found
