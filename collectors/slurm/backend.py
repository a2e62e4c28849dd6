"""Interface of both ways to ask Slurm: jobs, nodes and the past, and unreadable records."""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from collectors.shared.unread import UnreadAccelerators
from collectors.slurm.records import Record, SlurmJob, SlurmNode, read_node, read_queue_job
from collectors.slurm.unread import unread_gres
from collectors.slurm.values import number_of
from data.base.errors import UnexpectedAnswerError
from data.facts.quotas import Quota

Read = TypeVar("Read")
Given = TypeVar("Given")


@dataclass(frozen=True, slots=True, kw_only=True)
class SlurmAnswers:
    """The answers of Slurm for a window; `past` is None without accounting.

    `quotas` are the limits that are enforced now, None where Slurm does not tell.
    """

    queue: tuple[SlurmJob, ...]
    nodes: tuple[SlurmNode, ...]
    past: tuple[SlurmJob, ...] | None
    warnings: tuple[str, ...]
    dropped: Counter[str]
    quotas: tuple[Quota, ...] | None = None
    unread: UnreadAccelerators = field(default_factory=lambda: unread_gres((), ()))


def read_each(
    records: Iterable[Given],
    read: Callable[[Given], Read],
    *,
    what: str,
    dropped: Counter[str],
) -> tuple[Read, ...]:
    """Read every record, count those that cannot be read as `unreadable-…`.

    Errors: UnexpectedAnswerError when there are records and none can be read.
    """
    results: list[Read] = []
    failed = 0
    for record in records:
        try:
            results.append(read(record))
        except (KeyError, ValueError, TypeError, AttributeError):
            failed += 1
    if failed and not results:
        raise UnexpectedAnswerError(
            f"none of the {failed} {what}s that Slurm answered can be read",
            "A release that is not known here? Read: 22.05 to 25.05. Please report it.",
        )
    if failed:
        dropped[f"unreadable-{what}"] += failed
    return tuple(results)


def read_queue(
    records: Iterable[Record], dropped: Counter[str], *, release: tuple[int, int] = (0, 0)
) -> tuple[SlurmJob, ...]:
    """Read the jobs that the controller remembers; `release` is Slurm's, (0, 0) when not known."""
    read = partial(read_queue_job, release=release)
    return read_each(records, read, what="job", dropped=dropped)


def read_nodes(records: Iterable[Record], dropped: Counter[str]) -> tuple[SlurmNode, ...]:
    """Read the nodes. Those whose GPUs in use are not understood are counted."""
    nodes = read_each(records, read_node, what="node", dropped=dropped)
    unknown = [node for node in nodes if node.gpus and node.gpus_in_use is None]
    dropped.update(["unknown-gpus-in-use"] * len(unknown))
    return nodes


def list_in(document: object, key: str, *, source: str) -> list[Record]:
    """Return a document's list of records. Errors: UnexpectedAnswerError when it holds none."""
    entries = document.get(key) if isinstance(document, dict) else None
    if not isinstance(entries, list):
        raise UnexpectedAnswerError(
            f"{source} answered JSON without a list of {key}", "Is this the answer of a Slurm?"
        )
    return [entry for entry in entries if isinstance(entry, dict)]


def errors_in(document: object) -> list[str]:
    """Return the errors that an answer lists, with their numbers.

    `Nothing found` (9003) is how 22.05 says that a list is empty.
    """
    entries = document.get("errors") if isinstance(document, dict) else None
    return [
        ": ".join(str(entry[key]) for key in ("description", "error") if entry.get(key))
        + f" ({entry.get('error_number')})"
        for entry in (entries if isinstance(entries, list) else [])
        if isinstance(entry, dict) and entry.get("error_number") != _NO_RECORDS
    ]


_NO_RECORDS = 9003


def release_in(document: object) -> tuple[int, int]:
    """Return (22, 5) from the meta part of an answer, (0, 0) when it does not say."""
    meta = document.get("meta") if isinstance(document, dict) else None
    slurm = (meta.get("Slurm") or meta.get("slurm")) if isinstance(meta, dict) else None
    version = slurm.get("version") if isinstance(slurm, dict) else None
    if not isinstance(version, dict):
        return (0, 0)
    major, minor = number_of(version.get("major")), number_of(version.get("minor"))
    return (int(major or 0), int(minor or 0))
