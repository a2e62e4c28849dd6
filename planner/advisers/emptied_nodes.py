"""Nodes that may be powered down, with savings less the cost of moving their jobs."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta

from data.catalogue.gpu_catalogue import GpuModel
from data.facts.jobs import Platform
from data.records.actions import Action
from data.records.feasible_changes import has_same_pods
from data.records.plans import NodePlan, Plan
from data.records.recommendations import Savings
from data.settings.energy import PUE_UNCERTAINTY
from planner.advisers.removable_nodes import removable_nodes
from planner.costs.carbon import emissions_of, market_emissions_of
from planner.costs.cost import ChangeTime, move_costs
from planner.costs.free_boards import free_board
from planner.costs.transitions import entering
from planner.fleet.fleet import in_partition, runs_under
from planner.fleet.fleet_nodes import FleetNode
from planner.jobs.expected_value import mean_of
from planner.problem.job_problem import JobProblem
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.fleet_advice import FleetAdvice
from planner.proposals.joint_errors import Error, above_zero, range_of, two_sided_error
from planner.proposals.proposal import Proposal
from planner.proposals.wording import name_of

_BASE_SPREAD = 0.5
"""How far (q10-q90) a server without its GPUs may draw from the setting `nodes.base_watts_per_gpu`
(an empty server of the Acme trace draws 1,512 W, 10th percentile, with eight idle boards)."""
_MIN_OFF_HOURS = 1.0


def empty_nodes(
    plan: Plan, problem: PlanningProblem, changes: Sequence[Proposal]
) -> Iterator[FleetAdvice]:
    """Return the nodes that the plan powers down, each with its longest stretch off.

    What the plan changes and nobody is asked to change stays as it is: a node is named only if,
    once the recommended `changes` are made, its jobs may leave it and fit on nodes that stay on.
    Only here is the idle power of free boards counted as saved: the node itself is off. Only a
    scheduler can keep a node empty, so that one without its own gets no advice, and neither does
    one whose boards nobody reads, as what they do is not known, or that takes no jobs already.
    Neither does one of which the moves cost more than it saves.
    """
    facts = {node.name: node for node in problem.facts.nodes}
    stretches = {node.node: _longest_off(node) for node in plan.nodes}
    proposed = {change.job.demand.job.job_id: change for change in changes}
    may_go = removable_nodes(problem, proposed, stretches)
    on_node = _by_node(changes, problem)
    for node in plan.nodes:
        if node.node not in may_go:
            continue
        fact = facts.get(node.node)
        if fact is None or fact.platform is Platform.UNKNOWN or not fact.open:
            continue
        if fact.foreign or not fact.read:
            continue
        first, last = stretches[node.node]
        # Where a job starts again before a node closes, the next cycle sees if it is on it.
        if first and any(
            _starts_again(change, first - 1)
            and not _only_ends_pods(change)
            and _may_start_on(change, fact, problem)
            for change in on_node[node.node]
        ):
            continue
        hours = (last - first) * problem.terms.slot_hours
        model = problem.catalogue.find(node.gpu_model)
        if hours < _MIN_OFF_HOURS or model is None:
            continue
        moves = _moves(may_go[node.node], proposed, first, problem)
        advice = _power_down(node, fact, model, (first, last), moves, plan, problem)
        if advice.savings.cost is not None and advice.savings.cost.central >= 0:
            # A node that closes in some hours does not keep a job waiting until then.
            later = [
                change
                for change in changes
                if not first and _starts_again(change, 0) and not _only_ends_pods(change)
                if change in on_node[node.node] or _may_start_on(change, fact, problem)
            ]
            before = [change for change in on_node[node.node] if change not in later]
            yield replace(advice, first=tuple(before), later=tuple(later))


def nodes_first(
    closing: Sequence[FleetAdvice], changes: Sequence[Proposal], problem: PlanningProblem
) -> Mapping[str, Sequence[str]]:
    """Return by job the names of what comes before its change: nodes that close, room elsewhere.

    A job that starts again, there or elsewhere, is to find the node closed, and boards on the nodes
    that stay open: free now, its own, or freed by other changes, of which as many are named as it
    takes.
    """
    shut, under = {node.subject for node in closing}, problem.facts.scheduler
    shut_nodes = {node.name for node in problem.facts.nodes if node.known_as in shut}
    later = {change.job.demand.job.job_id: change for node in closing for change in node.later}
    names = {
        job: [f"{node.subject} ({node.action})" for node in closing if change in node.later]
        for job, change in later.items()
    }
    free = defaultdict[tuple[str, str], float](float)
    for node in problem.facts.nodes:
        if node.open and node.known_as not in shut:
            for scheduler in node.schedulers:
                free[node.gpu_model, scheduler] += max(0, node.usable - node.allocated)
    needs = {
        job.job_id: change.chosen.boards - _kept_open(change, problem, shut_nodes)
        for change in changes
        for job in (change.job.demand.job,)
    }
    # One that has its boards on nodes that stay open needs none of others.
    others = [
        change
        for change in changes
        for job in (change.job.demand.job.job_id,)
        if job not in later or needs[job] <= 0
    ]
    for job, change in later.items():
        model, scheduler = change.chosen.configuration.gpu_model, under[job]
        if needs[job] <= 0:
            continue
        free[model, scheduler] -= needs[job]
        for other in others:
            gives = _given_back(other, model)
            if free[model, scheduler] >= 0:
                break
            if gives > 0 and under[other.job.demand.job.job_id] == scheduler:
                free[model, scheduler] += gives
                names[job].append(name_of(other))
                others = [entry for entry in others if entry is not other]
    return names


def _kept_open(change: Proposal, problem: PlanningProblem, shut: Collection[str]) -> int:
    """Return the boards of the chosen model that a job has on nodes that stay open."""
    home = problem.facts.homes.get(change.job.demand.job.job_id)
    if (
        home is None
        or change.present.configuration.gpu_model != change.chosen.configuration.gpu_model
    ):
        return 0
    return sum(count for name, count in home.boards if name not in shut)


def _given_back(change: Proposal, model: str) -> float:
    """Return the boards of a model that a change gives back, below 0 where it takes more."""
    options = ((change.present, 1), (change.chosen, -1))
    return sum(sign * at.boards for at, sign in options if at.configuration.gpu_model == model)


def _by_node(
    changes: Sequence[Proposal], problem: PlanningProblem
) -> Mapping[str, Sequence[Proposal]]:
    """Return the changes of jobs by the nodes that they hold boards of now."""
    changes_by_node: dict[str, list[Proposal]] = defaultdict(list)
    for change in changes:
        home = problem.facts.homes.get(change.job.demand.job.job_id)
        for node in dict(() if home is None else home.boards):
            changes_by_node[node].append(change)
    return changes_by_node


@dataclass(frozen=True, slots=True, kw_only=True)
class _Move:
    """A job's restart on another node, with its cost and its chance to be there."""

    job_id: str
    change: ChangeTime
    likely: float


