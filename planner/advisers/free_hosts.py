"""CPUs and memory that are free now beside free boards, for changes that take boards elsewhere."""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from data.facts.jobs import SchedulerFacts
from data.records.feasible_changes import keeps_its_pods, whole_fact
from planner.costs.configurations import Option
from planner.fleet.fleet import runs_under
from planner.fleet.host_room import held_shares, host_share, room_of
from planner.problem.job_problem import JobProblem
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.proposal import Proposal

NO_HOST = "boards are free for it, but its pods' requests of CPU or memory do not fit beside them"
Floats = npt.NDArray[np.float64]


class FreeHosts:
    """Boards, milli-CPUs and bytes left on nodes [N, 3] while every job keeps what it has.

    What changes take beside boards is taken from the next, not what they would free: that is free
    once they are made. Of boards themselves `AdmissionRoom` keeps count.
    """

    def __init__(self, problem: PlanningProblem) -> None:
        self._nodes, self._under = problem.facts.nodes, problem.facts.scheduler
        number = {node.name: index for index, node in enumerate(self._nodes)}
        rows = [
            [np.inf if room is None else room for room in (node.usable, *room_of(node))]
            for node in self._nodes
        ]
        self._rooms: Floats = np.array(rows, dtype=np.float64).reshape(-1, 3)
        cut = set[tuple[str, str]]()
        for job in problem.jobs:
            run, home = job.demand.job, problem.facts.homes.get(job.demand.job.job_id)
            for name, boards, *asks in held_shares(run, home):
                board = (name, home.mig_board if home and run.mig_profile else "")
                if name in number:
                    self._rooms[number[name]] -= (0 if board in cut else boards, *asks)
                cut |= {board} if board[1] else set()
        self._boards = self._rooms[:, 0].copy()

    def lacks(self, proposal: Proposal) -> bool:
        """Return whether boards are free for the pods of a change, and not what they ask beside."""
        return any(
            self._placed(proposal.job, option, 3) is None
            and self._placed(proposal.job, option, 1) is not None
            for option in _taking(proposal)
        )

    def take(self, proposal: Proposal) -> None:
        """Take the free resources that the pods of a change request."""
        rooms = [self._placed(proposal.job, option, 3) for option in _taking(proposal)]
        # One option at a time is in force.
        self._rooms = np.minimum.reduce(
            [self._rooms, *(placed for placed in rooms if placed is not None)]
        )

    def _placed(self, job: JobProblem, option: Option, columns: int) -> Floats | None:
        """Return the free resources once its pods are placed, None where a pod finds no room.

        Of one column, boards alone are checked, and those that earlier changes take count as free.
        """
        run, free = job.demand.job, self._rooms.copy()
        if columns == 1:
            free[:, 0] = self._boards
        model, under = option.configuration.gpu_model, self._under[run.job_id]
        open_to = np.array(
            [
                node.open and node.gpu_model == model and runs_under(under, node.schedulers)
                for node in self._nodes
            ]
        )
        need, pods = _pods(job, option)
        for _ in range(pods):
            fits = open_to & (free[:, :columns] >= need[:columns]).all(axis=1)
            if not fits.any():
                return None
            free[int(np.argmax(fits))] -= need
        return free


def _taking(proposal: Proposal) -> Iterator[Option]:
    """Yield the options of a change that take boards, of jobs that tell what they ask beside."""
    job, now = proposal.job.demand.job, proposal.present
    if not any(host_share(job, job.gpu_count, job.gpu_count)):
        return
    for number in sorted({*proposal.proposed}):
        option = proposal.job.options[number]
        elsewhere = option.configuration.gpu_model != now.configuration.gpu_model
        if option.boards and (elsewhere or option.boards > now.boards):
            yield option


def _pods(job: JobProblem, option: Option) -> tuple[Floats, int]:
    """Return the need of each pod that a change starts on a node, and the number of pods.

    Of slices no board: the plan decides from which board they are cut.
    """
    run, count = job.demand.job, option.configuration.gpu_count
    extra = dict((run.scheduler or SchedulerFacts()).extra)
    each = min(whole_fact(extra, "gpus_per_pod") or run.gpu_count, run.gpu_count)
    pods = run.gpu_count // each if keeps_its_pods(run, count) else -(-count // each)
    gpus = count / pods
    needs = host_share(run, count, 1, of=pods)
    if option.configuration.gpu_model == run.gpu_model:
        pods = max(0, pods - run.gpu_count // each)
    return np.array([0.0 if option.configuration.mig_profile else gpus, *needs]), pods
