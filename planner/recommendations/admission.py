"""Which proposals can all be followed together: there is room for each, and pairs stay pairs."""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from planner.problem.configurations import Option
from planner.problem.fleet import runs_under
from planner.problem.planning_problem import JobProblem, PlanningProblem
from planner.recommendations.proposals import Proposal

NO_ROOM = "the boards that it would take are not free while the others stay as proposed"
NO_PAIR = "the job that would share its board is not proposed to do so"


class AdmissionRoom:
    """The boards in use while every job keeps what it has, but for the proposals taken so far.

    And takes what its autoscaler is foreseen to take.
    """

    def __init__(self, problem: PlanningProblem) -> None:
        self._under = problem.facts.scheduler
        keys = [
            (name, scheduler)
            for name in problem.gpu_models
            for scheduler in sorted({*self._under.values(), ""})
        ]
        self._row = {key: number for number, key in enumerate(keys)}
        self._used = np.zeros((len(self._row), len(problem.slot_starts)))
        for job in problem.jobs:
            present = job.options[0]
            self._used[self._row_of(job, present)] += present.boards + job.more_boards
        has = [
            sum(
                node.usable
                for node in problem.facts.nodes
                if node.gpu_model == name and runs_under(scheduler, node.schedulers)
            )
            for name, scheduler in keys
        ]
        self._most = np.maximum(np.array(has, dtype=np.float64)[:, None], self._used)

    def _row_of(self, job: JobProblem, option: Option) -> int:
        """Return the row of an option: its model among the nodes of the job's scheduler."""
        return self._row[option.configuration.gpu_model, self._under[job.demand.job.job_id]]

    def take(self, proposal: Proposal) -> bool:
        """Take the boards of a proposal where they are free; tell whether they were."""
        after = self._used + self._change(proposal)
        if not (after <= self._most + 1e-9).all():
            return False
        self._used = after
        return True

    def _change(self, proposal: Proposal) -> npt.NDArray[np.float64]:
        """Return the boards that a proposal takes more or less, array [rows, slots]."""
        change = np.zeros(self._used.shape)
        present, more = proposal.present, proposal.job.more_boards
        change[self._row_of(proposal.job, present)] -= present.boards + more
        for slot, number in enumerate(proposal.proposed):
            option = proposal.job.options[number]
            if option.boards:
                change[self._row_of(proposal.job, option), slot] += option.boards + more[slot]
        return change


def admitted(proposals: Sequence[Proposal], room: AdmissionRoom) -> tuple[list[int], set[int]]:
    """Return the numbers of the proposals that fit together, in the order given, and the unpaired.

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
    """Return the numbers of those that would share a board with a job that would not."""
    with_whom = {
        proposal.job.demand.job.job_id: proposal.chosen.configuration.shared_with
        for proposal in proposals
    }
    return {
        number
        for number, proposal in enumerate(proposals)
        if (other := proposal.chosen.configuration.shared_with)
        and with_whom.get(other) != proposal.job.demand.job.job_id
    }
