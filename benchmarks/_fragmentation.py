"""Online placement of pods so that little GPU is stranded.

A pod goes where it strands the least GPU, the first node on ties: GPU beyond what the node's CPU
can feed (CPU over kappa, the CPU that a GPU typically takes), the part of a shared GPU that no
usual share will ever fit, and the price of a model that others insist on. Gradient descent on
fragmentation is the idea of FGD (Weng et al., USENIX ATC 2023); this score is our own, and closed.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks._fragmentation_kernel import (
    WHOLE,
    NodeState,
    PlacementPrices,
    Pod,
    choose,
    fits,
    occupy,
)
from benchmarks.packing.gilmore_gomory import pattern_prices
from benchmarks.packing.temporal_instance import Ints
from data.base.errors import ImpossibleProblemError

Floats = npt.NDArray[np.float64]
_LOOKS = 50
"""Pods that a residual sees before it counts as lost; 10 to 300 differ by 0.1 points."""
_PATTERN_WEIGHT = 0.8
"""0.6 to 0.95 are alike; 1 leaves ties that the random part breaks well, and is 5 points worse."""
_PICKY_SHARE = 0.2
"""From this share of pods with a list of models on, scarce models have a price."""
ANY_MODEL = (1 << 62) - 1


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Pods:
    """Requests of pods [n]: milli-CPU, memory, GPUs, milli of each GPU, and the models that do.

    `milli` is 1000 unless one GPU is shared; `models` has bit m set where model m will do
    (ANY_MODEL: all). Memory in any unit that the nodes share.
    """

    cpu: Ints
    memory: Ints
    gpus: Ints
    milli: Ints
    models: Ints

    def __post_init__(self) -> None:
        """Refuse shares of several GPUs and shares of 0."""
        wrong = (self.gpus > 0) & ((self.milli < 1) | (self.milli > WHOLE))
        wrong |= (self.gpus > 1) & (self.milli != WHOLE)
        if wrong.any():
            pod = int(np.flatnonzero(wrong)[0])
            raise ImpossibleProblemError(
                f"pod {pod} asks for {self.milli[pod]} milli of each of {self.gpus[pod]} GPUs",
                "Ask for 1 to 1000 milli of one GPU, or for whole GPUs (1000)",
            )

    @property
    def demand(self) -> Ints:
        """GPU milli of every pod."""
        return np.asarray(self.gpus * self.milli)

    def pod(self, index: int) -> Pod:
        """Return one pod."""
        return Pod(
            cpu=int(self.cpu[index]),
            memory=int(self.memory[index]),
            gpus=int(self.gpus[index]),
            milli=int(self.milli[index]),
            models=int(self.models[index]),
        )


def node_state(cpu: Ints, memory: Ints, gpus: Ints, model: Ints) -> NodeState:
    """Return empty nodes, in the order in which ties are broken."""
    most = max(1, int(gpus.max(initial=0)))
    boards = np.where(np.arange(most) < gpus[:, None], WHOLE, 0).astype(np.int64)
    return NodeState(
        cpu=cpu.astype(np.int64),
        memory=memory.astype(np.int64),
        gpu=boards.sum(axis=1),
        full=gpus.astype(np.int64),
        boards=boards,
        model=model.astype(np.int64),
    )


def residual_losses(pods: Pods) -> Floats:
    """Return the milli of a residual r of one GPU that is worth nothing, for r = 0..1000 milli.

    Mostly what the best packing of all shares pays for it (the dual prices of the pattern program,
    Gilmore and Gomory 1961); a little what would be left of it if shares came at random.
    """
    shared = (pods.gpus == 1) & (pods.milli < WHOLE)
    if not shared.any():
        return np.arange(WHOLE + 1, dtype=np.float64) * (np.arange(WHOLE + 1) < WHOLE)
    sizes, counts = np.unique(pods.milli[shared], return_counts=True)
    chance = counts / (pods.gpus > 0).sum()
    paid, passing = _pattern_losses(sizes, counts), _random_losses(sizes, chance)
    return np.asarray(_PATTERN_WEIGHT * paid + (1 - _PATTERN_WEIGHT) * passing)


def _pattern_losses(sizes: Ints, counts: Ints) -> Floats:
    """Return r minus the price, in milli, of the best pattern of shares that fits into r."""
    prices = pattern_prices(counts, sizes, WHOLE)
    worth = np.zeros(WHOLE + 1)
    for free in range(int(sizes[0]), WHOLE + 1):
        fitting = sizes <= free
        worth[free] = (prices[fitting] + worth[free - sizes[fitting]]).max()
    worth = np.maximum.accumulate(worth)
    return np.asarray(np.arange(WHOLE + 1) - WHOLE * worth / worth[WHOLE])


def _random_losses(sizes: Ints, chance: Floats) -> Floats:
    """Return the share that stays unused when pods of these chances pass, first fit first.

    A residual that sees 50 pods without one is lost as a whole.
    """
    losses = np.arange(WHOLE + 1, dtype=np.float64)
    for free in range(int(sizes[0]), WHOLE):
        fitting = sizes <= free
        total = chance[fitting].sum()
        never = (1 - total) ** _LOOKS
        after = chance[fitting] @ losses[free - sizes[fitting]] / total
        losses[free] = (1 - never) * after + never * free
    losses[WHOLE] = 0.0
    return np.asarray(losses)


def model_prices(pods: Pods, nodes: NodeState) -> Floats:
    """Return the price per milli of every model: demand that names it over what there is of it.

    Zero for all when few pods name models: then the price costs more than it spares.
    """
    models = int(nodes.model.max(initial=0)) + 1
    capacity = np.bincount(nodes.model, weights=(nodes.boards.sum(axis=1)), minlength=models)
    asks = pods.gpus > 0
    picky = asks & (pods.models != ANY_MODEL)
    if picky.sum() < _PICKY_SHARE * max(1, asks.sum()):
        return np.zeros(models)
    shared = ((pods.models[picky, None] >> np.arange(models)) & 1) * capacity
    shares = shared / np.maximum(shared.sum(axis=1, keepdims=True), 1)
    demand = pods.demand[picky] @ shares * (capacity.sum() / max(1, pods.demand.sum()))
    return np.asarray(demand / np.maximum(capacity, 1.0))


def prices_of(pods: Pods, nodes: NodeState) -> PlacementPrices:
    """Return the prices that typical pods imply for empty nodes.

    kappa is the milli-CPU per milli-GPU of all pods that ask for GPUs.
    """
    asks = pods.gpus > 0
    if not asks.any():
        raise ImpossibleProblemError(
            "none of the typical pods asks for a GPU", "Give pods of which some use GPUs"
        )
    kappa = float(pods.cpu[asks].sum() / pods.demand[asks].sum())
    return PlacementPrices(
        kappa=max(kappa, 1e-9),
        residual=residual_losses(pods),
        model=model_prices(pods, nodes),
    )


class FragmentationPlacer:
    """Places pods one by one on nodes, and takes them off again."""

    def __init__(self, nodes: NodeState, typical: Pods) -> None:
        self.nodes = nodes
        self.prices = prices_of(typical, nodes)

    def place(self, pod: Pod) -> tuple[int, Ints] | None:
        """Return the node and the milli held of each of its GPUs, or None when no node has room."""
        node = choose(self.nodes, self.prices, pod)
        if node < 0:
            return None
        return node, self.occupy(pod, node)

    def fits(self, pod: Pod, node: int) -> bool:
        """Return whether a node takes the pod."""
        return bool(fits(self.nodes, pod, node))

    def occupy(self, pod: Pod, node: int) -> Ints:
        """Put the pod on a node that takes it; return the milli held of each of its GPUs."""
        boards = np.zeros(self.nodes.boards.shape[1], dtype=np.int64)
        occupy(self.nodes, self.prices, pod, node, 1, boards)
        return boards

    def release(self, pod: Pod, node: int, boards: Ints) -> None:
        """Take a pod off its node."""
        occupy(self.nodes, self.prices, pod, node, -1, boards.copy())
