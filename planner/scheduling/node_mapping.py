"""From counts to nodes: fewest nodes for every job, full nodes kept whole, nobody moved in vain."""

from collections.abc import Mapping

from data.base.errors import ImpossibleProblemError

Nodes = tuple[int, ...]
"""The node of every GPU, ascending."""


def map_to_nodes(
    wanted: Mapping[str, int], held: Mapping[str, Nodes], room: Mapping[int, int]
) -> dict[str, Nodes]:
    """Return the nodes of every job of one GPU type.

    `wanted` are GPUs by job, `held` the nodes of those that keep their count, `room` the GPUs of
    every node. Jobs stay where they are; only when the others do not fit beside them on fewest
    nodes do the smallest move. Errors: ImpossibleProblemError when more is wanted than there is.
    """
    if sum(wanted.values()) > sum(room.values()):
        raise ImpossibleProblemError(
            f"{sum(wanted.values())} GPUs for {len(wanted)} jobs on nodes with "
            f"{sum(room.values())}",
            "solve the round again for these nodes",
        )
    staying = sorted(
        (job for job, nodes in held.items() if len(nodes) == wanted.get(job, 0)),
        key=lambda job: (wanted[job], job),
    )
    for moved in range(len(staying) + 1):
        kept = {job: held[job] for job in staying[moved:]}
        found = _around(wanted, kept, room)
        if found is not None:
            return found
    return _spread(wanted, room)


def _around(
    wanted: Mapping[str, int], kept: Mapping[str, Nodes], room: Mapping[int, int]
) -> dict[str, Nodes] | None:
    """Place the others around the kept ones, each on its fewest nodes; None if one fits not."""
    free = dict(room)
    for nodes in kept.values():
        for node in nodes:
            free[node] = free.get(node, 0) - 1
    if any(left < 0 for left in free.values()):
        return None
    placed = dict(kept)
    for job in _largest_first(wanted):
        if job not in placed:
            found = _fewest_nodes(wanted[job], free, room)
            if found is None:
                return None
            placed[job] = found
    return placed


def _largest_first(wanted: Mapping[str, int]) -> list[str]:
    return sorted(wanted, key=lambda job: (-wanted[job], job))


def _fewest_nodes(gpus: int, free: dict[int, int], room: Mapping[int, int]) -> Nodes | None:
    """Take whole nodes, then the fullest node that holds the rest; None when it takes more."""
    per_node = max(room.values())
    taken: list[int] = []
    whole = [node for node, left in free.items() if left == per_node]
    if gpus // per_node > len(whole):
        return None
    for node in whole[: gpus // per_node]:
        taken += [node] * per_node
    rest = gpus % per_node
    if rest:
        fitting = [node for node, left in free.items() if left >= rest and node not in taken]
        if not fitting:
            return None
        taken += [min(fitting, key=lambda node: (free[node], node))] * rest
    for node in taken:
        free[node] -= 1
    return tuple(sorted(taken))


def _spread(wanted: Mapping[str, int], room: Mapping[int, int]) -> dict[str, Nodes]:
    """Place by size where nodes are uneven and no compact placement exists: emptiest node first."""
    free = dict(room)
    placed = {}
    for job in _largest_first(wanted):
        taken: list[int] = []
        while len(taken) < wanted[job]:
            node = max(free, key=lambda entry: (free[entry], -entry))
            count = min(free[node], wanted[job] - len(taken))
            taken += [node] * count
            free[node] -= count
        placed[job] = tuple(sorted(taken))
    return placed
