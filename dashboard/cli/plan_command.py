"""`trimtab plan`: the plan of the latest cycle, with its bounds, nodes and tenants."""

import argparse
from collections.abc import Callable
from typing import Any

from dashboard.cli.output import print_json, print_rows
from dashboard.cli.world import open_for_reading, settings_of
from dashboard.plan_rows import bound_rows, job_rows, node_rows, tenant_rows
from data.records.plans import JobPlan, Plan
from data.units import SECONDS_PER_HOUR

_NO_CYCLE = "No cycle has run yet: run `trimtab cycle`."


def plan(options: argparse.Namespace) -> int:
    """Show the plan of the latest cycle: by job, node, tenant or bound; as JSON all of it."""
    if options.what_if:
        from dashboard.cli.what_if_command import compare

        return compare(options)
    with open_for_reading(settings_of(options)) as store:
        latest = store.reader.latest_plan()
    if options.format == "json":
        print_json(None if latest is None else plan_document(latest))
        return 0
    rows_of, columns = _ROWS[options.by]
    rows = [] if latest is None else rows_of(latest)
    print_rows(rows, options.format, columns=columns, empty=_NO_CYCLE)
    return 0


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
    """Return the one object that `plan --format json` prints."""
    return plan_figures(plan) | {
        "created_at": plan.created_at,
        "slot_starts": list(plan.slot_starts),
        "job_plans": [_job_document(plan, job) for job in plan.jobs],
        "nodes": node_rows(plan),
        "tenants": [
            row | {"used": one.used, "borrowed": one.borrowed, "lent": one.lent}
            for row, one in zip(tenant_rows(plan), plan.tenants, strict=True)
        ],
    }


def _job_document(plan: Plan, job: JobPlan) -> dict[str, Any]:
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


_Rows = Callable[[Plan], list[dict[str, Any]]]
_ROWS: dict[str, tuple[_Rows, tuple[str, ...]]] = {
    "job": (job_rows, ("job_id", "from", "slots", "configuration", "nodes")),
    "node": (node_rows, ("node", "gpu_model", "gpus", "on_hours", "off_hours", "off")),
    "tenant": (
        tenant_rows,
        (
            "tenant",
            "quota",
            "guaranteed",
            "now",
            "planned_mean",
            "borrowed_now",
            "borrowed_mean",
            "lent_mean",
        ),
    ),
    "bound": (bound_rows, ("name", "lower_bound", "attained", "unit", "gap")),
}
