"""Accelerators of a Slurm cluster that are not read: gres of unknown names."""

import re
from collections.abc import Collection, Iterator

from collectors.shared.unread import UnreadAccelerators
from collectors.slurm.records import Record
from collectors.slurm.values import gpus_of, identifier_of, job_state_of, text_of, words_of
from data.facts.gpu_resources import is_accelerator
from data.facts.jobs import ENDED_STATES

_READ = frozenset({"gpu", "shard", "mps"})
_REQUEST_FIELDS = (
    "tres_per_node",
    "tres_per_job",
    "tres_per_task",
    "tres_per_socket",
    "tres_req_str",
)
_END_OF_NAME = re.compile(r"[:=(]")


def unread_gres(nodes: Collection[Record], jobs: Collection[Record]) -> UnreadAccelerators:
    """Return the gres of nodes, and of jobs that are not over, that no reader understands."""
    return UnreadAccelerators.of(
        nodes=_of_nodes(nodes),
        holders={"job": _of_jobs(jobs)},
        readable=(text_of(node.get("name")) for node in nodes if gpus_of(node.get("gres"))),
    )


def _of_nodes(nodes: Collection[Record]) -> Iterator[tuple[str, str]]:
    for node in nodes:
        for name in _unread_in(node.get("gres")):
            yield name, text_of(node.get("name"))


def _of_jobs(jobs: Collection[Record]) -> Iterator[tuple[str, str]]:
    for job in jobs:
        if job_state_of(words_of(job.get("job_state"))) not in ENDED_STATES:
            for field in _REQUEST_FIELDS:
                for name in _unread_in(job.get(field)):
                    yield name, identifier_of(job.get("job_id"))


def _unread_in(gres: object) -> Iterator[str]:
    """Yield the names in `npu:ascend:8(S:0-1)`, `gres:npu:2` or `cpu=2,gres/npu=8`."""
    for part in text_of(gres).split(","):
        entry = part.strip().removeprefix("gres/").removeprefix("gres:")
        name = _END_OF_NAME.split(entry, maxsplit=1)[0]
        if name not in _READ and is_accelerator(f"gres/{name}"):
            yield f"gres/{name}"