def _moves(
    movers: Sequence[JobProblem],
    proposed: Mapping[str, Proposal],
    first: int,
    problem: PlanningProblem,
) -> list[_Move]:
    """Return the moves that emptying a node from slot `first` takes.

    A job whose own change starts it again by then starts elsewhere: its recommendation counts that.
    """
    return [
        _Move(
            job_id=job.demand.job.job_id,
            change=move_costs(job.demand, job.options[0], problem.terms),
            likely=float(job.demand.remaining.central[first]),
        )
        for job in movers
        if not _starts_again(proposed.get(job.demand.job.job_id), first)
    ]


def _starts_again(change: Proposal | None, first: int) -> bool:
    """Return whether a change starts its job again before slot `first`, or in it."""
    if change is None or (change.first or 0) > first:
        return False
    elasticity = change.job.demand.standing.elasticity
    return bool(entering(elasticity, change.present, change.chosen))


def _may_start_on(change: Proposal, node: FleetNode, problem: PlanningProblem) -> bool:
    """Return whether a changed job may start on a node, wherever it is now."""
    job = change.job.demand.job
    return (
        change.chosen.configuration.gpu_model == node.gpu_model
        and runs_under(problem.facts.scheduler[job.job_id], node.schedulers)
        and in_partition(job, node.partitions)
    )


def _only_ends_pods(change: Proposal) -> bool:
    """Return whether a change of a workload only ends some of its pods, and starts none."""
    run, then = change.job.demand.job, change.chosen.configuration
    same = (then.gpu_model, then.mig_profile) == (run.gpu_model, run.mig_profile)
    return (
        run.platform is Platform.KUBERNETES
        and same
        and then.gpu_count < run.gpu_count
        and not has_same_pods(run, then.gpu_count)
    )


def _longest_off(node: NodePlan) -> tuple[int, int]:
    """Return the longest stretch of slots [first, last) in which a node is off; empty when none."""
    best, start = (0, 0), 0
    for slot, on in enumerate((*node.on, True)):
        if on:
            best = max(best, (start, slot), key=lambda entry: entry[1] - entry[0])
            start = slot + 1
    return best


