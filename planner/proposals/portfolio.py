"""Joint savings of all recommendations, and how they add up to what the plan saves.

    plan saves  =  recommended  +  not recommended  +  timing  +  service  +  shared

Every job is in at most one recommendation about its GPUs, and every recommendation's central money
is the plan's own arithmetic of that job, so nothing is counted twice. What keeps a job from running
out of memory is no part of the plan and costs money: it stands beside the sum. `shared` is what
belongs to no single job: idle power, switching and doubt of nodes, limits, moves, rounding, and the
trifle of rent that the planner charges for a change that costs nothing.

    together    =  recommended  +  nodes  +  for memory  +  services  +  programs  +  sharing
                   -  advice

is what the recommendations save, row by row: a node that is off saves the idle power of its boards
too, which no plan counts and no job's row does. No plan advises on services, or changes a
job's program.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from data.records.plans import Plan
from data.records.recommendations import Recommendation
from planner.costs.terms import Terms
from planner.proposals.path_costs import path_cost
from planner.proposals.proposal import Proposal
from planner.proposals.relief import Relief


@dataclass(frozen=True, slots=True, kw_only=True)
class Portfolio:
    """Parts of the plan's saving over the horizon, in `unit`, and the GPU-hours that go with it.

    `recommended` is the sum of the central money savings of the recommendations; `not_recommended`
    the money of changes that guardrails hold back; `timing` what the plan saves by further changes
    of recommended jobs, which one approval does not make; `service` the change of the price of
    expected shortfall, which is no money. `for_memory` is beside the total: what the changes save
    that keep jobs from running out of memory, most often a loss. So are `nodes`, what powering
    nodes down or cutting them saves, `services`, what advice on services saves, `programs`, the
    rent of the time that slow work loses, and `sharing`, what jobs that share boards free.
    `taken` is what those of all that cost money cost: `together` is so much below the savings of
    the others. `advised` is what advice would save, if a person follows it: it is no part of
    `together`.
    """

    recommended: float
    not_recommended: float
    timing: float
    service: float
    shared: float
    total: float
    unit: str
    gpu_hours: float
    for_memory: float = 0.0
    nodes: float = 0.0
    services: float = 0.0
    programs: float = 0.0
    sharing: float = 0.0
    taken: float = 0.0
    advised: float = 0.0

    @property
    def together(self) -> float:
        """Savings of all changes, the sum of their central figures; advice changes nothing."""
        others = self.nodes + self.for_memory + self.services + self.programs
        return self.recommended + others + self.sharing - self.advised


def joint_savings(recommendations: Iterable[Recommendation]) -> tuple[float, float]:
    """Return the joint savings of recommendations, and the costs of those that cost money."""
    costs = [recommendation.savings.money for recommendation in recommendations]
    return sum(costs), -sum(cost for cost in costs if cost < 0)


def portfolio_of(
    proposals: Collection[Proposal],
    recommended: Collection[str],
    plan: Plan,
    terms: Terms,
    *,
    relieved: Sequence[Relief] = (),
    rows: Sequence[Recommendation] = (),
) -> Portfolio:
    """Return the parts; `proposals` has one entry per job of the plan, `recommended` names jobs.

    `rows` are all recommendations.
    """
    parts = dict.fromkeys(("recommended", "not_recommended", "timing", "service"), 0.0)
    gpu_hours = 0.0
    for proposal in proposals:
        if not any((*proposal.planned, *proposal.proposed)):
            continue
        stays = path_cost(proposal.job, (0,) * len(proposal.planned), terms)
        planned = path_cost(proposal.job, proposal.planned, terms)
        parts["service"] += stays.shortfall - planned.shortfall
        if proposal.job.demand.job.job_id not in recommended:
            parts["not_recommended"] += stays.money - planned.money
            continue
        proposed = path_cost(proposal.job, proposal.proposed, terms)
        parts["recommended"] += stays.money - proposed.money
        parts["timing"] += proposed.money - planned.money
        gpu_hours += terms.slot_hours * sum(
            (proposal.present.boards - proposal.job.options[number].boards) * there
            for number, there in zip(
                proposal.proposed, proposal.job.demand.remaining.central, strict=True
            )
        )
    gpu_hours += sum(
        row.savings.gpu_hours.central
        for row in rows
        if row.action.spec.shares and not row.is_advice and row.savings.gpu_hours
    )
    total = plan.cost_of_now - plan.cost
    return Portfolio(
        **parts,
        shared=total - sum(parts.values()),
        total=total,
        unit=plan.currency,
        gpu_hours=gpu_hours,
        nodes=joint_savings(row for row in rows if row.action.spec.of_node)[0],
        services=joint_savings(row for row in rows if row.action.spec.of_service)[0],
        sharing=joint_savings(row for row in rows if row.action.spec.shares)[0],
        programs=joint_savings(row for row in rows if row.action.spec.of_program)[0],
        taken=joint_savings(row for row in rows if not row.is_advice)[1],
        advised=joint_savings(row for row in rows if row.is_advice)[0],
        for_memory=sum(relief.outcome.savings.money for relief in relieved if relief.outcome),
    )
