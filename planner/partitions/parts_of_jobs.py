"""The part of the plan that each job belongs to, by `planning.partition_by`.

A part is a cluster (jobs that one source names), a pool (boards that are alike to a plan, and the
jobs that hold some of them now), or a tenant (`tenants.by`). What jobs of several parts may use
(boards of other pools, power, quotas) is shared; it gets prices.
"""

import numpy as np

from planner.problem.job_problem import JobProblem
from planner.problem.planning_problem import PlanningProblem
from planner.slots.slot_problem import Indices


def parts_of_jobs(problem: PlanningProblem) -> Indices:
    """Return the number of the part of every job [J].

    All the same where the plan is not divided.
    """
    names = [_name(problem, column, job) for column, job in enumerate(problem.jobs)]
    number = {name: index for index, name in enumerate(sorted(set(names)))}
    return np.array([number[name] for name in names], dtype=np.int64)


def _name(problem: PlanningProblem, column: int, job_problem: JobProblem) -> str:
    job = job_problem.demand.job
    match problem.planning.partition_by:
        case "cluster":
            return f"{job.platform} {job.source}"
        case "pool":
            return str(problem.pools.of_job[column])
        case "tenant":
            return job.tenant(problem.rules.tenants.by)
        case _:
            return ""