def _power_down(
    node: NodePlan,
    fact: FleetNode,
    model: GpuModel,
    stretch: tuple[int, int],
    moves: Sequence[_Move],
    plan: Plan,
    problem: PlanningProblem,
) -> FleetAdvice:
    first, last = stretch
    terms, nodes = problem.terms, problem.rules.nodes
    hours = (last - first) * terms.slot_hours
    begins = plan.slot_starts[first]
    ends = None if last == len(node.on) else begins + timedelta(hours=hours)
    # What begins with the plan begins at once: its hour would be another in every cycle.
    span = f" from {begins:%Y-%m-%d %H:%M} UTC" * (first > 0)
    span += f" until {ends:%Y-%m-%d %H:%M} UTC" if ends else " on" * (first > 0)
    off_hours = hours if ends is None else max(0.0, hours - nodes.boot_minutes / 60)
    factors = [
        (
            "idle board",
            f"{model.idle_watts:g} ({model.idle_watts_low:g}–{model.idle_watts_high:g}) W",
        ),
        (
            "server without GPUs",
            f"{nodes.base_watts_per_gpu:g} W per GPU ± 50 % (setting nodes.base_watts_per_gpu)",
        ),
    ]
    if off_hours < hours:
        boot = f"{nodes.boot_minutes:g} min before it is needed"
        factors.append(("boot", boot))
    if moves:
        factors.append(("starts again elsewhere", ", ".join(move.job_id for move in moves)))
    return FleetAdvice(
        action=Action.CONSOLIDATE,
        subject=fact.known_as,
        platform=fact.platform,
        gpu_model=node.gpu_model,
        gpus_now=node.gpus,
        gpus_then=0,
        change=f"power {fact.known_as} down{span}",
        why=(
            f"Once the recommended changes are made, no job needs {fact.known_as} with its "
            f"{node.gpus} {node.gpu_model} for {hours:g} h, and none waits that may start on it; "
            "what still runs there ends by itself or fits on other nodes of its scheduler. Drain "
            "it first: no new job may start on it."
        ),
        savings=_power_down_savings(node.gpus * off_hours, model, stretch, moves, problem),
        starts_at=begins if first else None,
        ends_at=ends,
        factors=tuple(factors),
    )


def _power_down_savings(
    board_hours: float,
    model: GpuModel,
    stretch: tuple[int, int],
    moves: Sequence[_Move],
    problem: PlanningProblem,
) -> Savings:
    """Return the savings of a node that is off, less the moves; all errors are independent."""
    slots, tariff = slice(*stretch), problem.tariff
    price, mean_price = float(tariff.per_kwh[slots].mean()), float(tariff.per_kwh.mean())
    kwh, errors = _node_energy(board_hours, model, problem)
    boards, rent = 0.0, 0.0
    for move in moves:
        change, likely = move.change, move.likely
        rents = [
            cost - used * mean_price for cost, used in zip(change.cost, change.kwh, strict=True)
        ]
        errors.append(
            Error(
                gpu_hours=-likely * above_zero(*change.gpu_hours),
                kwh=-likely * above_zero(*change.kwh),
                rent=-likely * above_zero(*rents),
            )
        )
        boards += likely * mean_of(*change.gpu_hours)
        kwh -= likely * mean_of(*change.kwh)
        rent += likely * mean_of(*rents)
    energy = range_of(kwh, [error.kwh for error in errors], "kWh")
    return Savings(
        horizon_hours=problem.terms.horizon_hours,
        gpu_hours=range_of(-boards, [error.gpu_hours for error in errors], "GPU-h")
        if moves
        else None,
        energy_kwh=energy,
        emissions_kgco2e=emissions_of(energy, problem.carbon, float(tariff.gco2e[slots].mean())),
        market_emissions_kgco2e=market_emissions_of(energy, problem.energy.market_factor),
        cost=range_of(
            kwh * price - rent,
            [error.rent + price * error.kwh for error in errors],
            problem.energy.currency,
        ),
    )


def _node_energy(
    board_hours: float, model: GpuModel, problem: PlanningProblem
) -> tuple[float, list[Error]]:
    """Return the site energy in kWh that a node draws empty, and its error."""
    energy, base = problem.energy, problem.rules.nodes.base_watts_per_gpu
    board, spread = free_board(model), _BASE_SPREAD * base
    site = board_hours / 1000 * energy.pue
    central = site * (board.mean + base)
    per_pue = central / energy.pue
    below = min(PUE_UNCERTAINTY, energy.pue - 1)
    return central, [
        Error(
            kwh=two_sided_error(site * (board.mean - board.low), site * (board.high - board.mean))
        ),
        Error(kwh=two_sided_error(site * spread, site * spread)),
        Error(kwh=two_sided_error(per_pue * below, per_pue * PUE_UNCERTAINTY)),
    ]
