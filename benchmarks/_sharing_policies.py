"""Policies that decide which pods share a board, from the past alone or knowing what comes."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.optimize import Bounds, LinearConstraint, milp  # type: ignore[import-untyped]
from scipy.sparse import csc_matrix  # type: ignore[import-untyped]

from benchmarks._sharing_pods import BOARD_GIB, Pods, Values
from planner.sharing.shared_boards import MOST_JOBS, SharingLimits, shared_boards

Indices = npt.NDArray[np.int64]
Groups = list[tuple[int, ...]]
MIG = ((1, 1, 10.0), (2, 2, 20.0), (3, 4, 40.0))
"""Compute slices of 7, memory slices of 8, GiB: 1g.10gb, 2g.20gb and 3g.40gb of 80 GiB boards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Groups of pods on boards; `stopped` hold none, `slices` have their own compute and memory."""

    groups: Groups
    stopped: frozenset[int] = frozenset()
    slices: dict[int, tuple[float, float]] | None = None


def nothing(pods: Pods, there: Indices, _minute: int) -> Decision:
    """Return every pod on its board."""
    return Decision(groups=[(int(pod),) for pod in there])


def replicas(pods: Pods, there: Indices, minute: int) -> Decision:
    """Return every pod on its board but those that did nothing in all of the past."""
    rests = {int(pod) for pod in there if not np.nansum(pods.busy[pod, :minute])}
    return Decision(
        groups=[(int(pod),) for pod in there if pod not in rests], stopped=frozenset(rests)
    )


def p95(pods: Pods, there: Indices, minute: int) -> Decision:
    """Return first fit decreasing by P95 of utilization and 1.1 times the largest memory."""
    needs = {
        int(pod): (
            float(np.nanpercentile(pods.busy[pod, :minute], 95)) / 100,
            1.1 * float(np.nanmax(pods.memory[pod, :minute])) / BOARD_GIB,
        )
        for pod in there
    }
    groups: Groups = []
    for pod in sorted(needs, key=lambda one: -max(needs[one])):
        for number, group in enumerate(groups):
            members = (*group, pod)
            sums = (sum(needs[one][place] for one in members) for place in (0, 1))
            if pods.tenant[group[0]] == pods.tenant[pod] and max(sums) <= 1:
                groups[number] = members
                break
        else:
            groups.append((pod,))
    return Decision(groups=groups)


def mig(pods: Pods, there: Indices, minute: int) -> Decision:
    """Return slices by P95 of utilization and 1.1 times the largest memory, first fit."""
    groups: Groups = []
    slices: dict[int, tuple[float, float]] = {}
    used: list[tuple[int, int]] = []
    for pod in sorted(there, key=lambda one: -np.nanmax(pods.memory[one, :minute])):
        memory = 1.1 * np.nanmax(pods.memory[pod, :minute])
        busy = np.nanpercentile(pods.busy[pod, :minute], 95) / 100
        fits = [row for row in MIG if memory <= row[2] and busy <= row[0] / 7]
        if not fits:
            groups.append((int(pod),))
            used.append((7, 8))
            continue
        compute, parts, gib = fits[0]
        slices[int(pod)] = (100 * compute / 7, gib)
        for number, (cores, memories) in enumerate(used):
            if cores + compute <= 7 and memories + parts <= 8:
                groups[number] = (*groups[number], int(pod))
                used[number] = (cores + compute, memories + parts)
                break
        else:
            groups.append((int(pod),))
            used.append((compute, parts))
    return Decision(groups=groups, slices=slices)


def ours(
    pods: Pods, there: Indices, minute: int, standing: Sequence[Sequence[int]] = ()
) -> Decision:
    """Return what the product advises, by tenant."""
    place = {int(pod): number for number, pod in enumerate(there)}
    shared = [[place[one] for one in group if one in place] for group in standing]
    boards = shared_boards(
        pods.past(there, minute),
        SharingLimits(usable_mib=BOARD_GIB * 1024, window_slots=48),
        [group for group in shared if len(group) > 1],
    )
    return Decision(groups=[tuple(int(there[job]) for job in board.jobs) for board in boards])


def truth(pods: Pods, there: Indices, minute: int, until: int) -> tuple[Values, Values, Values]:
    """Return memory, utilization and presence of the coming minutes [pods there, minutes]."""
    clock = np.arange(minute, until)
    here = (clock >= pods.first[there, None]) & (clock <= pods.last[there, None])
    return (
        np.nan_to_num(pods.memory[there, minute:until]),
        np.nan_to_num(pods.busy[there, minute:until]),
        here.astype(float),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Clairvoyant:
    """The best groups for the true minutes, and the least board-minutes that any have."""

    groups: Groups
    bound: float


def clairvoyant(pods: Pods, there: Indices, minute: int, until: int, seconds: float) -> Clairvoyant:
    """Return the exact packing of the true minutes: sets of at most four pods by HiGHS.

    Every set of a tenant that never exceeds a board is listed, and each pod is in one of them.
    """
    groups: Groups = []
    bound = 0.0
    for tenant in sorted({int(pods.tenant[pod]) for pod in there}):
        own = there[pods.tenant[there] == tenant]
        memory, busy, here = truth(pods, own, minute, until)
        sets = [*_feasible(memory, busy)]
        cost = np.array([here[list(one)].any(axis=0).sum() for one in sets])
        rows = [pod for one in sets for pod in one]
        columns = [number for number, one in enumerate(sets) for _ in one]
        matrix = csc_matrix((np.ones(len(rows)), (rows, columns)), shape=(len(own), len(sets)))
        found = milp(
            cost,
            constraints=LinearConstraint(matrix, 1, 1),
            integrality=np.ones(len(sets)),
            bounds=Bounds(0, 1),
            options={"time_limit": seconds, "mip_rel_gap": 1e-3},
        )
        if found.x is None:
            raise RuntimeError(f"no packing of {len(own)} pods in {seconds:g} s; give more time")
        groups += [tuple(int(own[pod]) for pod in sets[at]) for at in np.flatnonzero(found.x > 0.5)]
        bound += float(found.mip_dual_bound)
    return Clairvoyant(groups=groups, bound=bound)


def _feasible(memory: Values, busy: Values) -> Iterable[tuple[int, ...]]:
    """Yield the sets of pods that together never exceed a board in the true minutes."""
    level: Groups = [(pod,) for pod in range(len(memory))]
    for _size in range(MOST_JOBS):
        yield from level
        larger: Groups = []
        for group in level:
            rest = np.arange(group[-1] + 1, len(memory))
            members = list(group)
            fits = (memory[members].sum(axis=0) + memory[rest]).max(axis=1, initial=0) <= BOARD_GIB
            fits &= (busy[members].sum(axis=0) + busy[rest]).max(axis=1, initial=0) <= 100
            larger += [(*group, int(pod)) for pod in rest[fits]]
        level = larger


Policy = Callable[[Pods, Indices, int], Decision]
POLICIES: dict[str, Policy] = {
    "nothing": nothing,
    "replicas alone": replicas,
    "MIG alone": mig,
    "time slicing by P95": p95,
    "Trimtab, one decision": ours,
}
