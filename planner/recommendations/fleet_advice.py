"""Advice on the fleet: boards that will be short, and nodes that may be powered down."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt

from data.catalogue.gpu_catalogue import GpuModel
from data.records.decisions import Action, Range, Savings
from data.records.forecasts import GroupForecast, GroupKind, Quantity
from data.records.jobs import Platform
from data.records.plans import NodePlan, Plan
from data.units import SECONDS_PER_HOUR
from planner.problem.carbon import emissions_of, market_emissions_of
from planner.problem.fleet import FleetNode
from planner.problem.free_boards import free_board
from planner.problem.planning_problem import JobProblem, PlanningProblem
from planner.recommendations.joint_errors import either_side, range_of
from planner.recommendations.proposals import Proposal

Values = npt.NDArray[np.float64]
_BASE_SPREAD = 0.5
"""How far (q10-q90) a server without its GPUs may draw from the setting `nodes.base_watts_per_gpu`
(an empty server of the Acme trace draws 1,512 W, 10th percentile, with eight idle boards)."""
_MIN_OFF_HOURS = 1.0
_NOTICEABLE_BOARDS = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetAdvice:
    """Advice about `subject`, a node by its scheduler's name or a GPU model, not about one job."""

    action: Action
    subject: str
    platform: Platform
    gpu_model: str
    gpus_now: int
    gpus_then: int
    change: str
    why: str
    savings: Savings
    starts_at: datetime
    ends_at: datetime | None
    factors: tuple[tuple[str, str], ...]


def given_back(model: str, changes: Sequence[Proposal], slots: int) -> Values:
    """Return the boards of a model that changes give back, array [slots]; below 0: they take more.

    A change gives back no more than its job would still hold.
    """
    freed = np.zeros(slots)
    for change in changes:
        held = [change.present, *(change.job.options[number] for number in change.proposed)]
        now, *then = (
            indices.boards * (indices.configuration.gpu_model == model) for indices in held
        )
        freed += change.job.demand.remaining.central * (now - np.array(then))
    return freed


