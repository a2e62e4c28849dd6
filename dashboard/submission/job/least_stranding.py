"""The nodes of a job, chosen so that the GPUs that others could still use are stranded least.

A GPU is stranded that is left without the CPU that a GPU of these nodes typically comes with.
Gradient descent on fragmentation is the idea of FGD (Weng et al., USENIX ATC 2023); this score is
our own, and closed: `benchmarks/_fragmentation.py` has it for shares and lists of models too.
"""

from collections.abc import Sequence

import numpy as np

from dashboard.submission.job.fleet import SubmissionNode

_MILLI = 1000


def least_stranding(
    nodes: Sequence[SubmissionNode], count: int, *, gpus: int, cpus: int
) -> tuple[str, ...]:
    """Return the names of `count` nodes for as many shares of a job, () when fewer have room.

    A share takes `gpus` and `cpus`. Of nodes that strand alike the fullest come first. A node with
    some GPUs held has lost as much of its CPU, but never so much that a share fits no more.
    """
    ordered = sorted(nodes, key=lambda node: (node.free_gpus, node.name))
    free = np.array([node.free_gpus for node in ordered], dtype=np.int64)
    share = free / np.array([node.gpus for node in ordered])
    room = np.array([(node.cpus or 10**6) * _MILLI for node in ordered]) * share
    cpu = np.maximum(room, cpus * _MILLI).astype(np.int64)
    with_each = [(node.cpus or node.gpus) * _MILLI // node.gpus for node in ordered]
    kappa = max(sum(with_each) / (_MILLI * len(ordered)), 1e-9)  # milli-CPU per milli-GPU
    before = np.maximum(0.0, _MILLI * free - cpu / kappa)
    after = np.maximum(0.0, _MILLI * (free - gpus) - (cpu - cpus * _MILLI) / kappa)
    order = np.argsort(after - before, kind="stable")
    names = [ordered[number].name for number in order if free[number] >= gpus]
    return tuple(names[:count]) if len(names) >= count else ()
