"""The hash chain of the append-only record: any edited, removed or moved row breaks it."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from data.records.decisions import AuditEntry
from data.records.identifiers import digest_of

GENESIS = "0" * 64


def _hash_of(entry: AuditEntry) -> str:
    return digest_of(
        [
            entry.sequence,
            entry.at,
            entry.actor,
            entry.event,
            entry.digest,
            entry.detail,
            entry.previous_hash,
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
) -> AuditEntry:
    """Give the entry that follows `previous`."""
    entry = AuditEntry(
        sequence=1 if previous is None else previous.sequence + 1,
        at=at,
        actor=actor,
        event=event,
        digest=digest,
        detail=detail,
        previous_hash=GENESIS if previous is None else previous.entry_hash,
        entry_hash="",
    )
    return replace(entry, entry_hash=_hash_of(entry))


def chain_problems(entries: Sequence[AuditEntry], decisions: int) -> tuple[str, ...]:
    """Name every break of the chain; `decisions` is the number of decision rows it must cover."""
    problems = []
    previous = GENESIS
    for position, entry in enumerate(entries, start=1):
        if entry.sequence != position:
            problems.append(f"entry {position} is missing or moved: found number {entry.sequence}")
        if entry.previous_hash != previous:
            problems.append(f"entry {entry.sequence} does not follow the entry before it")
        if entry.entry_hash != _hash_of(entry):
            problems.append(f"entry {entry.sequence} was edited")
        previous = entry.entry_hash
    if len(entries) < decisions:
        problems.append(f"{decisions} decisions are recorded but only {len(entries)} entries")
    return tuple(problems)
