"""Placement of a pod that strands the least GPU: state of nodes and the score."""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from data.base.compiled import compiled, inner

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

WHOLE = 1000


class NodeState(NamedTuple):
    """Free CPU (milli), memory, GPU (milli) and whole GPUs [nodes], of every GPU [nodes, most].

    `model` [nodes] is the number of the GPU model.
    """

    cpu: Ints
    memory: Ints
    gpu: Ints
    full: Ints
    boards: Ints
    model: Ints


class Pod(NamedTuple):
    """CPU (milli), memory, GPUs, milli of each; bit m of `models` set where model m will do."""

    cpu: int
    memory: int
    gpus: int
    milli: int
    models: int


class PlacementPrices(NamedTuple):
    """Milli-CPU per milli-GPU, unusable milli of a residual [1001], price per milli of a model."""

    kappa: float
    residual: Floats
    model: Floats


@inner
def board_for(nodes: NodeState, prices: PlacementPrices, pod: Pod, node: int) -> int:
    """Return GPU of a node where a share adds least unusable residual, or -1 if none has room."""
    best_board = -1
    least = np.inf
    for board in range(nodes.boards.shape[1]):
        free = nodes.boards[node, board]
        if free >= pod.milli:
            change = prices.residual[free - pod.milli] - prices.residual[free]
            if change < least:
                least = change
                best_board = board
    return best_board


@compiled
def fits(nodes: NodeState, pod: Pod, node: int) -> bool:
    """Return whether a node fits the pod: CPU, memory, model, and GPUs with enough left of each."""
    if nodes.cpu[node] < pod.cpu or nodes.memory[node] < pod.memory:
        return False
    if pod.gpus == 0:
        return True
    if nodes.gpu[node] < pod.gpus * pod.milli or not (pod.models >> nodes.model[node]) & 1:
        return False
    if pod.milli == WHOLE:
        return bool(nodes.full[node] >= pod.gpus)
    for board in range(nodes.boards.shape[1]):  # noqa: SIM110 # numba compiles no generator
        if nodes.boards[node, board] >= pod.milli:
            return True
    return False


@inner
def score(nodes: NodeState, prices: PlacementPrices, pod: Pod, node: int) -> float:
    """Return the GPU (milli) that a pod strands on a node that takes it; smaller is better."""
    demand = pod.gpus * pod.milli
    free = nodes.gpu[node]
    before = max(0.0, free - nodes.cpu[node] / prices.kappa)
    after = max(0.0, free - demand - (nodes.cpu[node] - pod.cpu) / prices.kappa)
    total = after - before
    if pod.gpus == 1 and pod.milli < WHOLE:
        rest = nodes.boards[node, board_for(nodes, prices, pod, node)]
        total += prices.residual[rest - pod.milli] - prices.residual[rest]
    if demand > 0:
        total += prices.model[nodes.model[node]] * demand
    return float(total)


@compiled
def choose(nodes: NodeState, prices: PlacementPrices, pod: Pod) -> int:
    """Return the first node of the least score, or -1 when none takes the pod."""
    choice = -1
    least = np.inf
    for node in range(len(nodes.cpu)):
        if fits(nodes, pod, node):
            value = score(nodes, prices, pod, node)
            if value < least:
                least = value
                choice = node
    return choice


@compiled
def occupy(
    nodes: NodeState, prices: PlacementPrices, pod: Pod, node: int, sign: int, boards: Ints
) -> None:
    """Take a pod's need from a node (sign 1) or give it back (sign -1).

    `boards` [most] becomes, or was, the milli of every GPU.
    """
    nodes.cpu[node] -= sign * pod.cpu
    nodes.memory[node] -= sign * pod.memory
    nodes.gpu[node] -= sign * pod.gpus * pod.milli
    if sign < 0:
        _hold(nodes, node, sign, boards)
        boards[:] = 0
        return
    boards[:] = 0
    if pod.gpus == 1:
        boards[board_for(nodes, prices, pod, node)] = pod.milli
    else:
        rest = pod.gpus
        for board in range(len(boards)):
            if rest > 0 and nodes.boards[node, board] >= pod.milli:
                boards[board] = pod.milli
                rest -= 1
    _hold(nodes, node, sign, boards)


@inner
def _hold(nodes: NodeState, node: int, sign: int, boards: Ints) -> None:
    """Take shares of every GPU of a node, or give them back; count the full GPUs."""
    full = 0
    for board in range(len(boards)):  # for whole rows numba compiles how to print shapes: 3 CPU s
        nodes.boards[node, board] -= sign * boards[board]
        full += nodes.boards[node, board] == WHOLE
    nodes.full[node] = full
