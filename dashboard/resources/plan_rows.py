"""Rows of a plan for tables: stretches of jobs, nodes, tenants, lower bounds."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from data.base.rows import row_of
from data.base.units import SECONDS_PER_HOUR
from data.records.plans import JobPlan, Plan, Stay


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanNodeRow:
    """Hours that a node is on and off in a plan, and the slots in which it is off."""

    node: str
    gpu_model: str
    gpus: int
    on_hours: float
    off_hours: float
    off: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanTenantRow:
    """The boards that a tenant may hold, holds, borrows and lends."""

    tenant: str
    quota: float
    guaranteed: float
    now: float
    planned_mean: float
    borrowed_now: float
    borrowed_mean: float
    lent_mean: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanBoundRow:
    """A lower bound, and what the plan attains of it."""

    name: str
    lower_bound: float
    attained: float
    unit: str
    gap: float


def job_rows(plan: Plan) -> list[dict[str, Any]]:
    """Return a row per job and stretch of equal configuration, with its nodes."""
    return [{"job_id": job.job_id} | row for job in plan.jobs for row in stretch_rows(plan, job)]


def stretch_rows(plan: Plan, job: JobPlan) -> list[dict[str, Any]]:
    """Return a row per stretch of equal configuration of one job, with its nodes."""
    return [
        stretch_row(plan.slot_starts[start], (start, end), job.describe(step), job.stays)
        for start, end, step in job.stretches()
    ]


def stretch_row(
    begins_at: datetime, slots: tuple[int, int], words: str, stays: Iterable[Stay]
) -> dict[str, Any]:
    """Return the row of slots [start, end) with one configuration, which `words` name."""
    start, end = slots
    nodes = [stay for stay in stays if stay.start < end and start < stay.end]
    return {
        "from": begins_at,
        "slots": end - start,
        "configuration": words,
        "nodes": ", ".join(f"{stay.node}:{stay.gpus}" for stay in nodes),
    }


def autoscaler_note(plan: Plan) -> str:
    """Return the words behind "today's allocation" where autoscalers change it by themselves."""
    return " and its autoscalers" * any(job.scaled_by for job in plan.jobs)


def node_rows(plan: Plan) -> list[PlanNodeRow]:
    """Return a row per node."""
    hours = plan.slot_seconds / SECONDS_PER_HOUR
    return [
        row_of(
            PlanNodeRow,
            node,
            on_hours=hours * sum(node.on),
            off_hours=hours * node.on.count(False),
            off=", ".join(
                f"{start}-{end - 1}" for start, end in _runs(node.on) if not node.on[start]
            ),
        )
        for node in plan.nodes
    ]


def tenant_rows(plan: Plan) -> list[PlanTenantRow]:
    """Return a row per tenant."""
    slots = max(1, len(plan.slot_starts))
    return [
        row_of(
            PlanTenantRow,
            tenant,
            planned_mean=sum(tenant.used) / slots,
            borrowed_now=max(0.0, tenant.now - tenant.quota),
            borrowed_mean=sum(tenant.borrowed) / slots,
            lent_mean=sum(tenant.lent) / slots,
        )
        for tenant in plan.tenants
    ]


def bound_rows(plan: Plan) -> list[PlanBoundRow]:
    """Return a row per lower bound."""
    return [
        row_of(
            PlanBoundRow,
            bound,
            lower_bound=bound.value,
            gap=0.0 if bound.attained <= 0 else max(0.0, 1 - bound.value / bound.attained),
        )
        for bound in plan.bounds
    ]


def _runs(values: tuple[Any, ...]) -> list[tuple[int, int]]:
    """Return the stretches [start, end) of equal values."""
    edges = [slot for slot in range(1, len(values)) if values[slot] != values[slot - 1]]
    bounds = [0, *edges, len(values)]
    return [(start, end) for start, end in pairwise(bounds) if end > start]
