"""Rows of a plan for tables: stretches of jobs, nodes, tenants, lower bounds."""

from itertools import pairwise
from typing import Any

from data.base.units import SECONDS_PER_HOUR
from data.records.plans import JobPlan, Plan, PlanBound


def job_rows(plan: Plan) -> list[dict[str, Any]]:
    """Return a row per job and stretch of equal configuration, with its nodes."""
    return [{"job_id": job.job_id} | row for job in plan.jobs for row in stretch_rows(plan, job)]


def stretch_rows(plan: Plan, job: JobPlan) -> list[dict[str, Any]]:
    """Return a row per stretch of equal configuration of one job, with its nodes."""
    return [
        {
            "from": plan.slot_starts[start],
            "slots": end - start,
            "configuration": job.describe(step),
            "nodes": ", ".join(
                f"{stay.node}:{stay.gpus}"
                for stay in job.stays
                if stay.start < end and start < stay.end
            ),
        }
        for start, end, step in job.stretches()
    ]


def of_autoscalers(plan: Plan) -> str:
    """Return the words behind "today's allocation" where autoscalers change it by themselves."""
    return " and its autoscalers" * any(job.scaled_by for job in plan.jobs)


def node_rows(plan: Plan) -> list[dict[str, Any]]:
    """Return a row per node: the hours it is on and off, and when it is off."""
    hours = plan.slot_seconds / SECONDS_PER_HOUR
    return [
        {
            "node": node.node,
            "gpu_model": node.gpu_model,
            "gpus": node.gpus,
            "on_hours": hours * sum(node.on),
            "off_hours": hours * node.on.count(False),
            "off": ", ".join(
                f"{start}-{end - 1}" for start, end in _runs(node.on) if not node.on[start]
            ),
        }
        for node in plan.nodes
    ]


def tenant_rows(plan: Plan) -> list[dict[str, Any]]:
    """Return a row per tenant: what it may hold, holds, borrows and lends, in boards."""
    slots = max(1, len(plan.slot_starts))
    return [
        {
            "tenant": tenant.tenant,
            "quota": tenant.quota,
            "guaranteed": tenant.guaranteed,
            "now": tenant.now,
            "planned_mean": sum(tenant.used) / slots,
            "borrowed_now": max(0.0, tenant.now - tenant.quota),
            "borrowed_mean": sum(tenant.borrowed) / slots,
            "lent_mean": sum(tenant.lent) / slots,
        }
        for tenant in plan.tenants
    ]


def _bound_row(bound: PlanBound) -> dict[str, Any]:
    gap = 0.0 if bound.attained <= 0 else max(0.0, 1 - bound.value / bound.attained)
    return {
        "name": bound.name,
        "lower_bound": bound.value,
        "attained": bound.attained,
        "unit": bound.unit,
        "gap": gap,
    }


def bound_rows(plan: Plan) -> list[dict[str, Any]]:
    """Return a row per lower bound, with what the plan attains."""
    return [_bound_row(bound) for bound in plan.bounds]


def _runs(values: tuple[Any, ...]) -> list[tuple[int, int]]:
    """Return the stretches [start, end) of equal values."""
    edges = [slot for slot in range(1, len(values)) if values[slot] != values[slot - 1]]
    bounds = [0, *edges, len(values)]
    return [(start, end) for start, end in pairwise(bounds) if end > start]
