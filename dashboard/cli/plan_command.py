"""`trimtab plan`: the plan of the latest cycle, with its bounds, nodes and tenants."""

import argparse
from collections.abc import Callable
from itertools import pairwise
from typing import Any

from dashboard.cli.output import print_json, print_rows
from dashboard.cli.world import open_for_reading, settings_of
from data.records.plans import JobPlan, Plan
from data.units import SECONDS_PER_HOUR

_NO_CYCLE = "No cycle has run yet: run `trimtab cycle`."


def plan(options: argparse.Namespace) -> int:
    """Show the plan of the latest cycle: by job, node, tenant or bound; as JSON all of it."""
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
    """Give a plan in figures: cost, bounds, gap, time, changes, and what of the fleet it needs."""
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
        "bounds": [_bound_row(plan, one.name) for one in plan.bounds],
        "placement": {
            "nodes": len(plan.nodes),
            "node_hours_on": hours * sum(sum(one.on) for one in plan.nodes),
            "node_hours_off": hours * sum(one.on.count(False) for one in plan.nodes),
            "moves": plan.moves,
            "move_cost": plan.move_cost,
            "unplaced": {one.job_id: one.unplaced for one in plan.jobs if one.unplaced},
        },
        "changes_per_job_day": plan.changes_per_job_day,
        "revised_jobs": plan.revised_jobs,
        "frozen_slots": plan.frozen_slots,
        "violations": list(plan.violations),
    }


def plan_document(plan: Plan) -> dict[str, Any]:
    """Give the one object that `plan --format json` prints."""
    return plan_figures(plan) | {
        "created_at": plan.created_at,
        "slot_starts": list(plan.slot_starts),
        "job_plans": [_job_document(plan, one) for one in plan.jobs],
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


def _runs(values: tuple[Any, ...]) -> list[tuple[int, int]]:
    """Give the stretches [start, end) of equal values."""
    edges = [slot for slot in range(1, len(values)) if values[slot] != values[slot - 1]]
    bounds = [0, *edges, len(values)]
    return [(start, end) for start, end in pairwise(bounds) if end > start]


def job_rows(plan: Plan) -> list[dict[str, Any]]:
    """Give a row per job and stretch of equal configuration, with its nodes."""
    return [
        {
            "job_id": job.job_id,
            "from": plan.slot_starts[start],
            "slots": end - start,
            "configuration": step.describe(),
            "nodes": ", ".join(
                f"{stay.node}:{stay.gpus}"
                for stay in job.stays
                if stay.start < end and start < stay.end
            ),
        }
        for job in plan.jobs
        for start, end, step in job.stretches()
    ]


def node_rows(plan: Plan) -> list[dict[str, Any]]:
    """Give a row per node: the hours it is on and off, and when it is off."""
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
    """Give a row per tenant: what it may hold, holds, borrows and lends, in boards."""
    slots = max(1, len(plan.slot_starts))
    return [
        {
            "tenant": one.tenant,
            "quota": one.quota,
            "guaranteed": one.guaranteed,
            "now": one.now,
            "planned_mean": sum(one.used) / slots,
            "borrowed_now": max(0.0, one.now - one.quota),
            "borrowed_mean": sum(one.borrowed) / slots,
            "lent_mean": sum(one.lent) / slots,
        }
        for one in plan.tenants
    ]


def _bound_row(plan: Plan, name: str) -> dict[str, Any]:
    one = next(bound for bound in plan.bounds if bound.name == name)
    gap = 0.0 if one.attained <= 0 else max(0.0, 1 - one.value / one.attained)
    return {
        "name": one.name,
        "lower_bound": one.value,
        "attained": one.attained,
        "unit": one.unit,
        "gap": gap,
    }


def bound_rows(plan: Plan) -> list[dict[str, Any]]:
    """Give a row per lower bound, with what the plan attains."""
    return [_bound_row(plan, one.name) for one in plan.bounds]


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
