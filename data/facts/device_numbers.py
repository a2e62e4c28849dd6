"""Numbers of GPUs, processes and nodes that a command names: with fewer of them it would fail.

Options of srun, of launchers and of servers count where they hold a number; what a variable holds
follows the job.
"""

import re
from collections.abc import Iterator

_GPUS = re.compile(
    r"(?:^|\s)(?:(?:(?:export\s+)?(?:CUDA|NVIDIA)_VISIBLE_DEVICES=[\"']?"
    r"|--gpu-bind[=\s](?:verbose,)?(?:map_gpu|mask_gpu):|--include[=\s][\w.-]+:)"
    r"(?P<listed>[\w.-]+(?:\*\d+)?(?:,[\w.-]+(?:\*\d+)?)*)"
    r"|(?:--gres[=\s](?:\S*,)?gpu(?::[\w.-]*[A-Za-z][\w.-]*)?:"
    r"|--(?:n[-_]?|num[-_]?)?gpus(?P<each>[-_]per[-_](?:node|task|socket))?[=\s](?:[\w.-]+:)?"
    r"|--(?:nproc[-_]per[-_]node|num[-_]shard|tensor[-_]parallel[-_]size|tp[-_]size"
    r"|devices)[=\s]"
    r")(?P<count>\d+)(?![\w.]))"
)
_NODES = re.compile(
    r"(?:\bsrun\b[^|;&]*?\s(?:--nodes[=\s]|-N\s*)|(?:^|\s)--nnodes[=\s])(?P<count>\d+)(?![\w.:])"
)
_SHARDS = re.compile(
    r"(?:^|[\s_-])(?:(?:num|total)[-_](?:shards|replicas)|shard[-_]count)[=\s][\"']?"
    r"(?P<count>\d+)(?![\w.])",
    re.IGNORECASE,
)

_PROCESSES = re.compile(
    r"(?:\b(?:mpirun|mpiexec(?:\.hydra)?|orterun|prterun|horovodrun)\s(?:[^|;&]*?\s)?"
    r"(?:--?np?|-c|--num-proc)[=\s]|(?:^|\s)WORLD_SIZE=[\"']?|(?:^|\s)--num[-_]processes[=\s])"
    r"(?P<count>\d+)(?![\w.])"
)


def named_gpus(line: str, *, tasks: int = 1) -> Iterator[tuple[int, str]]:
    """Return the numbers of GPUs that a line of a script or a command names, with its words.

    GPUs are counted from 0, so that GPU 3 is one of four. What is asked for a task is asked as
    often as a node has tasks.
    """
    for match in _GPUS.finditer(line):
        listed, each = match["listed"], match["each"] or ""
        if listed:
            names = [name.partition("*")[0] for name in listed.split(",")]
            places = (int(name) + 1 for name in names if name.isdecimal())
            yield max(len(names), *places, 0), match[0].strip()
        else:
            yield int(match["count"]) * (tasks if each.endswith("task") else 1), match[0].strip()


def named_processes(line: str) -> Iterator[tuple[int, str]]:
    """Return the numbers of processes of a whole job that a line starts, with its words."""
    for match in _PROCESSES.finditer(line):
        yield int(match["count"]), match[0].strip()


def named_nodes(line: str) -> Iterator[tuple[int, str]]:
    """Return the numbers of nodes that a line of a script names, with its words."""
    for match in _NODES.finditer(line):
        yield int(match["count"]), match[0].strip()


def named_shards(line: str) -> Iterator[tuple[int, str]]:
    """Return the numbers of shards among which a line divides its work, with its words."""
    for match in _SHARDS.finditer(line):
        yield int(match["count"]), match[0].strip()
