"""Place of a job: the GPU type by the joint policy, the nodes by what they would strand.

MARP ranks the plans; HAS (`planner.scheduling.arrival`) decides between the GPU types over all that
waits; here its choice is seated on real nodes with their CPUs and memory. What finds no seat goes
back to HAS without it. Nothing that runs is changed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from dashboard.submission.job.fleet import (
    FleetRoom,
    RoomAnswer,
    SubmissionFleet,
    SubmissionNode,
    Taint,
)
from dashboard.submission.job.least_stranding import least_stranding
from data.base.errors import ImpossibleProblemError
from planner.memory.estimate.training_plans import TrainingPlan
from planner.scheduling.arrival import UNKNOWN_HOURS, Offer, WaitingJob, chosen_offer

_MAX_COST_RATIO = 1.25
"""A plan may cost so much more per unit of work than the cheapest to spare larger GPUs."""
_SLOWER = 1.25
"""How much slower than the fastest a plan may be where none is sure to meet the deadline."""
_MILLI = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class HostNeed:
    """Need of a job from a node beside each GPU; None where the job does not say."""

    cpus_per_gpu: int | None = None
    memory_mib_per_gpu: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """Facts of the job and the queue for the decision.

    `late` says whether a plan misses the deadline, `hours` how long one runs (None: not known).
    """

    host: HostNeed
    late: Callable[[TrainingPlan], bool]
    hours: Callable[[TrainingPlan], float | None] = lambda _plan: None
    waiting: tuple[WaitingJob, ...] = ()


class PlacementBasis(StrEnum):
    """Basis of a decision; all but the first are fallbacks."""

    NOW = "with what waits, over the GPUs that are free now"
    LATER = "with what waits, over all GPUs, since none is free for it now"
    ALONE = "on its own, over all GPUs, since what waits takes them all"


@dataclass(frozen=True, slots=True, kw_only=True)
class WeighedPlan:
    """One plan that was weighed; `verdict` says what came of it."""

    plan: TrainingPlan
    verdict: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlacementDecision:
    """Record of a placement decision: between which plans, beside what, over which GPUs.

    `free` and `total` count GPUs by type.
    """

    basis: PlacementBasis
    considered: tuple[WeighedPlan, ...]
    waiting: tuple[WaitingJob, ...]
    free: Mapping[str, int]
    total: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Placement:
    """A plan with its place: so many nodes with so many GPUs each.

    `nodes` are those where it would go now, empty when it has to wait; `words` are what the
    cluster calls GPUs of this type. `fair_milli_cpus` and `fair_memory_mib` are the share
    of a node that goes with so many of its GPUs, the smallest of the nodes of this type, None
    where the cluster does not say. `taints` are those of these nodes.
    `misses_deadline` says that no plan is sure to meet it.
    """

    plan: TrainingPlan
    node_count: int
    gpus_per_node: int
    nodes: tuple[str, ...]
    words: tuple[str, ...]
    fair_milli_cpus: int | None = None
    fair_memory_mib: int | None = None
    taints: tuple[Taint, ...] = ()
    misses_deadline: bool = False
    decision: PlacementDecision | None = None

    @property
    def waits(self) -> bool:
        """Return whether no place is free now."""
        return not self.nodes


def place(plans: Sequence[TrainingPlan], fleet: SubmissionFleet, arrival: Arrival) -> Placement:
    """Return the placement that HAS decides: on free nodes, else the plan to wait with.

    Errors: ImpossibleProblemError when no set of nodes could hold any plan.
    """
    seats = _NodeSeats(fleet, arrival.host)
    possible = [plan for plan in plans if seats.count_ever(plan)]
    if not possible:
        raise ImpossibleProblemError(
            f"no nodes of {fleet.source} could hold any of the {len(plans)} plans that fit",
            _hint(plans, fleet),
        )
    choice = _Choice(_by_type(_affordable(possible), seats, arrival.late), seats, arrival)
    return choice.now() or choice.later() or choice.alone()


def standings(
    plans: Sequence[TrainingPlan], fleet: SubmissionFleet, host: HostNeed | None = None
) -> tuple[RoomAnswer, ...]:
    """Return for each plan whether nodes of the fleet hold it now, once they are free, or never."""
    seats = _NodeSeats(fleet, host or HostNeed())
    return tuple(map(seats.standing, plans))


class _Choice:
    """The rounds of one decision: what is weighed, what found no seat, what was taken."""

    def __init__(
        self, ranked: Mapping[str, Sequence[TrainingPlan]], seats: "_NodeSeats", arrival: Arrival
    ) -> None:
        self._ranked = ranked
        self._seats = seats
        self._arrival = arrival
        cheapest = min((plan for of in ranked.values() for plan in of), key=lambda plan: plan.cost)
        self._hours = arrival.hours(cheapest) or UNKNOWN_HOURS
        self._unseated: list[TrainingPlan] = []

    def now(self) -> Placement | None:
        """Decide over the free GPUs until a choice finds seats, None when HAS gives it nothing."""
        plans = {name: list(of) for name, of in self._ranked.items()}
        while plan := self._round(plans, self._seats.free, self._arrival.waiting):
            nodes = self._seats.now(plan)
            if nodes:
                return self._placed(plan, nodes, PlacementBasis.NOW)
            self._unseated.append(plans[plan.gpu_type].pop(0))
        return None

    def later(self) -> Placement | None:
        """Decide over all GPUs beside what waits, as once what runs has ended."""
        plan = self._round(self._ranked, self._seats.total, self._arrival.waiting)
        return None if plan is None else self._placed(plan, (), PlacementBasis.LATER)

    def alone(self) -> Placement:
        """Decide over all GPUs as if nothing else waited: what the cluster is asked for."""
        plan = self._round(self._ranked, self._seats.total, ())
        if plan is None:  # every plan that is ranked fits on an empty fleet
            raise ImpossibleProblemError("no plan fits on the whole fleet", "Name larger nodes.")
        return self._placed(plan, (), PlacementBasis.ALONE)

    def _round(
        self,
        ranked: Mapping[str, Sequence[TrainingPlan]],
        room: Mapping[str, int],
        waiting: Sequence[WaitingJob],
    ) -> TrainingPlan | None:
        best = {name: of[0] for name, of in ranked.items() if of}
        offers = [
            Offer(
                gpu_type=entry.gpu_type,
                gpus=entry.gpus,
                memory_bytes=entry.job.gpu_memory_bytes or 1.0,
                cost=entry.cost,
            )
            for entry in best.values()
        ]
        offer = chosen_offer(offers, room, waiting, hours=self._hours)
        return None if offer is None else best[offer.gpu_type]

    def _placed(
        self, plan: TrainingPlan, nodes: tuple[str, ...], basis: PlacementBasis
    ) -> Placement:
        decision = PlacementDecision(
            basis=basis,
            considered=tuple(self._considered(plan)),
            waiting=self._arrival.waiting,
            free=self._seats.free,
            total=self._seats.total,
        )
        return self._seats.placement(plan, nodes, late=self._arrival.late(plan), decision=decision)

    def _considered(self, first: TrainingPlan) -> Iterator[WeighedPlan]:
        """Yield the best plan of every type, those without a seat, and what became of them."""
        yield WeighedPlan(plan=first, verdict="chosen")
        for plan in self._unseated:
            yield WeighedPlan(plan=plan, verdict="no nodes with room for it now")
        for of in self._ranked.values():
            plan = of[0]
            if plan is first or plan in self._unseated:
                continue
            fits = plan.gpus <= self._seats.free.get(plan.gpu_type, 0)
            yield WeighedPlan(
                plan=plan,
                verdict="worth more to others or dearer" if fits else "not enough free now",
            )


def _by_type(
    plans: Sequence[TrainingPlan], seats: "_NodeSeats", late: Callable[[TrainingPlan], bool]
) -> dict[str, list[TrainingPlan]]:
    """Return plans by GPU type, the best first: the fewest nodes, the fewest GPUs, the cheapest.

    Where a plan meets the deadline, those that do not are left out; where none does, the slow ones.
    """
    timely = [plan for plan in plans if not late(plan)] or _fastest(plans, seats)
    plans_by_type: dict[str, list[TrainingPlan]] = {}
    for plan in sorted(timely, key=lambda plan: (seats.count_ever(plan), plan.gpus, plan.cost)):
        plans_by_type.setdefault(plan.gpu_type, []).append(plan)
    return plans_by_type


def _fastest(plans: Sequence[TrainingPlan], seats: "_NodeSeats") -> list[TrainingPlan]:
    """Keep the plans that have room now, else all; of them the fast ones."""
    free = [plan for plan in plans if seats.standing(plan).room is FleetRoom.FREE] or plans
    min_speed = max(plan.speed for plan in free) / _SLOWER
    return [plan for plan in free if plan.speed >= min_speed]


def _affordable(plans: Sequence[TrainingPlan]) -> list[TrainingPlan]:
    """Keep the plans that fit, else the likeliest; of them the cheap ones."""
    fitting = [plan for plan in plans if plan.fits]
    if not fitting:
        return [max(plans, key=lambda plan: plan.fit_probability)]
    limit = _MAX_COST_RATIO * min(plan.cost for plan in fitting)
    return [plan for plan in fitting if plan.cost <= limit]


def _hint(plans: Sequence[TrainingPlan], fleet: SubmissionFleet) -> str:
    if not plans:
        return "No plan was given."
    least = min(plans, key=lambda plan: plan.gpus)
    offers = ", ".join(
        sorted({f"{entry.gpus} x {entry.gpu_type} on {entry.name}" for entry in fleet.usable})[:4]
    )
    return (
        f"The smallest needs {least.gpus} x {least.gpu_type}; there are "
        f"{offers or 'no nodes with GPUs that take jobs'}. Lower [host] of the job file if CPU or "
        "memory is what lacks."
    )


class _NodeSeats:
    """Counts the nodes that a plan takes; tensor-parallel groups never leave a node."""

    def __init__(self, fleet: SubmissionFleet, host: HostNeed) -> None:
        self._host = host
        self._by_type: dict[str, list[SubmissionNode]] = {}
        for node in fleet.usable:
            self._by_type.setdefault(node.gpu_type, []).append(node)
        self._counts: dict[tuple[str, int, int, bool], int] = {}
        self.free = self._counted(lambda entry: entry.free_gpus)
        self.total = self._counted(lambda entry: entry.gpus)

    def _counted(self, gpus: Callable[[SubmissionNode], int]) -> dict[str, int]:
        return {name: sum(map(gpus, nodes)) for name, nodes in sorted(self._by_type.items())}

    def count_ever(self, plan: TrainingPlan) -> int:
        """Return the fewest nodes on an empty fleet, 0 when it holds the plan nowhere."""
        return self._count(plan, free=False)

    def _count(self, plan: TrainingPlan, *, free: bool) -> int:
        key = (plan.gpu_type, plan.gpus, plan.job.parallelism.tensor, free)
        if key not in self._counts:
            shares = _shares(plan)
            counts = (n for each, n in shares if len(self._holding(plan, each, free=free)) >= n)
            self._counts[key] = next(counts, 0)
        return self._counts[key]

    def standing(self, plan: TrainingPlan) -> RoomAnswer:
        """Return whether the plan has room now, once what runs has ended, or never."""
        if self._count(plan, free=True):
            return RoomAnswer(room=FleetRoom.FREE, text="free now")
        there, free = (of.get(plan.gpu_type, 0) for of in (self.total, self.free))
        if self._count(plan, free=False):
            return RoomAnswer(room=FleetRoom.BUSY, text=f"has to wait: {free} of {there} are free")
        if there < plan.gpus:
            return RoomAnswer(
                room=FleetRoom.NEVER, text=f"larger than the fleet: it has {there} of them"
            )
        text = "no nodes of the fleet hold it: GPUs of a node, CPU or memory do not suffice"
        return RoomAnswer(room=FleetRoom.NEVER, text=text)

    def now(self, plan: TrainingPlan) -> tuple[str, ...]:
        """Return the nodes that take the plan now, none when there is no room."""
        for each, count in _shares(plan):
            nodes = self._holding(plan, each, free=True)
            if len(nodes) >= count:
                return least_stranding(nodes, count, gpus=each, cpus=self._host_of(each)[0])
        return ()

    def placement(
        self, plan: TrainingPlan, nodes: tuple[str, ...], *, late: bool, decision: PlacementDecision
    ) -> Placement:
        """Return the placement on these nodes, or on as many as an empty fleet would take."""
        count = len(nodes) or self.count_ever(plan)
        each = plan.gpus // count
        of_type = [entry for entry in self._by_type[plan.gpu_type] if entry.gpus >= each]
        cpus = ((node, node.cpus) for node in of_type if node.cpus)
        memory = ((node, node.memory_mib) for node in of_type if node.memory_mib)
        return Placement(
            plan=plan,
            node_count=count,
            gpus_per_node=each,
            nodes=nodes,
            words=tuple(sorted({entry.word for entry in of_type})),
            fair_milli_cpus=min(
                (int(there * _MILLI * each / node.gpus) for node, there in cpus), default=None
            ),
            fair_memory_mib=min(
                (int(there * each / node.gpus) for node, there in memory), default=None
            ),
            taints=tuple(sorted({taint for node in of_type for taint in node.taints})),
            misses_deadline=late,
            decision=decision,
        )

    def _holding(self, plan: TrainingPlan, each: int, *, free: bool) -> list[SubmissionNode]:
        return [
            node
            for node in self._by_type.get(plan.gpu_type, ())
            if (node.free_gpus if free else node.gpus) >= each and self._has_host(node, each)
        ]

    def _host_of(self, each: int) -> tuple[int, int]:
        """Return the CPUs and the memory in MiB that come with so many GPUs."""
        return (self._host.cpus_per_gpu or 0) * each, (self._host.memory_mib_per_gpu or 0) * each

    def _has_host(self, node: SubmissionNode, each: int) -> bool:
        cpus, memory = self._host_of(each)
        return (node.cpus is None or cpus <= node.cpus) and (
            node.memory_mib is None or memory <= node.memory_mib
        )


def _shares(plan: TrainingPlan) -> Iterator[tuple[int, int]]:
    """Yield (GPUs of each node, nodes), the fewest nodes first."""
    for count in range(1, plan.gpus + 1):
        each = plan.gpus // count
        if plan.gpus % count == 0 and each % plan.job.parallelism.tensor == 0:
            yield each, count
