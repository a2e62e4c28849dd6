"""Admission of proposals that fit together: there is room for each."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from data.records.feasible_changes import keeps_its_pods, whole_fact
from planner.costs.configurations import Option
from planner.fleet.fleet import runs_under
from planner.fleet.host_room import held_shares, host_share, room_of
from planner.fleet.quota_room import QuotaRoom, allowed_by
from planner.problem.job_problem import JobProblem
from planner.problem.planning_problem import PlanningProblem
from planner.proposals.proposal import Proposal

Slots = npt.NDArray[np.float64]
_TOLERANCE = 1e-9
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


class AdmissionRoom:
    """The use of resources while every job stays as it is, but for the proposals admitted so far.

    And takes what its autoscaler is foreseen to take. Rows are the boards of a model under a
    scheduler, then the devices of each resource quota: more than it allows is refused. `first`
    holds by job the proposals that have to be followed before its own.
    """

    def __init__(self, problem: PlanningProblem) -> None:
        self._under, self._hosts = problem.facts.scheduler, FreeHosts(problem)
        keys = [
            (name, scheduler)
            for name in problem.gpu_models
            for scheduler in sorted({*self._under.values(), ""})
        ]
        self._row = {key: number for number, key in enumerate(keys)}
        self._quotas = QuotaRoom(problem.rules.quotas)
        rows = self._quotas.rows
        # Of what is not known to be in use nothing is left.
        in_use = [quota.nominal if quota.used is None else quota.used for quota in rows]
        used = np.array([*[0.0] * len(keys), *in_use], dtype=np.float64)
        self._used = np.repeat(used[:, None], len(problem.slot_starts), axis=1)
        for job in problem.jobs:
            present = job.options[0]
            self._used[self._row_of(job, present)] += present.boards + job.more_boards
            for row in self._rows_of_quotas(job, ""):
                self._used[row] += job.more_boards
        has = [
            sum(
                node.usable
                for node in problem.facts.nodes
                if node.gpu_model == name and runs_under(scheduler, node.schedulers)
            )
            for name, scheduler in keys
        ]
        most = np.array([*has, *(quota.nominal for quota in rows)], dtype=np.float64)
        self._most = np.maximum(most[:, None], self._used)
        self.first: dict[str, tuple[Proposal, ...]] = {}
        self._claimed = self._used.copy()
        self._freeing: list[tuple[Proposal, Mapping[int, Slots]]] = []

    def _row_of(self, job: JobProblem, option: Option) -> int:
        """Return the row of an option: its model among the nodes of the job's scheduler."""
        return self._row[option.configuration.gpu_model, self._under[job.demand.job.job_id]]

    def _rows_of_quotas(self, job: JobProblem, mig_profile: str) -> list[int]:
        numbers = self._quotas.over(job.demand.job, mig_profile)
        return [len(self._row) + number for number in numbers]

    def take(self, proposal: Proposal) -> str:
        """Take the boards of a proposal where they are free; return why they are not, '' if so."""
        if self._hosts.lacks(proposal):
            return NO_HOST
        change = self._change(proposal)
        for row, amount in sorted(change.items()):
            lacks = float((self._used[row] + amount - self._most[row]).max())
            if lacks > _TOLERANCE:
                number = row - len(self._row)
                return (
                    self._no_room(row, lacks)
                    if number < 0
                    else allowed_by(self._quotas.rows[number])
                )
        for row, amount in change.items():
            self._used[row] += amount
            self._claimed[row] += np.maximum(amount, 0.0)
        self._hosts.take(proposal)
        self.first[proposal.job.demand.job.job_id] = tuple(self._needed(change))
        self._freeing.append((proposal, change))
        return ""

    def _no_room(self, row: int, lacks: float) -> str:
        """Return which boards a change waits for while the others stay as proposed."""
        count = math.ceil(lacks - _TOLERANCE)
        model = next(name for (name, _scheduler), number in self._row.items() if number == row)
        return (
            f"it can be made when {count} more {model} {'is' if count == 1 else 'are'} free: "
            "others hold them, or are proposed to"
        )

    def _needed(self, change: Mapping[int, Slots]) -> Iterator[Proposal]:
        """Yield the proposals to follow before a change, for room beside all use."""
        short = {
            row: (self._claimed[row] - self._most[row]) * (amount > 0)
            for row, amount in change.items()
        }
        for proposal, other in self._freeing:
            if not any((lack > _TOLERANCE).any() for lack in short.values()):
                return
            helps = False
            for row in short.keys() & other.keys():
                freed = np.minimum(other[row], 0.0) * (change[row] > 0)
                helps = helps or bool((freed[short[row] > _TOLERANCE] < 0).any())
                short[row] = short[row] + freed
            if helps:
                yield proposal

    def _change(self, proposal: Proposal) -> dict[int, Slots]:
        """Return the change of use by a proposal, by row, arrays [slots]."""
        change: dict[int, Slots] = defaultdict(lambda: np.zeros(self._used.shape[1]))
        for row, amount in self._taken_by(proposal, proposal.present):
            change[row] -= amount
        for slot, number in enumerate(proposal.proposed):
            option = proposal.job.options[number]
            if option.boards:
                for row, amount in self._taken_by(proposal, option):
                    change[row][slot] += amount[slot]
        return change

    def _taken_by(self, proposal: Proposal, option: Option) -> Iterator[tuple[int, Slots]]:
        """Yield (row, amount [slots]) of all that a job holds in an option."""
        job, config = proposal.job, option.configuration
        yield self._row_of(job, option), option.boards + job.more_boards
        for row in self._rows_of_quotas(job, config.mig_profile):
            more = 0.0 if config.mig_profile else job.more_boards
            yield row, np.zeros(self._used.shape[1]) + config.gpu_count + more


def admitted(
    proposals: Sequence[Proposal], room: AdmissionRoom
) -> tuple[list[int], dict[int, str]]:
    """Return the numbers of the proposals that fit together, in order, and why others do not.

    A job that is not proposed to change keeps what it has. Boards that one change frees may be
    taken by another: passes go on until nothing more fits.
    """
    reasons: dict[int, str] = {}
    waiting = [number for number in range(len(proposals)) if number not in reasons]
    numbers: list[int] = []
    before = -1
    while len(numbers) > before:
        before = len(numbers)
        for number in list(waiting):
            reasons[number] = room.take(proposals[number])
            if not reasons[number]:
                numbers.append(number)
                waiting.remove(number)
    return sorted(numbers), {number: why for number, why in reasons.items() if why}


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
    extra = run.extra
    each = min(whole_fact(extra, "gpus_per_pod") or run.gpu_count, run.gpu_count)
    pods = run.gpu_count // each if keeps_its_pods(run, count) else -(-count // each)
    gpus = count / pods
    needs = host_share(run, count, 1, of=pods)
    if option.configuration.gpu_model == run.gpu_model:
        pods = max(0, pods - run.gpu_count // each)
    return np.array([0.0 if option.configuration.mig_profile else gpus, *needs]), pods
