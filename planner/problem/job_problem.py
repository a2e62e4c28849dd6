"""One job of a planning problem: its options, its present configuration, and its pin."""

from dataclasses import dataclass, replace
from fnmatch import fnmatchcase

import numpy as np
import numpy.typing as npt

from data.settings.all_settings import PlanningSettings
from planner.costs.configurations import Option
from planner.jobs.job_demand import JobDemand
from planner.jobs.job_end import waits_for_start

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobProblem:
    """One job: its options (the present one first) and, when it can only be kept, why.

    `pinned`: the number of the option that it has to take in every slot. `limited_by`: the quota
    that keeps it from larger ones, '' where none does.
    """

    demand: JobDemand
    options: tuple[Option, ...]
    keep_reason: str
    pinned: int | None = None
    limited_by: str = ""

    @property
    def held_boards(self) -> float:
        """The boards that it holds now: none while it waits for its start."""
        return 0.0 if waits_for_start(self.demand.job) else self.options[0].boards

    @property
    def more_boards(self) -> Values:
        """The boards beyond those of now that its autoscaler is foreseen to take, by slot [T]."""
        forecast, present = self.demand.foreseen_devices, self.options[0].boards
        if forecast is None:
            return np.zeros_like(self.demand.remaining.central)
        most = max(option.boards for option in self.options)
        return np.maximum(np.minimum(forecast, most) - present, 0.0)


def with_pin(job: JobProblem, planning: PlanningSettings) -> JobProblem:
    """Pin a job by the settings; where pins contradict, it stays as it is, with the reason."""
    name = job.demand.job.job_id
    pins = [pin for pin in planning.pins if fnmatchcase(name, pin.job)]
    pinned = {(pin.gpu_model, pin.gpu_count, pin.mig_profile) for pin in pins}
    plain = {
        (choice.gpu_model, choice.gpu_count, choice.mig_profile): number
        for number, option in reversed([*enumerate(job.options)])
        if (choice := option.configuration).power_cap_watts is None
    }
    if not pinned or job.keep_reason:
        return job
    if len(pinned) == 1 and pinned <= plain.keys():
        return replace(job, pinned=plain[next(iter(pinned))])
    targets = " and to ".join(
        f"{count} × {model} {mig}".strip() for model, count, mig in sorted(pinned)
    )
    offered = ", ".join(option.configuration.describe() for option in job.options)
    why = "at once" if len(pinned) > 1 else f"which is none of what it can have: {offered}"
    return replace(
        job,
        options=job.options[:1],
        keep_reason=f"planning.pins pins it to {targets}, {why}; correct the pin or remove it",
    )