def missing_boards(
    problem: PlanningProblem, groups: Sequence[GroupForecast], changes: Sequence[Proposal]
) -> Iterator[FleetAdvice]:
    """Yield the GPU models whose forecast allocation exceeds what the fleet has.

    The forecast of a model contains jobs yet to come. Only what starts within the horizon counts,
    and only what is still short once the recommended `changes` are made.
    """
    slot = timedelta(minutes=problem.planning.slot_minutes)
    capacity = dict(zip(problem.gpu_models, problem.capacity.tolist(), strict=True))
    end = problem.slot_starts[-1]
    for group in groups:
        path = group.path(Quantity.ALLOCATED_GPUS) if group.kind is GroupKind.GPU_MODEL else None
        have = capacity.get(group.name, 0.0)
        if path is None or not have:
            continue
        freed = given_back(group.name, changes, len(problem.slot_starts))
        short = [
            _Short(at=at, forecast=high, freed=float(freed[number]))
            for at, high in zip(group.slot_starts, path.q90, strict=True)
            if at <= end
            and high - freed[number := max(0, (at - problem.slot_starts[0]) // slot)] > have + 0.5
        ]
        if short:
            yield _missing(group, have, short, path.q50[0], problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Short:
    """A slot without enough boards: the forecast's q90, and what recommendations give back."""

    at: datetime
    forecast: float
    freed: float

    @property
    def needed(self) -> float:
        return self.forecast - self.freed


def _missing(
    group: GroupForecast,
    have: float,
    short: Sequence[_Short],
    middle: float,
    problem: PlanningProblem,
) -> FleetAdvice:
    model, starts = group.name, short[0].at
    worst = max(short, key=lambda entry: entry.needed)
    wanted = int(-(-worst.needed // 1))
    step = group.slot_starts[1] - group.slot_starts[0] if len(group.slot_starts) > 1 else None
    hours = len(short) * (1.0 if step is None else step.total_seconds() / SECONDS_PER_HOUR)
    changed = ""
    if abs(worst.freed) >= _NOTICEABLE_BOARDS:
        verb = "give back" if worst.freed > 0 else "take"
        changed = f" The recommended changes of jobs {verb} {abs(worst.freed):.3g} by then."
    held = sum(job.options[0].boards for job in problem.jobs if job.demand.job.gpu_model == model)
    return FleetAdvice(
        action=Action.ADD_GPUS,
        subject=model,
        platform=Platform.UNKNOWN,
        gpu_model=model,
        gpus_now=int(have),
        gpus_then=wanted,
        change=f"{wanted - int(have)} more {model} from {starts:%Y-%m-%d %H:%M} UTC",
        why=(
            f"Jobs are forecast to hold {middle:.1f} {model} now and up to {worst.forecast:.1f} "
            f"(q90) from {starts:%Y-%m-%d %H:%M} UTC, in {hours:g} h of the horizon, where the "
            f"fleet has {have:g}, of which {max(0.0, have - held):.3g} are free now.{changed} Some "
            "jobs would wait in the queue. More boards or other models for some jobs make room."
        ),
        savings=_nothing(problem),
        starts_at=starts,
        ends_at=None,
        factors=(),
    )


def _nothing(problem: PlanningProblem) -> Savings:
    return Savings(
        horizon_hours=problem.terms.horizon_hours,
        gpu_hours=None,
        energy_kwh=None,
        emissions_kgco2e=None,
        cost=None,
    )


def empty_nodes(
    plan: Plan, problem: PlanningProblem, changes: Sequence[Proposal]
) -> Iterator[FleetAdvice]:
    """Return the nodes that the plan powers down, each with its longest stretch off.

    What the plan changes and nobody is asked to change stays as it is: a node is named only if,
    once the recommended `changes` are made, its jobs may leave it and fit on nodes that stay on.
    Only here is the idle power of free boards counted as saved: the node itself is off. Only a
    scheduler can keep a node empty, so that one without its own gets no advice, and neither does
    one whose boards nobody reads, as what they do is not known, or that takes no jobs already.
    """
    facts = {node.name: node for node in problem.facts.nodes}
    stretches = {node.node: _longest_off(node) for node in plan.nodes}
    may_go = _that_may_go(problem, changes, stretches)
    for node in plan.nodes:
        if node.node not in may_go:
            continue
        fact = facts.get(node.node)
        if fact is None or fact.platform is Platform.UNKNOWN or not fact.open:
            continue
        if fact.foreign or not fact.read:
            continue
        first, last = stretches[node.node]
        hours = (last - first) * problem.terms.slot_hours
        model = problem.catalogue.find(node.gpu_model)
        if hours >= _MIN_OFF_HOURS and model is not None:
            yield _power_down(node, fact, model, (first, last), plan, problem)


def _that_may_go(
    problem: PlanningProblem,
    changes: Sequence[Proposal],
    stretches: Mapping[str, tuple[int, int]],
) -> frozenset[str]:
    """Return those nodes, off in `stretches` of slots, whose jobs may leave and fit elsewhere.

    A job holds in a stretch the most that its recommended change lets it hold there, or what it
    holds now until it has surely ended. The largest are put first, each where the least is left.
    """
    proposed = {change.job.demand.job.job_id: change for change in changes}
    takers = {node.name: node for node in problem.facts.nodes if node.open and node.read}
    models = {name: node.gpu_model for name, node in takers.items()}
    off = {name: span for name, span in stretches.items() if span[1] > span[0] and name in takers}
    going: set[str] = set()
    for candidate in sorted(off, key=lambda name: (off[name][0] - off[name][1], name)):
        gone = going | {candidate}
        left = {name: node.usable for name, node in takers.items() if name not in gone}
        leaving: list[tuple[int, str]] = []
        stuck = False
        for column, job in enumerate(problem.jobs):
            held = _held_in(job, proposed.get(job.demand.job.job_id), slice(*off[candidate]))
            own = job.demand.job.gpu_model
            home = problem.facts.homes.get(job.demand.job.job_id)
            for name, boards in () if home is None else home.boards:
                part = min(boards, held.get(own, 0))
                if not part:
                    continue
                if name in gone:
                    stuck = stuck or not problem.movable(column)
                    continue
                held[own] -= part
                if name in left:
                    left[name] -= part
            leaving += [(boards, model) for model, boards in held.items() if boards]
        rest = sorted(leaving, reverse=True)
        if not stuck and all(_put(boards, model, left, models) for boards, model in rest):
            going.add(candidate)
    return frozenset(going)


def _held_in(job: JobProblem, change: Proposal | None, span: slice) -> dict[str, int]:
    """Return the boards by model that a job may hold in slots of a plan, its change made."""
    there = job.demand.remaining.high[span] > 0
    options = {0} if change is None else {*np.array(change.proposed)[span][there].tolist()}
    found: dict[str, int] = {}
    held = job.options if change is None else change.job.options
    for option in (held[number] for number in options if there.any()):
        model = option.configuration.gpu_model
        found[model] = max(found.get(model, 0), int(np.ceil(option.boards - 1e-6)))
    return found


def _put(boards: int, model: str, left: dict[str, int], models: Mapping[str, str]) -> bool:
    """Take the room for boards where the least is left, and say whether there was any."""
    fitting = [name for name in left if models[name] == model and left[name] >= boards]
    if not fitting:
        return False
    left[min(fitting, key=lambda name: (left[name], name))] -= boards
    return True


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
    plan: Plan,
    problem: PlanningProblem,
) -> FleetAdvice:
    first, last = stretch
    terms = problem.terms
    hours = (last - first) * terms.slot_hours
    starts = plan.slot_starts[first]
    ends = None if last == len(node.on) else starts + timedelta(hours=hours)
    until = "on" if ends is None else f"until {ends:%Y-%m-%d %H:%M} UTC"
    energy = _energy_of(node.gpus, model, hours, problem)
    return FleetAdvice(
        action=Action.CONSOLIDATE,
        subject=fact.known_as,
        platform=fact.platform,
        gpu_model=node.gpu_model,
        gpus_now=node.gpus,
        gpus_then=0,
        change=f"power {fact.known_as} down from {starts:%Y-%m-%d %H:%M} UTC {until}",
        why=(
            f"Once the recommended changes are made, no job needs {fact.known_as} with its "
            f"{node.gpus} {node.gpu_model} for {hours:g} h, and none waits that may start on it; "
            "what still runs there ends by itself or fits on other nodes of its scheduler. Drain "
            "it first: no new job may start on it."
        ),
        savings=_power_down_savings(energy, (first, last), problem),
        starts_at=starts,
        ends_at=ends,
        factors=(
            (
                "idle board",
                f"{model.idle_watts:g} ({model.idle_watts_low:g}–{model.idle_watts_high:g}) W",
            ),
            (
                "server without GPUs",
                (
                    f"{problem.rules.nodes.base_watts_per_gpu:g} W per GPU ± 50 % "
                    "(setting nodes.base_watts_per_gpu)"
                ),
            ),
        ),
    )


def _energy_of(gpus: int, model: GpuModel, hours: float, problem: PlanningProblem) -> Range:
    """Return the site energy in kWh that a node draws empty, of independent errors."""
    energy, base = problem.energy, problem.rules.nodes.base_watts_per_gpu
    board, spread = free_board(model), _BASE_SPREAD * base
    site = gpus * hours / 1000 * energy.pue
    central = site * (board.mean + base)
    per_pue = central / energy.pue
    errors = (
        either_side(site * (board.mean - board.low), site * (board.high - board.mean)),
        either_side(site * spread, site * spread),
        either_side(
            per_pue * min(energy.pue_uncertainty, energy.pue - 1), per_pue * energy.pue_uncertainty
        ),
    )
    return range_of(central, errors, "kWh")


def _power_down_savings(
    energy: Range, stretch: tuple[int, int], problem: PlanningProblem
) -> Savings:
    first, last = stretch
    tariff = problem.tariff
    price = float(tariff.per_kwh[first:last].mean())
    return Savings(
        horizon_hours=problem.terms.horizon_hours,
        gpu_hours=None,
        energy_kwh=energy,
        emissions_kgco2e=emissions_of(
            energy, problem.carbon, float(tariff.gco2e[first:last].mean())
        ),
        market_emissions_kgco2e=market_emissions_of(energy, problem.energy.market_factor),
        cost=Range(
            low=energy.low * price,
            central=energy.central * price,
            high=energy.high * price,
            unit=problem.energy.currency,
        ),
    )
