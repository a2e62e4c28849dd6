"""A plan as one object: its figures, all of it, its idle GPUs, and a copy under other settings."""

from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated

from pydantic import Field

from dashboard.accounting.savings.idle_bridge import IdleRow, idle_rows
from dashboard.common.what_if_document import WhatIfDocument
from dashboard.resources.plan_rows import (
    PlanBoundRow,
    PlanNodeRow,
    PlanTenantRow,
    bound_rows,
    node_rows,
    tenant_rows,
)
from dashboard.resources.resource import NoQuery, Resource, View
from data.base.errors import ImpossibleProblemError, SettingsError
from data.base.rows import row_of
from data.base.units import SECONDS_PER_HOUR
from data.records.plans import Configuration, Plan, Stay


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementFigures:
    """Nodes of a plan; `unplaced` says by job why it has no place."""

    nodes: int
    node_hours_on: float
    node_hours_off: float
    moves: int
    move_cost: float
    unplaced: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanFigures:
    """A plan in figures: cost, bounds, gap, time, changes, and what of the fleet it needs."""

    plan_id: str
    cost: float
    cost_of_now: float
    lower_bound: float
    gap: float
    currency: str
    slots: int
    slot_seconds: int
    jobs: int
    seconds: float
    bounds: list[PlanBoundRow]
    placement: PlacementFigures
    changes_per_job_day: float
    revised_jobs: int | None
    frozen_slots: int
    violations: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedStretch:
    """Slots [start, end) in which a job has one configuration, and this in words."""

    start: int
    end: int
    configuration: Configuration
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedJob:
    """A job of a plan with its configurations and its places."""

    job_id: str
    now: Configuration
    steps: list[PlannedStretch]
    stays: list[Stay]
    unplaced: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedTenant(PlanTenantRow):
    """A tenant of a plan with its boards by slot."""

    used: tuple[float, ...]
    borrowed: tuple[float, ...]
    lent: tuple[float, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanDocument(PlanFigures):
    """The whole plan: what `plan --format json` prints and the API answers."""

    created_at: datetime
    slot_starts: list[datetime]
    job_plans: list[PlannedJob]
    nodes: list[PlanNodeRow]
    tenants: list[PlannedTenant]


def plan_figures(plan: Plan) -> PlanFigures:
    """Return a plan in figures."""
    hours = plan.slot_seconds / SECONDS_PER_HOUR
    return row_of(
        PlanFigures,
        plan,
        gap=plan.gap_ratio,
        slots=len(plan.slot_starts),
        jobs=len(plan.jobs),
        bounds=bound_rows(plan),
        placement=PlacementFigures(
            nodes=len(plan.nodes),
            node_hours_on=hours * sum(sum(node.on) for node in plan.nodes),
            node_hours_off=hours * sum(node.on.count(False) for node in plan.nodes),
            moves=plan.moves,
            move_cost=plan.move_cost,
            unplaced={job.job_id: job.unplaced for job in plan.jobs if job.unplaced},
        ),
        violations=list(plan.violations),
    )


def plan_document(plan: Plan) -> PlanDocument:
    """Return the whole plan."""
    return row_of(
        PlanDocument,
        plan_figures(plan),
        created_at=plan.created_at,
        slot_starts=list(plan.slot_starts),
        job_plans=[
            row_of(
                PlannedJob,
                job,
                steps=[
                    PlannedStretch(
                        start=start, end=end, configuration=step, words=job.describe(step)
                    )
                    for start, end, step in job.stretches()
                ],
                stays=list(job.stays),
            )
            for job in plan.jobs
        ],
        nodes=node_rows(plan),
        tenants=[
            row_of(PlannedTenant, row, used=tenant.used, borrowed=tenant.borrowed, lent=tenant.lent)
            for row, tenant in zip(tenant_rows(plan), plan.tenants, strict=True)
        ],
    )


PLAN = Resource(
    name="plan",
    about="The plan of the latest cycle",
    kind=PlanDocument,
    query=NoQuery,
    read=lambda view, _query: plan_document(view.latest_plan()),
    anyone=False,
)
IDLE = Resource(
    name="idle",
    about="What jobs hold and do not use, what becomes of it, and why it stays",
    kind=list[IdleRow],
    query=NoQuery,
    read=lambda view, _query: idle_rows(view.latest_plan()),
)
Knob = Annotated[float | None, Field(ge=0, le=1e9, allow_inf_nan=False)]


class WhatIfQuery(NoQuery):
    """Changes to a copy of the plan's problem, as `trimtab plan --what-if` takes them."""

    headroom: Knob = None
    shortfall_price: Annotated[Knob, Field(alias="shortfall-price")] = None
    churn: Knob = None
    carbon_price: Annotated[Knob, Field(alias="carbon-price")] = None
    electricity_price: Annotated[Knob, Field(alias="electricity-price")] = None

    @property
    def knobs(self) -> dict[str, float]:
        """Settings turned, by the names of `dashboard.cycle.what_if`."""
        return self.model_dump(by_alias=True, exclude_none=True)


def _what_if(view: View, query: WhatIfQuery) -> WhatIfDocument:
    # With NumPy and the solver, which other resources do without.
    from dashboard.cycle.what_if import in_force, read_basis, what_if, what_if_document

    view.latest_plan()
    # Kept once, not for every minute: it holds the history of the fleet.
    read = partial(read_basis, view.reader, view.settings)
    basis = view.remember(("what-if", view.settings), read)
    try:
        result = what_if(basis, view.settings, query.knobs)
    except SettingsError as error:
        raise ImpossibleProblemError(error.message, error.hint) from error
    return what_if_document(result, query.knobs, in_force(basis))


WHAT_IF = Resource(
    name="what-if",
    about="The plan in force and a copy under other settings, of which nothing is kept",
    kind=WhatIfDocument,
    query=WhatIfQuery,
    read=_what_if,
    anyone=False,
    alone=True,
)
