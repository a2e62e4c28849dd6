"""Which option a plan stands for, and whether it is worth and safe to recommend."""

import numpy as np

from data.records.plans import JobPlan
from planner.cost import needed_service
from planner.problem import JobProblem, PlanningProblem

_STEADY_SHARE = 0.5


def steady_option(job: JobProblem, plan: JobPlan) -> tuple[int, float]:
    """Give the option that the plan holds longest, as its number, and its share of the horizon."""
    configurations = [option.configuration for option in job.options]
    counts = [plan.steps.count(one) for one in configurations]
    longest = int(np.argmax(counts))
    return longest, counts[longest] / len(plan.steps)


def refusal(
    problem: PlanningProblem, job: JobProblem, option: int, *, share: float, saving_ratio: float
) -> str:
    """Give why a change to `option` is not recommended, '' when it is."""
    planning = problem.planning
    if job.keep_reason:
        return job.keep_reason
    if option == 0:
        return "its present configuration costs least for what it is forecast to need"
    if share < _STEADY_SHARE:
        return f"the plan would hold the change for {100 * share:.0f} % of the horizon only"
    chosen = job.options[option]
    if chosen.configuration.gpu_count:
        need = float(needed_service(job.demand, job.options[0], planning)[2].max())
        if chosen.service < need - 1e-9:
            return (
                f"{chosen.configuration.describe()} gives {chosen.service:.2g} of the "
                f"{need:.2g} devices' work needed at the forecast's q90 with headroom"
            )
    if saving_ratio < planning.minimum_saving_ratio:
        return (
            f"it would save {100 * saving_ratio:.1f} %, less than the "
            f"{100 * planning.minimum_saving_ratio:g} % that are worth a change"
        )
    return ""
