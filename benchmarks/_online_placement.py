"""Online placement of pods whose end is known or estimated: fill nodes that stay busy anyway.

A pod goes where it lengthens the busy time of nodes at the least cost; ties go to the empty node
that costs least per GPU, then to the fullest, then to where it strands the least GPU. Estimates may
be wrong: a pod past its end ends now.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from benchmarks._fragmentation import Pods, prices_of
from benchmarks._fragmentation_kernel import (
    WHOLE,
    NodeState,
    PlacementPrices,
    Pod,
    choose,
    fits,
    occupy,
    score,
)
from benchmarks.packing.temporal_instance import Ints
from data.base.compiled import compiled
from data.base.errors import ImpossibleProblemError

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlacedPod:
    """A pod on a node: its expected end (None: unknown) and the milli held of every GPU."""

    pod: Pod
    node: int
    end: float | None
    held: Ints


class OnlinePlacer:
    """Nodes with the pods on them; times in any one unit, never going back.

    `cost` [nodes] is what a busy node costs per unit of time: its GPUs unless said otherwise, which
    is what a node is rented for; the watts of an idle node would do as well.
    """

    def __init__(self, nodes: NodeState, typical: Pods, *, cost: Floats | None = None) -> None:
        self.nodes = nodes
        self.cost = nodes.gpu / WHOLE if cost is None else cost
        self._rate: Floats = self.cost / np.maximum(nodes.gpu / WHOLE, 1.0)
        self.prices = prices_of(typical, nodes)
        self.busy_until: Floats = np.full(len(nodes.cpu), -np.inf)
        self._ends: list[dict[int, float]] = [{} for _ in nodes.cpu]

    def place(self, pod: Pod, *, now: float, end: float | None) -> PlacedPod | None:
        """Return the pod with its node, or None when no node has room.

        `end` None, unknown, places the pod by what it strands alone and takes its node for busy
        without end. Raises ImpossibleProblemError when the end is not after now.
        """
        if end is not None and end <= now:
            raise ImpossibleProblemError(
                f"a pod that is placed at {now} is said to end at {end}",
                "Give a later end, or None when it is not known",
            )
        node = self.choose(pod, now=now, end=end)
        if node < 0:
            return None
        held = np.zeros(self.nodes.boards.shape[1], dtype=np.int64)
        occupy(self.nodes, self.prices, pod, node, 1, held)
        placed = PlacedPod(pod=pod, node=node, end=end, held=held)
        self._ends[node][id(placed)] = np.inf if end is None else end
        self.busy_until[node] = max(self._ends[node].values())
        return placed

    def choose(self, pod: Pod, *, now: float, end: float | None) -> int:
        """Return the node where the pod would go, or -1; nothing is changed."""
        if end is None:
            return choose(self.nodes, self.prices, pod)
        return choose_by_end(
            self.nodes, self.prices, pod, self.cost, self._rate, self.busy_until, now, end
        )

    def release(self, placed: PlacedPod) -> None:
        """Take a pod off its node. Raises ImpossibleProblemError when it is not there."""
        ends = self._ends[placed.node]
        if ends.pop(id(placed), None) is None:
            raise ImpossibleProblemError(
                f"a pod is released that node {placed.node} does not hold", "Release a pod once"
            )
        occupy(self.nodes, self.prices, placed.pod, placed.node, -1, placed.held.copy())
        self.busy_until[placed.node] = max(ends.values(), default=-np.inf)


@compiled
def choose_by_end(
    nodes: NodeState,
    prices: PlacementPrices,
    pod: Pod,
    cost: Floats,
    rate: Floats,
    busy_until: Floats,
    now: float,
    end: float,
) -> int:
    """Return the node whose busy time a pod lengthens at the least cost, or -1 if none takes it.

    cost [nodes]: of a busy node per unit of time; rate [nodes]: the same per GPU of the node;
    busy_until [nodes]: when the last pod there ends, at most `now` for an empty node. Ties go to
    the least rate among empty nodes (at equal cost the larger: its room serves the next pods), then
    to the node with the least GPU left, then to the one that strands the least, then to the first.
    """
    chosen = -1
    best = (np.inf, np.inf, np.inf, np.inf)
    for node in range(len(nodes.cpu)):
        if not fits(nodes, pod, node):
            continue
        added = cost[node] * max(0.0, end - max(now, busy_until[node]))
        opened = rate[node] if busy_until[node] <= now else 0.0
        left = float(nodes.gpu[node] - pod.gpus * pod.milli)
        if (added, opened, left) <= (best[0], best[1], best[2]):
            value = (added, opened, left, score(nodes, prices, pod, node))
            if value < best:
                best = value
                chosen = node
    return chosen
