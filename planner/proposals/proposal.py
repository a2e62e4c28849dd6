"""A part of a plan that can be proposed to a person: one change of a job, and its path.

A plan may change a job in many slots; a person approves one change. More devices for a peak come
first. Where the plan leaves the present configuration for most of the horizon, proposed is the
cheapest of its options to hold for good among those that give the work needed; else a pause and its
end.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from data.records.actions import Action, ActionSpec
from data.records.plans import JobPlan
from planner.costs.configurations import Option
from planner.costs.cost import needed_service, work_kwh
from planner.costs.terms import Terms
from planner.costs.time_shift import best_shift, is_delayed
from planner.problem.job_problem import JobProblem
from planner.proposals.path_costs import Path, path_cost

STEADY_SHARE = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A change of one job. `planned` and `proposed` are option numbers per slot.

    `share` of the job's hours for which the plan leaves the present configuration; `first` and
    `last` slot of a change for a while, None when it starts at once or holds for good. `action`
    None: keep the job.
    """

    job: JobProblem
    option: int
    planned: Path
    proposed: Path
    share: float
    action: Action | None
    first: int | None = None
    last: int | None = None

    @property
    def chosen(self) -> Option:
        """The option that is proposed."""
        return self.job.options[self.option]

    @property
    def spec(self) -> ActionSpec:
        """The action's row; that of fewer GPUs for a job that is kept."""
        return (self.action or Action.FEWER_GPUS).spec

    @property
    def held(self) -> npt.NDArray[np.bool_]:
        """In which slots the proposed option is held, array [slots]."""
        return np.asarray(np.array(self.proposed) == self.option, dtype=np.bool_)

    @property
    def present(self) -> Option:
        """The configuration of now."""
        return self.job.options[0]


def proposal_of(job: JobProblem, plan: JobPlan, terms: Terms) -> Proposal:
    """Return the plan's proposal for a job; what its autoscaler does by itself is nothing."""
    number_of = {option.configuration: number for number, option in enumerate(job.options)}
    numbers = [number_of[step] for step in plan.steps]
    planned = tuple(0 if job.options[number].autoscaled else number for number in numbers)
    remaining = job.demand.remaining.central
    there = [slot for slot, share in enumerate(remaining) if share > 0]
    paused = [slot for slot in there if job.options[planned[slot]].paused]
    other = [slot for slot in there if planned[slot] and not job.options[planned[slot]].paused]
    changed = [planned[slot] for slot in other]
    share = float(remaining[other].sum() / remaining.sum()) if there else 0.0
    more = [slot for slot in there if _serves_more(job, planned[slot])]
    if 0 < len(more) < STEADY_SHARE * len(there):
        most = max((planned[slot] for slot in more), key=lambda entry: job.options[entry].service)
        return _for_a_while(job, planned, most, more[0], more[-1], Action.SCALE_OUT)
    if share >= STEADY_SHARE:
        return steady_proposal(job, planned, _cheapest(job, planned, terms), share)
    if paused:
        first, last = _longest_run(paused)
        if is_delayed(job.demand):
            # As a whole, which may be later than it would have ended.
            kwh = work_kwh(job.demand, job.options[0], terms)
            first, last = 0, best_shift(kwh, job.demand.remaining, terms)[0] - 1
        return _for_a_while(job, planned, planned[first], first, last, Action.SHIFT_IN_TIME)
    if changed:
        return steady_proposal(job, planned, max(changed, key=changed.count), share)
    return Proposal(job=job, option=0, planned=planned, proposed=planned, share=share, action=None)


def _serves_more(job: JobProblem, option: int) -> bool:
    return job.options[option].service > job.options[0].service


def _cheapest(job: JobProblem, planned: Path, terms: Terms) -> int:
    """Return the option of the plan that costs least to hold for good, if any gives what is needed.

    Else the one that the plan holds longest. A pause ends: it is never held for good.
    """
    present = job.options[0]
    need = float(needed_service(job.demand, present, terms.planning).max())
    used = [number for number in dict.fromkeys(planned) if number]
    used = [number for number in used if not job.options[number].paused]
    enough = [
        number
        for number in used
        if not job.options[number].boards
        or job.options[number].service >= need - 1e-9
        or _serves_more(job, number)
    ]
    if not enough:
        return max(used, key=planned.count)
    slots = len(planned)
    return min(enough, key=lambda number: path_cost(job, (number,) * slots, terms).total)


def steady_proposal(job: JobProblem, planned: Path, option: int, share: float) -> Proposal:
    """Return the proposal to hold an option for good."""
    return Proposal(
        job=job,
        option=option,
        planned=planned,
        proposed=(option,) * len(planned),
        share=share,
        action=_action(job.options[0], job.options[option]),
    )


def _for_a_while(
    job: JobProblem, planned: Path, option: int, first: int, last: int, action: Action
) -> Proposal:
    proposed = tuple(option if first <= slot <= last else 0 for slot in range(len(planned)))
    return Proposal(
        job=job,
        option=option,
        planned=planned,
        proposed=proposed,
        share=1.0,
        action=action,
        first=first,
        last=last if last + 1 < len(planned) else None,
    )


def _longest_run(slots: list[int]) -> tuple[int, int]:
    """Return first and last of the longest stretch of consecutive slots, the earliest of them."""
    edges = np.flatnonzero(np.diff(slots) != 1) + 1
    runs: list[npt.NDArray[np.int64]] = np.split(np.array(slots), edges)
    longest = max(runs, key=len)
    return int(longest[0]), int(longest[-1])


def _action(present: Option, option: Option) -> Action:
    now, then = present.configuration, option.configuration
    if option.paused:
        return Action.SHIFT_IN_TIME
    if then.gpu_count == 0:
        return Action.RECLAIM
    if then.power_cap_watts is not None:
        return Action.POWER_CAP
    if then.mig_profile != now.mig_profile:
        return Action.MIG_SLICE
    if then.gpu_model != now.gpu_model:
        return Action.SMALLER_GPU
    return Action.FEWER_GPUS if then.gpu_count < now.gpu_count else Action.SCALE_OUT
