"""A plan as one object: its figures, and all of it."""

from typing import Any

from dashboard.resources.plan_rows import bound_rows, node_rows, tenant_rows
from data.base.units import SECONDS_PER_HOUR
from data.records.plans import JobPlan, Plan


def plan_figures(plan: Plan) -> dict[str, Any]:
    """Return plan in figures: cost, bounds, gap, time, changes, and what of the fleet it needs."""
    hours = plan.slot_seconds / SECONDS_PER_HOUR
    return {
        "plan_id": plan.plan_id,
        "cost": plan.cost,
        "cost_of_now": plan.cost_of_now,
        "lower_bound": plan.lower_bound,
        "gap": plan.gap_ratio,
        "currency": plan.currency,
        "slots": len(plan.slot_starts),
        "slot_seconds": plan.slot_seconds,
        "jobs": len(plan.jobs),
        "seconds": plan.seconds,
        "bounds": bound_rows(plan),
        "placement": {
            "nodes": len(plan.nodes),
            "node_hours_on": hours * sum(sum(node.on) for node in plan.nodes),
            "node_hours_off": hours * sum(node.on.count(False) for node in plan.nodes),
            "moves": plan.moves,
            "move_cost": plan.move_cost,
            "unplaced": {job.job_id: job.unplaced for job in plan.jobs if job.unplaced},
        },
        "changes_per_job_day": plan.changes_per_job_day,
        "revised_jobs": plan.revised_jobs,
        "frozen_slots": plan.frozen_slots,
        "violations": list(plan.violations),
    }


def plan_document(plan: Plan) -> dict[str, Any]:
    """Return the whole plan: what `plan --format json` prints and the API answers."""
    return plan_figures(plan) | {
        "created_at": plan.created_at,
        "slot_starts": list(plan.slot_starts),
        "job_plans": [_job_document(job) for job in plan.jobs],
        "nodes": node_rows(plan),
        "tenants": [
            row | {"used": tenant.used, "borrowed": tenant.borrowed, "lent": tenant.lent}
            for row, tenant in zip(tenant_rows(plan), plan.tenants, strict=True)
        ],
    }


def _job_document(job: JobPlan) -> dict[str, Any]:
    return {
        "job_id": job.job_id,
        "now": job.now,
        "steps": [
            {"start": start, "end": end, "configuration": step}
            for start, end, step in job.stretches()
        ],
        "stays": list(job.stays),
        "unplaced": job.unplaced,
    }
