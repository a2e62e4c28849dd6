"""Selectors that every list has: cluster, namespace, owner, model, node, since, and an order."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, TypeVar

from pydantic import Field

from dashboard.common.request_times import Moment
from dashboard.resources.resource import NoQuery
from data.base.errors import BadRangeError
from data.base.rows import columns_of
from data.facts.cluster_names import MAIN_CLUSTER, cluster_in
from data.facts.jobs import Job

Entry = TypeVar("Entry")
Word = Annotated[str, Field(max_length=200)]
_COLUMNS = {"namespace": "namespace", "owner": "owner", "model": "gpu_model", "node": "node"}
_CLUSTER_COLUMNS = ("job_id", "job", "node", "name", "source", "rack")
"""Columns whose text names the cluster, the first that a row has."""
_JOB = ("job_id", "job")
_TIMES = (
    "last_seen_at", "seen_at", "at", "submitted_at", "window_end", "read_until", "applied_at",
    "observed_at",
)  # fmt: skip


class Selection(NoQuery):
    """Rows that are asked for, by exact names, and the column that orders them."""

    cluster: Annotated[Word, Field(description=f"'{MAIN_CLUSTER}' is the store's own")] = ""
    namespace: Word = ""
    owner: Word = ""
    model: Annotated[Word, Field(description="GPU model")] = ""
    node: Word = ""
    since: Annotated[Moment | None, Field(description="seen or told of since then")] = None
    sort: Annotated[Word, Field(description="a column; -COLUMN is the largest first")] = ""

    def wishes(self) -> dict[str, str]:
        """Return the names that are asked for."""
        names = ("cluster", *_COLUMNS)
        return {name: value for name in names if (value := getattr(self, name))}


def selected(
    entries: Iterable[tuple[tuple[Any, ...], Entry]],
    selection: Selection,
    *,
    kind: type[Any],
    row_of: Callable[[Entry], Any],
    jobs_of: Callable[[Sequence[str]], Mapping[str, Job]],
    columns: Mapping[str, str],
) -> list[tuple[tuple[Any, ...], Entry]]:
    """Return the entries behind their keys whose rows are asked for, in order.

    `columns` names those of a selector where they are called otherwise; what a row does not say of
    itself is said by its job. Errors: BadRangeError for what rows of the kind do not have.
    """
    ordered = sorted(entries, key=lambda pair: pair[0])
    if selection == Selection():
        return ordered
    has, wishes, column_of = columns_of(kind), selection.wishes(), {**_COLUMNS, **columns}
    job_column = next((name for name in _JOB if name in has), "")
    for name in wishes:
        sources = _CLUSTER_COLUMNS if name == "cluster" else (column_of[name],)
        if not (job_column or {*sources, name} & {*has}):
            raise _not_of(f"the selector {name}", has)
    time = next((name for name in _TIMES if name in has), "")
    since = selection.since
    if since is not None and not time:
        raise _not_of("the selector since", has)
    rows = [(key, entry, row_of(entry)) for key, entry in ordered]
    needs_jobs = job_column and any(column_of.get(name) not in has for name in wishes)
    names = [getattr(row, job_column) for *_pair, row in rows] if needs_jobs else []
    jobs = jobs_of([name for name in dict.fromkeys(names) if name])
    matches = [
        (key, entry, row)
        for key, entry, row in rows
        if all(
            value in _values(row, name, column_of, jobs.get(getattr(row, job_column, "")))
            for name, value in wishes.items()
        )
        and (since is None or ((at := getattr(row, time, None)) is not None and at >= since))
    ]
    if not selection.sort:
        return [(key, entry) for key, entry, _row in matches]
    column = selection.sort.removeprefix("-")
    if column not in has:
        raise _not_of(f"the column {column[:50]!a} of sort", has)
    falls = selection.sort.startswith("-")
    keyed = [
        ((*_sort_key(getattr(row, column), falls), *key), entry) for key, entry, row in matches
    ]
    return sorted(keyed, key=lambda pair: pair[0])


def _not_of(what: str, columns: Sequence[str]) -> BadRangeError:
    return BadRangeError(f"this list lacks {what}", f"Its columns: {', '.join(columns)}.")


def _values(row: object, name: str, column_of: Mapping[str, str], job: Job | None) -> set[str]:
    """Return the names of a row for a selector; none where nothing tells."""
    if name == "cluster":
        text = next((value for part in _CLUSTER_COLUMNS if (value := getattr(row, part, None))), "")
        return {getattr(row, "cluster", None) or cluster_in(str(text)) or MAIN_CLUSTER}
    value = getattr(row, column_of[name], None)
    if value is not None:
        return {str(value)}
    if job is None:
        return set()
    of_job = {"namespace": job.namespace, "owner": job.owner, "model": job.gpu_model}
    return {*job.scheduling.nodes} if name == "node" else {of_job[name]}


def _sort_key(value: object, falls: bool) -> tuple[int, float, str | list[int]]:
    """Return a key of numbers, texts and lists of numbers, which a cursor can carry.

    Unknown comes last either way.
    """
    if value is None:
        return 1, 0.0, [] if falls else ""
    if isinstance(value, datetime):
        value = value.timestamp()
    if isinstance(value, int | float):
        return 0, -float(value) if falls else float(value), [] if falls else ""
    text = str(value)
    return 0, 0.0, [*(-ord(letter) for letter in text), 1] if falls else text
