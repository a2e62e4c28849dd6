"""Nodes from counts: fewest nodes for every job, whole nodes first, no move in vain."""

from collections.abc import Mapping

from data.base.errors import ImpossibleProblemError

Nodes = tuple[int, ...]
"""The node of every GPU, ascending."""


def map_to_nodes(
    counts: Mapping[str, int], present: Mapping[str, Nodes], room: Mapping[int, int]
) -> dict[str, Nodes]:
    """Return the nodes of every job of one GPU type.

    `counts` are GPUs by job, `present` the nodes of those that keep their count, `room` the GPUs of
    every node. Jobs stay where they are; only when the others do not fit beside them on fewest
    nodes do the smallest move. Errors: ImpossibleProblemError when more is wanted than there is.
    """
    if sum(counts.values()) > sum(room.values()):
        raise ImpossibleProblemError(
            f"{sum(counts.values())} GPUs for {len(counts)} jobs on nodes with "
            f"{sum(room.values())}",
            "solve the round again for these nodes",
        )
    staying = sorted(
        (job for job, nodes in present.items() if len(nodes) == counts.get(job, 0)),
        key=lambda job: (counts[job], job),
    )
    for moved in range(len(staying) + 1):
        staying_nodes = {job: present[job] for job in staying[moved:]}
        placed = _around(counts, staying_nodes, room)
        if placed is not None:
            return placed
    return _spread(counts, room)


def _around(
    counts: Mapping[str, int], fixed: Mapping[str, Nodes], room: Mapping[int, int]
) -> dict[str, Nodes] | None:
    """Place the others around the fixed ones, each on its fewest nodes; None if one has no room."""
    free = dict(room)
    for nodes in fixed.values():
        for node in nodes:
            free[node] = free.get(node, 0) - 1
    if any(gpus < 0 for gpus in free.values()):
        return None
    placed = dict(fixed)
    for job in _largest_first(counts):
        if job not in placed:
            places = _fewest_nodes(counts[job], free, room)
            if places is None:
                return None
            placed[job] = places
    return placed


def _largest_first(counts: Mapping[str, int]) -> list[str]:
    return sorted(counts, key=lambda job: (-counts[job], job))


def _fewest_nodes(gpus: int, free: dict[int, int], room: Mapping[int, int]) -> Nodes | None:
    """Take whole nodes, then the fullest node that holds the rest; None when it takes more."""
    per_node = max(room.values())
    nodes: list[int] = []
    full = [node for node, idle in free.items() if idle == per_node]
    if gpus // per_node > len(full):
        return None
    for node in full[: gpus // per_node]:
        nodes += [node] * per_node
    rest = gpus % per_node
    if rest:
        fitting = [node for node, idle in free.items() if idle >= rest and node not in nodes]
        if not fitting:
            return None
        nodes += [min(fitting, key=lambda node: (free[node], node))] * rest
    for node in nodes:
        free[node] -= 1
    return tuple(sorted(nodes))


def _spread(counts: Mapping[str, int], room: Mapping[int, int]) -> dict[str, Nodes]:
    """Place by size where nodes are uneven and no compact placement exists: emptiest node first."""
    free = dict(room)
    placed = {}
    for job in _largest_first(counts):
        nodes: list[int] = []
        while len(nodes) < counts[job]:
            node = max(free, key=lambda entry: (free[entry], -entry))
            count = min(free[node], counts[job] - len(nodes))
            nodes += [node] * count
            free[node] -= count
        placed[job] = tuple(sorted(nodes))
    return placed
