"""Free nodes whose boards would be worth cutting: the layout of their MIG manager, and its jobs.

A plan gives jobs the slices that are there. Here a node that nobody holds is cut for jobs that
would each do with a slice and hold a whole board now: it is worth it where more boards become free
than are cut. The jobs themselves are proposed their slices once these are there.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from data.catalogue.gpu_catalogue import GpuModel
from data.facts.cluster_names import name_in_cluster
from data.facts.fleet import MigLayout
from data.facts.gpu_resources import MIG_LAYOUT_LABEL
from data.records.actions import Action
from data.records.recommendations import Range, Savings
from planner.costs.configurations import Option, options_for
from planner.fleet.fleet import runs_under
from planner.fleet.fleet_nodes import FleetNode, Reach
from planner.fleet.mig_placement import Slice, pack_slices
from planner.problem.job_problem import JobProblem
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.fleet_advice import FleetAdvice
from planner.proposals.guardrails import refusal
from planner.proposals.proposal import Proposal, steady_proposal
from planner.proposals.savings import outcome_of
from planner.proposals.suppressions import Rejections, rejected

_NAMED_JOBS = 10
_MINUTES = "1-15 min in which the node takes no pods, longer where it has to be rebooted (assumed)"


@dataclass(frozen=True, slots=True, kw_only=True)
class _SliceMove:
    """A job that would go on in a slice: its savings, and the worth of its part of a board.

    `part_hours` are GPU-hours that the slice holds of its board.
    """

    job_id: str
    savings: Savings
    part_hours: float
    worth: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _CutNode:
    """A node, the layout for it, the jobs that would take its slices, and the total savings."""

    node: FleetNode
    layout: MigLayout
    moves: tuple[_SliceMove, ...]
    savings: Savings


def nodes_to_cut(
    problem: PlanningProblem,
    candidates: Collection[str],
    *,
    unneeded: Collection[str],
    wanted: Collection[str],
    past_runs: Mapping[str, Sequence[float]],
    rejections: Rejections,
) -> list[FleetAdvice]:
    """Return at most one node for each model of a scheduler, with the layout that saves most.

    `candidates` are jobs of which nothing else is proposed. A node is cut only where nothing else
    needs its boards: its model is none of `wanted` (`wanted_models`), and of nodes that others are
    emptied onto none is; `unneeded` are those that may be powered down.
    """
    best: dict[tuple[str, tuple[str, ...]], _CutNode] = {}
    judged = set[tuple[str, tuple[str, ...], tuple[MigLayout, ...]]]()
    for node in problem.facts.nodes:
        layouts = _layouts_for(node, problem)
        kind = node.gpu_model, node.schedulers, layouts
        needed = unneeded and node.known_as not in unneeded
        if not layouts or needed or node.gpu_model in wanted or kind in judged:
            continue
        judged.add(kind)  # another node of the kind would be worth as much
        offers = _offers(problem, node, layouts, candidates, past_runs, rejections)
        for layout in layouts:
            cut = _worth_it(problem, node, layout, offers)
            key = node.gpu_model, node.schedulers
            if cut is not None and (
                key not in best or cut.savings.money > best[key].savings.money + 1e-9
            ):
                best[key] = cut
    return [_advice(cut) for _key, cut in sorted(best.items())]


def wanted_models(
    problem: PlanningProblem, changes: Sequence[Proposal], short: Collection[str]
) -> set[str]:
    """Return the models of which changes or autoscalers take boards, and those that are short."""
    models = {model for model in problem.gpu_models if any(_takes(row, model) for row in changes)}
    grows = {job.demand.job.gpu_model for job in problem.jobs if job.more_boards.any()}
    return {*models, *grows, *short}


def _takes(change: Proposal, model: str) -> bool:
    """Return whether a change takes boards of a model beyond what its job holds of it."""
    options = (change.present, *(change.job.options[number] for number in change.proposed))
    now, *then = (option.boards * (option.configuration.gpu_model == model) for option in options)
    return max(then, default=0.0) > now + 1e-9


def _layouts_for(node: FleetNode, problem: PlanningProblem) -> tuple[MigLayout, ...]:
    """Return the layouts that a node could be given: free, whole and at rest, with a way back.

    The manager takes no notice of a label that is removed, so the layout of now has to be named,
    to be offered, and to leave every board whole.
    """
    manager, model = node.mig_manager, problem.catalogue.find(node.gpu_model)
    if manager is None or model is None:
        return ()
    free = (
        node.open
        and node.read
        and not (node.allocated or node.occupied or node.foreign or node.away)
    )
    now = manager.offered(manager.layout)
    if not free or node.mig_profiles or now is None or now.cut or now.whole != node.gpus:
        return ()
    if manager.strategy != "mixed" or manager.state not in ("", "success"):
        return ()
    return tuple(layout for layout in manager.layouts if layout.cut and _fits(layout, model))


def _fits(layout: MigLayout, model: GpuModel) -> bool:
    """Return whether the slices of each board of a layout have their place on it."""
    for _number, slices in layout.boards:
        placements = [
            model.mig_placement(profile)
            for name, count in slices
            for profile in [model.mig_profile(name)] * count
            if profile is not None
        ]
        entries = [
            Slice(pool=0, start=0, end=1, placement=placement)
            for placement in placements
            if placement
        ]
        if len(entries) < sum(count for _name, count in slices):
            return False
        if entries and len(pack_slices(entries, 1)[0]) > 1:
            return False
    return True


def _offers(
    problem: PlanningProblem,
    node: FleetNode,
    layouts: Iterable[MigLayout],
    candidates: Collection[str],
    past_runs: Mapping[str, Sequence[float]],
    rejections: Rejections,
) -> dict[str, list[_SliceMove]]:
    """Return by profile the jobs that would go on in such a slice of the node."""
    offers: dict[str, list[_SliceMove]] = {}
    profiles = frozenset(profile for layout in layouts for profile in layout.slices)
    reach = Reach(boards={}, slices={node.gpu_model: profiles}, models=frozenset())
    for column, job in enumerate(problem.jobs):
        run = job.demand.job
        if run.job_id not in candidates or run.gpu_model != node.gpu_model:
            continue
        reachable = runs_under(problem.facts.scheduler[run.job_id], node.schedulers)
        if not reachable or not problem.movable(column) or run.mig_profile:
            continue
        for option in options_for(job.demand, reach, terms=problem.terms):
            profile = option.configuration.mig_profile
            move = _move(job, option, problem, past_runs, rejections) if profile else None
            if move is not None:
                offers.setdefault(profile, []).append(move)
    return offers


def _move(
    job: JobProblem,
    option: Option,
    problem: PlanningProblem,
    past_runs: Mapping[str, Sequence[float]],
    rejections: Rejections,
) -> _SliceMove | None:
    """Return the move of a job to a slice, None where it would not be recommended."""
    terms, job_id = problem.terms, job.demand.job.job_id
    alone = JobProblem(
        demand=job.demand, options=(job.options[0], option), keep_reason=job.keep_reason
    )
    proposal = steady_proposal(alone, (1,) * terms.planning.horizon_slots, 1, 1.0)
    outcome = outcome_of(proposal, terms)
    saved = outcome.savings.cost
    if proposal.action is None or saved is None:
        return None
    if refusal(proposal, outcome, terms, past_runs.get(job_id, ())):
        return None
    if rejected(rejections, job_id, proposal.action, outcome.savings):
        return None
    hours = option.boards * job.demand.remaining.hours(terms.slot_hours)
    price = problem.catalogue.get(job.demand.job.gpu_model).price_per_hour
    return _SliceMove(
        job_id=job_id,
        savings=outcome.savings,
        part_hours=hours,
        worth=saved.central + price * hours,
    )


def _worth_it(
    problem: PlanningProblem,
    node: FleetNode,
    layout: MigLayout,
    offers: Mapping[str, list[_SliceMove]],
) -> _CutNode | None:
    """Return the cut with the jobs that save most in its slices, None where it is not worth it."""
    moves = _best_moves(layout, offers)
    hours = layout.cut * problem.terms.horizon_hours
    price = problem.catalogue.get(node.gpu_model).price_per_hour
    rest = hours - sum(move.part_hours for move in moves)
    if len(moves) <= layout.cut:
        return None
    saved = [move.savings for move in moves]
    cut = _CutNode(
        node=node,
        layout=layout,
        moves=moves,
        savings=Savings(
            horizon_hours=problem.terms.horizon_hours,
            gpu_hours=_sum([entry.gpu_hours for entry in saved], -rest),
            energy_kwh=_sum([entry.energy_kwh for entry in saved]),
            emissions_kgco2e=_sum([entry.emissions_kgco2e for entry in saved]),
            market_emissions_kgco2e=_sum([entry.market_emissions_kgco2e for entry in saved]),
            cost=_sum([entry.cost for entry in saved], -rest * price),
        ),
    )
    return cut if cut.savings.money > 0 else None


def _best_moves(
    layout: MigLayout, offers: Mapping[str, list[_SliceMove]]
) -> tuple[_SliceMove, ...]:
    """Return the pairs of jobs and slices of the largest total worth; a job takes one at most."""
    by_job = {
        (move.job_id, profile): move
        for profile, moves in offers.items()
        if profile in layout.slices
        for move in moves
    }
    jobs = sorted({job_id for job_id, _profile in by_job})
    slices = [name for name, count in sorted(layout.slices.items()) for _ in range(count)]
    worth = np.array(
        [[_worth(by_job.get((job_id, name))) for name in slices] for job_id in jobs]
    ).reshape(len(jobs), len(slices))
    # Deferred: half of what SciPy takes to load, for fleets whose boards are cut alone.
    from scipy.optimize import linear_sum_assignment  # type: ignore[import-untyped]

    rows, columns = linear_sum_assignment(worth, maximize=True)
    pairs = ((jobs[row], slices[column]) for row, column in zip(rows, columns, strict=True))
    return tuple(by_job[pair] for pair in pairs if pair in by_job)


def _worth(move: _SliceMove | None) -> float:
    return 0.0 if move is None else move.worth


def _sum(ranges: Sequence[Range | None], further: float = 0.0) -> Range | None:
    """Return the sum, errors taken as alike so that it is wide; None where a part is unknown."""
    values = [entry for entry in ranges if entry is not None]
    if len(values) < len(ranges) or not values:
        return None
    return Range(
        low=sum(entry.low for entry in values) + further,
        central=sum(entry.central for entry in values) + further,
        high=sum(entry.high for entry in values) + further,
        unit=values[0].unit,
    )


def _advice(cut: _CutNode) -> FleetAdvice:
    node, layout = cut.node, cut.layout
    names = [move.job_id for move in cut.moves]
    more = f" and {len(names) - _NAMED_JOBS} more" if len(names) > _NAMED_JOBS else ""
    return FleetAdvice(
        action=Action.MIG_LAYOUT,
        subject=node.known_as,
        platform=node.platform,
        gpu_model=node.gpu_model,
        gpus_now=node.gpus,
        gpus_then=layout.whole,
        change=f"MIG layout {layout.describe()}",
        why=(
            f"Nobody holds {node.known_as}. {len(names)} jobs hold a whole {node.gpu_model} each "
            f"and would do with a slice: cutting {layout.cut} of its boards frees {len(names)} "
            f"elsewhere, {len(names) - layout.cut} in all. By hand: {_by_hand(node, layout)} The "
            "jobs are proposed their slices then."
        ),
        savings=cut.savings,
        frees=tuple(names),
        factors=(
            ("would take a slice", ", ".join(names[:_NAMED_JOBS]) + more),
            ("cutting", _MINUTES),
        ),
        details=(
            ("mig_layout", layout.name),
            ("mig_layouts_of", "" if node.mig_manager is None else node.mig_manager.source),
        ),
    )


def _by_hand(node: FleetNode, layout: MigLayout) -> str:
    name = name_in_cluster(node.known_as)
    return (
        f"kubectl cordon {name}; kubectl label node {name} {MIG_LAYOUT_LABEL}={layout.name} "
        f"--overwrite; once {MIG_LAYOUT_LABEL}.state says success, kubectl uncordon {name}."
    )
