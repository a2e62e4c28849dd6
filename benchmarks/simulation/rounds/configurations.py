"""The sizes in which GPUs are handed out: powers of two inside a node, then whole nodes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from data.base.errors import ImpossibleProblemError

Ints = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Configurations:
    """Arrays over configurations [C]: index of the GPU type, nodes, GPUs; types ascending.

    `known` gives the configuration of (GPU type, GPUs).

    Sizes follow Sia (Jayaram Subramanya et al., SOSP 2023, section 3.3): with powers of two that
    divide a node and whole nodes, any set of jobs that fits by count also fits on nodes.
    """

    gpu_types: tuple[str, ...]
    kind: Ints
    nodes: Ints
    gpus: Ints
    capacity: Ints
    positions: Mapping[tuple[str, int], int]

    def index(self, gpu_type: str, gpus: int) -> int | None:
        """Return the configuration of so many GPUs of a type, None where there is none."""
        return self.positions.get((gpu_type, gpus))


def configurations(
    node_gpus: Mapping[str, Sequence[int]], *, most_nodes: int = 16
) -> Configurations:
    """Return the configurations of a cluster: GPUs of every node by GPU type.

    No job takes more than `most_nodes` nodes. A node with fewer GPUs than the largest of its type
    counts for what it has. Errors: ImpossibleProblemError without any GPU.
    """
    types = tuple(node_gpus)
    kind: list[int] = []
    nodes: list[int] = []
    gpus: list[int] = []
    per_node = [max(node_gpus[name], default=0) for name in types]
    for index, name in enumerate(types):
        for count, spread in _sizes(node_gpus[name], per_node[index], most_nodes):
            kind.append(index)
            nodes.append(spread)
            gpus.append(count)
    if not gpus:
        raise ImpossibleProblemError("a cluster without a GPU", "name at least one node with GPUs")
    return Configurations(
        gpu_types=types,
        kind=np.array(kind, dtype=np.int64),
        nodes=np.array(nodes, dtype=np.int64),
        gpus=np.array(gpus, dtype=np.int64),
        capacity=np.array([sum(node_gpus[name]) for name in types], dtype=np.int64),
        positions={
            (types[of], count): row for row, (of, count) in enumerate(zip(kind, gpus, strict=True))
        },
    )


def _sizes(nodes: Sequence[int], per_node: int, most_nodes: int) -> list[tuple[int, int]]:
    """Return (GPUs, nodes) of the sizes of one type."""
    if per_node < 1:
        return []
    inside = [1 << power for power in range(per_node.bit_length()) if 1 << power < per_node]
    full = sum(1 for gpus in nodes if gpus == per_node)
    return [(size, 1) for size in inside] + [
        (count * per_node, count) for count in range(1, min(full, most_nodes) + 1)
    ]
