"""Policies that take the GPUs the user guessed: first in first out, and least attained service."""

from collections.abc import Mapping, Sequence

from benchmarks.simulation.job_view import Allocation, JobView, NodeView
from benchmarks.simulation.rounds.node_mapping import Nodes, map_to_nodes
from data.facts.gpu_resources import WHOLE_GPU

Room = dict[str, dict[int, int]]


def room_of(nodes: Mapping[str, Mapping[int, NodeView]]) -> Room:
    """Return the GPUs of every node by type."""
    return {
        kind: {key: node.resources[WHOLE_GPU] for key, node in of.items()}
        for kind, of in nodes.items()
    }


def usable_types(job: JobView, room: Room, *, knows_memory: bool) -> list[str]:
    """Return the types that hold the job's GPUs at all and where it has not run out of memory.

    A policy that `knows_memory` also leaves out those where the predictor says it would.
    """
    gpus = job.target_num_replicas
    found = [
        name
        for name, of in room.items()
        if sum(of.values()) >= gpus and (name, gpus) not in job.failed_on
    ]
    if knows_memory and job.memory_gib:
        need = job.memory_gib.get(gpus, float("inf"))
        found = [name for name in found if need <= job.gpu_memory_gib.get(name, float("inf"))]
    return found


def place(
    chosen: Mapping[str, tuple[str, int]], before: Mapping[str, Allocation], room: Room
) -> dict[str, Allocation]:
    """Return nodes to jobs with a type and a count."""
    given: dict[str, Allocation] = {}
    for gpu_type, of in room.items():
        wanted = {name: count for name, (kind, count) in chosen.items() if kind == gpu_type}
        held: dict[str, Nodes] = {
            name: tuple(before[name][1])
            for name in wanted
            if name in before and before[name][0] == gpu_type
        }
        for name, nodes in map_to_nodes(wanted, held, of).items():
            given[name] = (gpu_type, nodes)
    return given


def _take_in_order(
    order: Sequence[str],
    jobs: Mapping[str, JobView],
    before: Mapping[str, Allocation],
    room: Room,
    *,
    knows_memory: bool,
) -> dict[str, tuple[str, int]]:
    """Return each job in order its guess: where it is, else on the type with most GPUs free."""
    free = {name: sum(of.values()) for name, of in room.items()}
    chosen: dict[str, tuple[str, int]] = {}
    for name in order:
        gpus = jobs[name].target_num_replicas
        fitting = [
            kind
            for kind in usable_types(jobs[name], room, knows_memory=knows_memory)
            if free[kind] >= gpus
        ]
        if fitting:
            now = before.get(name, (None, ()))[0]
            kind = now if now in fitting else max(fitting, key=lambda text: (free[text], text))
            free[kind] -= gpus
            chosen[name] = (kind, gpus)
    return chosen


class FirstInPolicy:
    """Opportunistic: jobs in order of arrival take the first GPUs that are enough, and keep them.

    Later jobs may pass one that waits for more GPUs. GPU types are all the same to it; a start that
    runs out of memory is tried again on another type.
    """

    def __init__(self, *, knows_memory: bool = False) -> None:
        self.knows_memory = knows_memory

    def optimize(
        self,
        jobs: Mapping[str, JobView],
        nodes: Mapping[str, Mapping[int, NodeView]],
        prev_allocations: Mapping[str, Allocation],
    ) -> dict[str, Allocation]:
        """Return the allocation of every job that runs."""
        room = room_of(nodes)
        order = sorted(
            jobs, key=lambda name: (name not in prev_allocations, jobs[name].creation_timestamp)
        )
        chosen = _take_in_order(order, jobs, prev_allocations, room, knows_memory=self.knows_memory)
        return place(chosen, prev_allocations, room)


class LeastAttainedPolicy:
    """Tiresias-like (Gu et al., NSDI 2019): two queues by attained GPU-time, first in first out.

    Jobs of the lower queue are preempted. The threshold is in GPU-hours.
    """

    def __init__(self, *, threshold_gpu_hours: float = 1.0, knows_memory: bool = False) -> None:
        self.threshold_gpu_hours = threshold_gpu_hours
        self.knows_memory = knows_memory

    def optimize(
        self,
        jobs: Mapping[str, JobView],
        nodes: Mapping[str, Mapping[int, NodeView]],
        prev_allocations: Mapping[str, Allocation],
    ) -> dict[str, Allocation]:
        """Return the allocation of every job that runs."""
        room = room_of(nodes)
        limit = self.threshold_gpu_hours * 3600
        order = sorted(
            jobs,
            key=lambda name: (
                not jobs[name].scaling_underway,
                jobs[name].attained_service >= limit,
                jobs[name].creation_timestamp,
            ),
        )
        chosen = _take_in_order(order, jobs, prev_allocations, room, knows_memory=self.knows_memory)
        return place(chosen, prev_allocations, room)
