"""Plans as JSON text: a configuration once per run of slots, not once per slot.

Ten thousand boards over 96 slots are then a few megabytes. Plans kept by earlier versions, a
record with every slot, stay readable.
"""

import json
from dataclasses import replace
from typing import Any

from data.facts.identifiers import canonical_json
from data.records.plans import Configuration, JobPlan, Plan
from data.store.engine.record_json import build, from_json


def plan_to_json(plan: Plan) -> str:
    """Return the canonical JSON of a plan."""
    jobs = [
        [replace(job, steps=()), [[end - start, step] for start, end, step in job.stretches()]]
        for job in plan.jobs
    ]
    return canonical_json({"plan": replace(plan, jobs=()), "jobs": jobs})


def plan_from_json(text: str, *, job_id: str = "") -> Plan:
    """Return the plan back, of one job alone where that is named: the others are not built.

    Errors: ValueError, TypeError when the text does not fit.
    """
    document = json.loads(text)
    if "plan" not in document:
        stored = from_json(Plan, text)
        return replace(stored, jobs=tuple(job for job in stored.jobs if job_id in ("", job.job_id)))
    plan: Plan = build(Plan, document["plan"])
    rows = [row for row in document["jobs"] if job_id in ("", row[0]["job_id"])]
    return replace(plan, jobs=tuple(_job(*row) for row in rows))


def _job(record: dict[str, Any], runs: list[list[Any]]) -> JobPlan:
    steps = tuple(
        step for length, value in runs for step in (build(Configuration, value),) * int(length)
    )
    job: JobPlan = build(JobPlan, record)
    return replace(job, steps=steps)
