"""Which proposals can all be followed together: there is room for each, and pairs stay pairs."""

from collections.abc import Sequence

import numpy as np

from planner.problem import PlanningProblem
from planner.recommendations.proposals import Proposal

NO_ROOM = "the boards that it would take are not free while the others stay as proposed"
NO_PAIR = "the job that would share its board is not proposed to do so"


def admitted(proposals: Sequence[Proposal], problem: PlanningProblem) -> tuple[list[int], set[int]]:
    """Give the numbers of the proposals that fit together, in the order given, and the unpaired.

    A job that is not proposed to change keeps what it has. Boards that one change frees may be
    taken by another: passes go on until nothing more fits.
    """
    unpaired = _unpaired(proposals)
    index = {name: number for number, name in enumerate(problem.gpu_models)}
    used = np.zeros((len(index), len(problem.slot_starts)))
    for job in problem.jobs:
        present = job.options[0]
        used[index[present.configuration.gpu_model]] += present.boards
    room = np.maximum(problem.capacity[:, None], used)
    waiting = [number for number in range(len(proposals)) if number not in unpaired]
    taken: list[int] = []
    before = -1
    while len(taken) > before:
        before = len(taken)
        for number in list(waiting):
            change = _change(proposals[number], index, used.shape)
            if (used + change <= room + 1e-9).all():
                used += change
                taken.append(number)
                waiting.remove(number)
    return sorted(taken), unpaired


def _change(
    one: Proposal, index: dict[str, int], shape: tuple[int, ...]
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """Give the boards that a proposal takes more or less, array [models, slots]."""
    change = np.zeros(shape)
    present = one.present
    change[index[present.configuration.gpu_model]] -= present.boards
    for slot, number in enumerate(one.proposed):
        option = one.job.options[number]
        if option.boards:
            change[index[option.configuration.gpu_model], slot] += option.boards
    return change


def _unpaired(proposals: Sequence[Proposal]) -> set[int]:
    """Give the numbers of those that would share a board with a job that would not."""
    with_whom = {
        one.job.demand.job.job_id: one.chosen.configuration.shared_with for one in proposals
    }
    return {
        number
        for number, one in enumerate(proposals)
        if (other := one.chosen.configuration.shared_with)
        and with_whom.get(other) != one.job.demand.job.job_id
    }
