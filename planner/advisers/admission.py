"""Admission of proposals that fit together: there is room for each."""

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt

from data.facts.jobs import Job
from data.records.feasible_changes import has_same_pods, nodes_apart, whole_fact
from planner.costs.configurations import Option
from planner.fleet.fleet import in_partition, runs_under
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

    Schedulers start pods, and the parts of a Slurm job, node by node: boards that are free on two
    nodes are no room for one part. A change finds room in what is free now or, where that is too
    little, in what others surely give up, which are to be followed first.
    """

    def __init__(self, problem: PlanningProblem) -> None:
        self._nodes, self._facts = problem.facts.nodes, problem.facts
        rows = [
            [np.inf if room is None else room for room in (node.usable, *room_of(node))]
            for node in self._nodes
        ]
        self._rooms: Floats = np.array(rows, dtype=np.float64).reshape(-1, 3)
        self._given: dict[str, Floats] = {}
        cut = set[tuple[str, str]]()
        for job in problem.jobs:
            run, home = job.demand.job, problem.facts.homes.get(job.demand.job.job_id)
            here_now = self._held(run)
            board = (home.boards[0][0], home.mig_board) if home and run.mig_profile else ("", "")
            here_now[:, 0] *= board not in cut
            self._rooms -= here_now
            cut |= {board} if board[1] else set()

    def before(self, proposal: Proposal) -> tuple[str, tuple[str, ...]]:
        """Return the reason for a lack of room, '' for room, and the jobs to be changed first.

        The first that suffice of those admitted so far, without any that it can do without.
        """
        before_it, others = list[str](), list(self._given)
        while why := self._why_not(proposal, before_it):
            if not others:
                return why, ()
            before_it.append(others.pop(0))
        for job in tuple(before_it):
            rest = [name for name in before_it if name != job]
            before_it = before_it if self._why_not(proposal, rest) else rest
        return "", tuple(before_it)

    def take(self, proposal: Proposal, before_it: Sequence[str] = ()) -> None:
        """Take what a change requests on nodes; what it gives up is for those that name it."""
        free = self._free(before_it)
        use = [self._placed(proposal, option, free, 3) for option in _taking(proposal)]
        # One option at a time is in force.
        self._rooms = self._rooms - np.maximum.reduce(
            [np.zeros_like(free), *(amounts for amounts in use if amounts is not None)]
        )
        gives = self._given_up(proposal)
        if gives.any():
            self._given[proposal.job.demand.job.job_id] = gives

    def _why_not(self, proposal: Proposal, before_it: Sequence[str]) -> str:
        """Return the reason for a lack of room once other changes are made, '' for room."""
        free = self._free(before_it)
        for option in _taking(proposal):
            if self._placed(proposal, option, free, 3) is not None:
                continue
            if self._placed(proposal, option, free, 1) is not None:
                return NO_HOST
            (gpus, *_host), parts, _apart = _parts(proposal.job, option)
            return (
                f"it can be made when {parts} × {gpus:g} {option.configuration.gpu_model} are "
                "free, each on one node: boards are free, but not together"
            )
        return ""

    def _free(self, before_it: Sequence[str]) -> Floats:
        return np.asarray(sum((self._given[job] for job in before_it), self._rooms))

    def _held(self, run: Job) -> Floats:
        """Return the boards, CPU and memory that a job holds on nodes [N, 3]."""
        here_now = {name: row for name, *row in held_shares(run, self._facts.homes.get(run.job_id))}
        rows = [here_now.get(node.name, (0, 0, 0)) for node in self._nodes]
        return np.array(rows, dtype=np.float64).reshape(-1, 3)

    def _given_up(self, proposal: Proposal) -> Floats:
        """Return the amounts that a job surely gives up on nodes [N, 3] from its change on.

        Of boards that it keeps in part, on several nodes, nobody knows which.
        """
        run = proposal.job.demand.job
        home, here_now = self._facts.homes.get(run.job_id), self._held(run)
        if run.mig_profile or home is None or home.counted_by_others:
            return np.zeros_like(here_now)
        options = (proposal.job.options[n] for n in proposal.proposed[proposal.first or 0 :])
        stays = [at for at in options if at.boards and at.configuration.gpu_model == run.gpu_model]
        if not stays:
            return here_now
        most = max(stays, key=lambda at: at.boards)
        apart = nodes_apart(run, most.configuration)
        here = np.flatnonzero(here_now[:, 0])
        gives = np.zeros_like(here_now)
        gives[here, 0] = np.maximum(0.0, here_now[here, 0] - most.boards / max(1, apart))
        if 0 < apart < len(here):  # whole nodes, the last ones
            gives[here[apart:]] = here_now[here[apart:]]
        return gives

    def _placed(
        self, proposal: Proposal, option: Option, free: Floats, columns: int
    ) -> Floats | None:
        """Return the amounts that parts of a job take on nodes [N, 3], None for a lack of room.

        Of one column, boards alone are checked. A Slurm job starts again, each part on a node of
        its own, and may take the boards that it has; a pod takes its own beside those that stay.
        """
        run, model = proposal.job.demand.job, option.configuration.gpu_model
        need, parts, apart = _parts(proposal.job, option)
        present = self._held(run) if apart else np.zeros_like(free)
        under, use = self._facts.scheduler[run.job_id], np.zeros_like(free)
        open_to = np.array(
            [
                node.open
                and node.gpu_model == model
                and runs_under(under, node.schedulers)
                and in_partition(run, node.partitions)
                for node in self._nodes
            ]
        )
        for _ in range(parts):
            room = free + present - use
            fits = open_to & (room[:, :columns] >= need[:columns]).all(axis=1)
            if not fits.any():
                return None
            # Where most of its own boards are, then where it fits first.
            at = int(np.argmax(np.where(fits, present[:, 0], -1.0)))
            use[at] += need
            open_to[at] &= not apart
        return np.maximum(0.0, use - present)


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
        why, before_it = self._hosts.before(proposal)
        if why == NO_HOST:
            return why
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
        if why:
            return why
        for row, amount in change.items():
            self._used[row] += amount
            self._claimed[row] += np.maximum(amount, 0.0)
        self._hosts.take(proposal, before_it)
        first = {other.job.demand.job.job_id for other in self._needed(change)} | {*before_it}
        self.first[proposal.job.demand.job.job_id] = tuple(
            other for other, _change in self._freeing if other.job.demand.job.job_id in first
        )
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
    """Yield the options of a change that take boards, of jobs that a scheduler starts."""
    job, now = proposal.job.demand.job, proposal.present
    if job.scheduler is None:
        return
    for number in sorted({*proposal.proposed}):
        option = proposal.job.options[number]
        elsewhere = option.configuration.gpu_model != now.configuration.gpu_model
        if option.boards and (elsewhere or option.boards > now.boards):
            yield option


def _parts(job: JobProblem, option: Option) -> tuple[Floats, int, bool]:
    """Return the need of each part that a change starts on a node, their number, and if apart.

    A part is a pod, or what a Slurm job has on each of its nodes, which starts with all others. Of
    slices no board: the plan decides from which board they are cut.
    """
    run, count = job.demand.job, option.configuration.gpu_count
    each = min(whole_fact(run.extra, "gpus_per_pod") or run.gpu_count, run.gpu_count)
    pods = run.gpu_count // each if has_same_pods(run, count) else -(-count // each)
    apart = nodes_apart(run, option.configuration)
    parts = apart or pods
    gpus = count / parts
    needs = host_share(run, count, 1, of=parts)
    if option.configuration.gpu_model == run.gpu_model and not apart:
        parts = max(0, parts - run.gpu_count // each)
    return np.array([0.0 if option.configuration.mig_profile else gpus, *needs]), parts, apart > 0
