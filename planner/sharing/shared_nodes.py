"""Nodes whose boards jobs share: a free one that is to offer shares, and the jobs to move there.

The device plugin puts a pod on any board of its node, so of the jobs of one node any that could
meet on a board must fit together.
"""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace

from data.base.counts import count_text
from data.base.units import gib
from data.facts.cluster_names import name_in_cluster
from data.facts.gpu_resources import PLUGIN_CONFIG_LABEL, SHARED_GPU
from data.facts.jobs import Platform
from data.records.actions import Action
from data.records.feasible_changes import configuration_refusal, has_named_nodes
from data.records.plans import Configuration, Plan
from data.records.recommendations import (
    BOARD_SHARES,
    SHARE_RESOURCE,
    Range,
    Recommendation,
)
from planner.fleet.fleet import runs_under
from planner.fleet.fleet_nodes import FleetNode
from planner.jobs.elasticity import Elasticity
from planner.problem.job_problem import JobProblem
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.fleet_advice import FleetAdvice
from planner.proposals.job_advice import job_advice, savings_of
from planner.proposals.proposal import Proposal
from planner.sharing.shared_boards import SharedBoard, SharingFit

PLUGIN_CONFIGS = "gpu-operator/device-plugin-configs"
"""The ConfigMap of the device plugin's configurations, as the steps of the advice make it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedNode:
    """A node, the jobs by number that could take its shares, and the shares of each board.

    The first `boards` of the jobs count as those that keep a board, so that the others free one.
    """

    node: FleetNode
    jobs: tuple[int, ...]
    shares: int

    @property
    def boards(self) -> int:
        """The fewest boards that hold the jobs."""
        return -(-len(self.jobs) // self.shares)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareMove:
    """A job that takes a share on a node, beside `others`.

    `part` is its part of a board, and `limit_mib` what that board may hold.
    """

    job_id: str
    node: str
    others: tuple[str, ...]
    part: float
    limit_mib: float


def shared_node(
    jobs: Sequence[JobProblem],
    shared: Sequence[SharedBoard],
    fit_of: Callable[[], SharingFit],
    problem: PlanningProblem,
    wanted: Collection[str],
) -> SharedNode | None:
    """Return the node that offers shares, or a free one that could, with jobs of shared boards.

    None on other platforms than Kubernetes, and where others want the boards: models in `wanted`.
    """
    boards = sorted(shared, key=lambda board: (-len(board.jobs), board.bound_mib))
    movable = [job for board in boards for job in board.jobs if _moves(jobs[job])]
    run = jobs[0].demand.job
    scheduler = problem.facts.scheduler[run.job_id]
    nodes = [
        node
        for node in problem.facts.nodes
        if node.platform is Platform.KUBERNETES
        and node.gpu_model == run.gpu_model
        and runs_under(scheduler, node.schedulers)
        and node.open
        and node.known_as
        and not (node.allocated or node.occupied or node.foreign or node.mig_profiles)
        and not any(node.away)
        and (node.shares > 1 or (node.read and node.gpu_model not in wanted))
    ]
    if not (nodes and movable):
        return None
    fit = fit_of()
    largest = max((len(board.jobs) for board in shared), default=0)
    for node in sorted(nodes, key=lambda node: (-node.shares, -node.gpus, node.name)):
        for shares in (node.shares,) if node.shares > 1 else range(largest, 1, -1):
            takers: list[int] = []
            for job in movable:
                if len(takers) < node.gpus * shares and fit.any_fit([*takers, job], shares):
                    takers.append(job)
            place = SharedNode(node=node, jobs=tuple(takers), shares=shares)
            if len(takers) > place.boards:
                return place
    return None


def _moves(job: JobProblem) -> bool:
    """Return whether an applier could give a job a share: a service, which is rolled out anew."""
    run, standing = job.demand.job, job.demand.standing
    if standing.elasticity is not Elasticity.SERVICE or run.scheduler is None:
        return False
    # Another resource in its pod template, as for a slice.
    share = Configuration(gpu_model=run.gpu_model, gpu_count=run.gpu_count, mig_profile=SHARED_GPU)
    return not (
        run.scheduling.managed_by or has_named_nodes(run) or configuration_refusal(run, share)
    )


def node_advice(place: SharedNode, ids: Sequence[str], problem: PlanningProblem) -> FleetAdvice:
    """Return the advice that the free node offers its boards in shares."""
    node, shares = place.node, place.shares
    names = [ids[job] for job in place.jobs]
    config, name = f"shared-{shares}", name_in_cluster(node.known_as)
    return FleetAdvice(
        action=Action.OFFER_SHARES,
        subject=node.known_as,
        platform=node.platform,
        gpu_model=node.gpu_model,
        gpus_now=node.gpus,
        gpus_then=node.gpus,
        change=f"{shares} shares of each board by time slicing",
        why=(
            f"Nobody holds {node.known_as}. {count_text(len(names), 'job')} of whole "
            f"{node.gpu_model} fit on {count_text(place.boards, 'board')} of it, whichever "
            f"{shares} of them meet. They are proposed their shares once the node offers "
            f"{SHARED_GPU}; by itself this frees nothing. {PLUGIN_CONFIGS} has to hold the "
            f"configuration {config}: step 1 of the advice to share boards. By hand: kubectl "
            f"cordon {name}; kubectl label node {name} {PLUGIN_CONFIG_LABEL}={config} --overwrite; "
            f"once it offers {SHARED_GPU}, kubectl uncordon {name}."
        ),
        savings=savings_of(problem),
        factors=(("would take a share", ", ".join(names)),),
        details=(
            ("layout", config),
            ("layouts_of", PLUGIN_CONFIGS),
            (BOARD_SHARES, str(shares)),
        ),
    )


def moves_to(place: SharedNode, ids: Sequence[str], usable_mib: float) -> Iterator[ShareMove]:
    """Yield the moves of the jobs to the node that offers shares."""
    names = [ids[job] for job in place.jobs]
    for job_id in names:
        yield ShareMove(
            job_id=job_id,
            node=place.node.known_as,
            others=tuple(name for name in names if name != job_id),
            part=place.boards / len(names),
            limit_mib=usable_mib,
        )


def move_recommendation(
    move: ShareMove, proposal: Proposal, plan: Plan, problem: PlanningProblem
) -> Recommendation:
    """Return the recommendation that a job takes a share; its part of the freed boards is saved."""
    demand = proposal.job.demand
    now = proposal.present.configuration
    hours = (1 - move.part) * demand.remaining.hours(problem.terms.slot_hours)
    freed = Range(low=0.0, central=hours, high=hours, unit="GPU-h")
    price = problem.catalogue.get(now.gpu_model).price_per_hour
    return job_advice(
        Action.TAKE_SHARE,
        proposal,
        plan,
        problem,
        change=f"a share of a board of {move.node}",
        why=(
            f"It would do with a share of a board beside {', '.join(move.others)}: {move.node} "
            f"offers {SHARED_GPU}. Together they stay below {gib(move.limit_mib)} GiB. The saving "
            "is its part of the boards that become free. It is restarted once. Time slicing holds "
            "no job to a part of the memory; the memory of its board is watched after the change."
        ),
        savings=savings_of(
            problem,
            gpu_hours=freed,
            cost=replace(freed.times(price), unit=problem.energy.currency),
        ),
        confidence="medium: its own past and that of the jobs beside it",
        factors=(("beside", ", ".join(move.others)),),
        signal="utilization and memory",
        proposed=replace(now, boards=move.part),
        details=(
            (SHARE_RESOURCE, SHARED_GPU),
            ("gpus_per_pod", "1"),
            ("memory_limit_mib", f"{move.limit_mib:.0f}"),
        ),
    )
