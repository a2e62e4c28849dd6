"""FGD as published (Weng et al., USENIX ATC 2023, section 4), for the comparison.

Typical pods are the most frequent specifications that cover 95 % of the pods. The fragment of a
node for one of them is all its free GPU when it could not run there or needs none, else the GPUs
with less left than it asks of each. A placement scores int(100 * sigmoid(decrease / 1000)).
"""

import numpy as np
import numpy.typing as npt

from benchmarks._fragmentation_kernel import WHOLE, NodeState, Pod, fits
from data.base.compiled import compiled
from planner.packing.random_kernel import RandomState, draw

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@compiled
def fragment(cpu: int, boards: Ints, model: int, typical: Ints, chance: Floats, most: int) -> float:
    """Return the expected fragment, in GPU milli, of a node with so much CPU and GPU left.

    typical [t, 4]: CPU, GPUs, milli of each, models.
    """
    free = boards.sum()
    total = 0.0
    for kind in range(len(typical)):
        needed, gpus, milli, models = typical[kind]
        small = 0
        enough = 0
        for board in range(most):
            if boards[board] >= milli:
                enough += 1
            else:
                small += boards[board]
        runs = gpus > 0 and cpu >= needed and enough >= gpus and (models >> model) & 1
        total += chance[kind] * (small if runs else free)
    return total


@compiled
def _after(
    nodes: NodeState, pod: Pod, node: int, typical: Ints, chance: Floats
) -> tuple[float, int]:
    """Return the least fragment that a node could have with the pod, and the GPU of its share."""
    most = nodes.boards.shape[1]
    cpu = nodes.cpu[node] - pod.cpu
    model = nodes.model[node]
    boards = nodes.boards[node].copy()
    if pod.gpus == 1 and pod.milli < WHOLE:
        least = np.inf
        chosen = -1
        for board in range(most):
            if boards[board] >= pod.milli:
                boards[board] -= pod.milli
                value = fragment(cpu, boards, model, typical, chance, most)
                boards[board] += pod.milli
                if value < least:
                    least = value
                    chosen = board
        return least, chosen
    left = pod.gpus
    for board in range(most):
        if left > 0 and boards[board] == WHOLE:
            boards[board] = 0
            left -= 1
    return fragment(cpu, boards, model, typical, chance, most), -1


@compiled
def _take(nodes: NodeState, pod: Pod, node: int, board: int) -> None:
    """Put a pod on a node."""
    nodes.cpu[node] -= pod.cpu
    nodes.memory[node] -= pod.memory
    nodes.gpu[node] -= pod.gpus * pod.milli
    left = pod.gpus
    if board >= 0:
        nodes.boards[node, board] -= pod.milli
        left = 0
    for number in range(nodes.boards.shape[1]):
        if left > 0 and nodes.boards[node, number] == WHOLE:
            nodes.boards[node, number] = 0
            left -= 1
    nodes.full[node] = (nodes.boards[node] == WHOLE).sum()


@compiled
def replay_fgd(
    nodes: NodeState, pods: Ints, typical: Ints, chance: Floats, by_name: bool, state: RandomState
) -> Ints:
    """Return the GPU milli allocated after every arrival; pods [n, 5] in the order of Pod.

    Ties go to the first node by name, or to a random one.
    """
    count = len(nodes.cpu)
    most = nodes.boards.shape[1]
    before = np.empty(count)
    for node in range(count):
        before[node] = fragment(
            nodes.cpu[node], nodes.boards[node], nodes.model[node], typical, chance, most
        )
    allocated = np.zeros(len(pods), dtype=np.int64)
    total = 0
    for index in range(len(pods)):
        row = pods[index]
        pod = Pod(row[0], row[1], row[2], row[3], row[4])
        chosen = -1
        chosen_board = -1
        top = -1
        tied = 0
        for node in range(count):
            if not fits(nodes, pod, node):
                continue
            after, board = _after(nodes, pod, node, typical, chance)
            points = int(100.0 / (1.0 + np.exp(-(before[node] - after) / 1000.0)))
            tied = tied + 1 if points == top else 1
            better = points > top or (points == top and not by_name and draw(state, tied) == 0)
            if better:
                top = points
                chosen = node
                chosen_board = board
        if chosen >= 0:
            _take(nodes, pod, chosen, chosen_board)
            before[chosen] = fragment(
                nodes.cpu[chosen], nodes.boards[chosen], nodes.model[chosen], typical, chance, most
            )
            total += pod.gpus * pod.milli
        allocated[index] = total
    return allocated
