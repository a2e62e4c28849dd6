"""The nodes of a job, chosen so that the GPUs that others could still use are stranded least."""

from collections.abc import Sequence

import numpy as np

from dashboard.submission.job.fleet import SubmissionNode
from planner.packing.fragmentation import ANY_MODEL, FragmentationPlacer, Pods, node_state
from planner.packing.fragmentation_kernel import WHOLE, NodeState, Pod

_MILLI = 1000


def least_stranding(
    nodes: Sequence[SubmissionNode], count: int, *, gpus: int, cpus: int, memory_mib: int
) -> tuple[str, ...]:
    """Return the names of `count` nodes for as many shares of a job, () when fewer have room.

    A share takes `gpus`, `cpus` and `memory_mib`. Nodes are chosen one by one; of those that strand
    alike the fullest.
    """
    ordered = sorted(nodes, key=lambda node: (node.free_gpus, node.name))
    pod = Pod(cpu=cpus * _MILLI, memory=memory_mib, gpus=gpus, milli=WHOLE, models=ANY_MODEL)
    placer = FragmentationPlacer(_state(ordered, pod), _typical(ordered))
    names: list[str] = []
    while len(names) < count:
        place = placer.place(pod)
        if place is None:
            return ()
        placer.nodes.full[place[0]] = 0  # one share of a job to a node
        names.append(ordered[place[0]].name)
    return tuple(names)


def _state(nodes: Sequence[SubmissionNode], pod: Pod) -> NodeState:
    """Return the free part; a node with some GPUs held has lost as much of CPU and memory."""
    free = np.array([node.free_gpus for node in nodes])
    share = free / np.array([node.gpus for node in nodes])
    cpus = np.array([(node.cpus or 10**6) * _MILLI for node in nodes]) * share
    memory = np.array([node.memory_mib or 10**12 for node in nodes]) * share
    return node_state(
        np.maximum(cpus, pod.cpu).astype(np.int64),
        np.maximum(memory, pod.memory).astype(np.int64),
        free.astype(np.int64),
        np.zeros(len(nodes), dtype=np.int64),
    )


def _typical(nodes: Sequence[SubmissionNode]) -> Pods:
    """Return pods that take a GPU with the CPU that comes with it on these nodes."""
    count = len(nodes)
    return Pods(
        cpu=np.array([(node.cpus or node.gpus) * _MILLI // node.gpus for node in nodes]),
        memory=np.zeros(count, dtype=np.int64),
        gpus=np.ones(count, dtype=np.int64),
        milli=np.full(count, WHOLE, dtype=np.int64),
        models=np.full(count, ANY_MODEL, dtype=np.int64),
    )
