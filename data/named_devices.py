"""Numbers of GPUs and nodes that a command names: with fewer of them it would fail.

Options of srun, of launchers and of servers count where they hold a number; what a variable holds
follows the job.
"""

import re
from collections.abc import Iterator

_GPUS = re.compile(
    r"(?:^|\s)(?:(?:(?:export\s+)?(?:CUDA|NVIDIA)_VISIBLE_DEVICES=|--gpu-bind[=\s](?:verbose,)?"
    r"(?:map_gpu|mask_gpu):)(?P<listed>\w+(?:\*\d+)?(?:,\w+(?:\*\d+)?)+)"
    r"|(?:--gres[=\s](?:\S*,)?gpu(?::[\w.-]*[A-Za-z][\w.-]*)?:"
    r"|--(?:n[-_]?|num[-_]?)?gpus(?:[-_]per[-_](?:node|task|socket))?[=\s](?:[\w.-]+:)?"
    r"|--(?:nproc[-_]per[-_]node|num[-_]processes|num[-_]shard|tensor[-_]parallel[-_]size|tp[-_]size"
    r"|devices)[=\s]"
    r")(?P<count>\d+)(?![\w.]))"
)
_NODES = re.compile(
    r"(?:\bsrun\b[^|;&]*?\s(?:--nodes[=\s]|-N\s*)|\s--nnodes[=\s])(?P<count>\d+)(?![\w.:])"
)


def named_gpus(line: str) -> Iterator[tuple[int, str]]:
    """Return the numbers of GPUs that a line of a script or a command names, with its words."""
    for found in _GPUS.finditer(line):
        listed = found["listed"]
        yield listed.count(",") + 1 if listed else int(found["count"]), found[0].strip()


def named_nodes(line: str) -> Iterator[tuple[int, str]]:
    """Return the numbers of nodes that a line of a script names, with its words."""
    for found in _NODES.finditer(line):
        yield int(found["count"]), found[0].strip()
