"""The hash chain of the append-only record: any edited, removed or moved row breaks it.

Each entry covers the one before and, through `row_digest`, one row of another table.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from data.facts.identifiers import digest_of
from data.records.commands import AuditEntry

GENESIS = "0" * 64


def _hash_of(entry: AuditEntry) -> str:
    covered = [entry.covers, entry.row_digest] if entry.covers or entry.row_digest else []
    return digest_of(
        [
            entry.sequence,
            entry.at,
            entry.actor,
            entry.event,
            entry.digest,
            entry.detail,
            entry.previous_hash,
            *covered,
        ]
    )


def next_entry(
    previous: AuditEntry | None,
    *,
    at: datetime,
    actor: str,
    event: str,
    digest: str,
    detail: str,
    covers: str = "",
    row_digest: str = "",
) -> AuditEntry:
    """Return the entry that follows `previous`."""
    entry = AuditEntry(
        sequence=1 if previous is None else previous.sequence + 1,
        at=at,
        actor=actor,
        event=event,
        digest=digest,
        detail=detail,
        previous_hash=GENESIS if previous is None else previous.entry_hash,
        entry_hash="",
        covers=covers,
        row_digest=row_digest,
    )
    return replace(entry, entry_hash=_hash_of(entry))


def chain_problems(entries: Sequence[AuditEntry]) -> Iterator[str]:
    """Name every break of the chain itself."""
    previous = GENESIS
    for position, entry in enumerate(entries, start=1):
        if entry.sequence != position:
            yield f"entry {position} is missing or moved: found number {entry.sequence}"
        if entry.previous_hash != previous:
            yield f"entry {entry.sequence} does not follow the entry before it"
        if entry.entry_hash != _hash_of(entry):
            yield f"entry {entry.sequence} was edited"
        previous = entry.entry_hash


def coverage_problems(entries: Sequence[AuditEntry], rows: Mapping[str, str]) -> Iterator[str]:
    """Name every covered row that was edited, removed or added; `rows` maps its name to its digest.

    A row is named `table:sequence`.
    """
    covered = Counter(entry.covers for entry in entries if entry.covers)
    for entry in entries:
        if not entry.covers:
            continue
        if entry.covers not in rows:
            yield f"row {entry.covers} of entry {entry.sequence} was removed"
        elif rows[entry.covers] != entry.row_digest:
            yield f"row {entry.covers} of entry {entry.sequence} was edited"
    for name in rows:
        if covered[name] != 1:
            yield f"row {name} is covered by {covered[name]} entries instead of one"


def head_problems(entries: Sequence[AuditEntry], head: str) -> Iterator[str]:
    """Yield a problem when the entry whose hash was noted down before is no longer in the chain."""
    digest = head.strip().lower()
    if digest and all(entry.entry_hash != digest for entry in entries):
        yield (
            f"no entry has the noted hash {digest[:80]!r}: the end of the record was cut off, the "
            "record was replaced, or the store is an older backup"
        )
