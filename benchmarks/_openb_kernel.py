"""Replay of arriving pods under placement rules: ours and the peers."""

import numpy as np
import numpy.typing as npt

from benchmarks._fragmentation_kernel import (
    NodeState,
    PlacementPrices,
    Pod,
    choose,
    fits,
    occupy,
)
from data.base.compiled import compiled
from planner.packing.random_kernel import RandomState, draw

Ints = npt.NDArray[np.int64]

OURS, FIRST, BEST, RANDOM = 0, 1, 2, 3


@compiled
def pick(nodes: NodeState, prices: PlacementPrices, pod: Pod, rule: int, state: RandomState) -> int:
    """Return the node that a rule chooses, or -1."""
    if rule == OURS:
        return choose(nodes, prices, pod)
    chosen = -1
    seen = 0
    least = np.inf
    for node in range(len(nodes.cpu)):
        if not fits(nodes, pod, node):
            continue
        if rule == FIRST:
            return node
        seen += 1
        if rule == RANDOM:
            if draw(state, seen) == 0:
                chosen = node
            continue
        left = float(nodes.gpu[node] - pod.gpus * pod.milli) / 1000.0
        left += float(nodes.cpu[node] - pod.cpu) / 10_000.0
        if left < least:
            least = left
            chosen = node
    return chosen


@compiled
def replay(
    nodes: NodeState, prices: PlacementPrices, pods: Ints, rule: int, state: RandomState
) -> Ints:
    """Return the GPU milli allocated after every arrival; pods [n, 5] in the order of Pod."""
    held = np.zeros(nodes.boards.shape[1], dtype=np.int64)
    allocated = np.zeros(len(pods), dtype=np.int64)
    total = 0
    for index in range(len(pods)):
        row = pods[index]
        pod = Pod(row[0], row[1], row[2], row[3], row[4])
        node = pick(nodes, prices, pod, rule, state)
        if node >= 0:
            occupy(nodes, prices, pod, node, 1, held)
            total += pod.gpus * pod.milli
        allocated[index] = total
    return allocated
