"""Which proposals can all be followed together: there is room for each, and pairs stay pairs."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from planner.problem import PlanningProblem
from planner.recommendations.proposals import Proposal

NO_ROOM = "the boards that it would take are not free while the others stay as proposed"
NO_PAIR = "the job that would share its board is not proposed to do so"


class Room:
    """The boards in use while every job keeps what it has, but for the proposals taken so far."""

    def __init__(self, problem: PlanningProblem) -> None:
        self._row = {name: number for number, name in enumerate(problem.gpu_models)}
        self._used = np.zeros((len(self._row), len(problem.slot_starts)))
        for job in problem.jobs:
            present = job.options[0]
            self._used[self._row[present.configuration.gpu_model]] += present.boards
        self._most = np.maximum(problem.capacity[:, None], self._used)

    def take(self, one: Proposal) -> bool:
        """Take the boards of a proposal where they are free; tell whether they were."""
        after = self._used + self._change(one)
        if not (after <= self._most + 1e-9).all():
            return False
        self._used = after
        return True

    def _change(self, one: Proposal) -> npt.NDArray[np.float64]:
        """Give the boards that a proposal takes more or less, array [models, slots]."""
        change = np.zeros(self._used.shape)
        present = one.present
        change[self._row[present.configuration.gpu_model]] -= present.boards
        for slot, number in enumerate(one.proposed):
            option = one.job.options[number]
            if option.boards:
                change[self._row[option.configuration.gpu_model], slot] += option.boards
        return change


def admitted(proposals: Sequence[Proposal], room: Room) -> tuple[list[int], set[int]]:
    """Give the numbers of the proposals that fit together, in the order given, and the unpaired.

    A job that is not proposed to change keeps what it has. Boards that one change frees may be
    taken by another: passes go on until nothing more fits.
    """
    unpaired = _unpaired(proposals)
    waiting = [number for number in range(len(proposals)) if number not in unpaired]
    taken: list[int] = []
    before = -1
    while len(taken) > before:
        before = len(taken)
        for number in list(waiting):
            if room.take(proposals[number]):
                taken.append(number)
                waiting.remove(number)
    return sorted(taken), unpaired


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
