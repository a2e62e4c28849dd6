"""Slots of a plan in which autoscalers act, apart from the changes asked of people."""

import numpy as np
import numpy.typing as npt

from planner.problem.planning_problem import PlanningProblem
from planner.problem.slot_mapping import SlotMapping

Path = npt.NDArray[np.int16]


def autoscaled_slots(
    problem: PlanningProblem, mapping: SlotMapping, paths: Path
) -> npt.NDArray[np.bool_]:
    """Return in which slots of the solver's paths [J, H] a job has a size of its autoscaler."""
    autoscaled = np.zeros(paths.shape, dtype=np.bool_)
    for column, job in enumerate(problem.jobs):
        sizes = [number for number, option in enumerate(job.options) if option.autoscaled]
        if sizes:
            autoscaled[column] = np.isin(mapping.option_of[column][paths[column]], sizes)
    return autoscaled
