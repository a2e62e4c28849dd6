"""Proves that the record is whole: the chain, the rows it covers, what was decided on. Pure."""

from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

from data.facts.identifiers import digest_of_text
from data.store.engine.dialects import as_utc
from data.store.record.audit_chain import (
    OldDecision,
    chain_problems,
    coverage_problems,
    head_problems,
    old_decision_problems,
)
from data.store.record.ledger import audit_entry, row_digest

Rows = Sequence[Mapping[str, Any]]


def record_problems(
    audit: Rows, covered: Mapping[str, Rows], recommendations: Mapping[str, str], *, head: str = ""
) -> tuple[str, ...]:
    """Name every row that was edited, removed, added or moved; nothing when all is as written.

    `audit` and `covered` (table name to rows) are in the order of their sequence;
    `recommendations` maps a digest to the text kept under it. `head`: a hash noted down before.
    """
    entries = [audit_entry(SimpleNamespace(**row)) for row in audit]
    digests, doubled = {}, []
    for table, rows in covered.items():
        for row in rows:
            name = f"{table}:{row['sequence']}"
            if row["entry"] or table != "decisions":
                if name in digests:
                    doubled.append(f"row {name} is there twice")
                digests[name] = row_digest(dict(row))
    return (
        *chain_problems(entries),
        *doubled,
        *coverage_problems(entries, digests),
        *old_decision_problems(entries, _old_decisions(covered["decisions"])),
        *_changed(recommendations, _decided_on(covered)),
        *head_problems(entries, head),
    )


def _decided_on(covered: Mapping[str, Rows]) -> set[str]:
    """Return the recommendations that a row speaks of; entries of submissions name other things."""
    return {str(row["digest"]) for rows in covered.values() for row in rows if row.get("digest")}


def _old_decisions(rows: Rows) -> list[OldDecision]:
    return [
        (
            as_utc(row["decided_at"]),
            row["decided_by"],
            row["decision"],
            row["digest"],
            row["remark"],
        )
        for row in rows
        if not row["entry"]
    ]


def _changed(recommendations: Mapping[str, str], decided: set[str]) -> list[str]:
    """Compare what was decided on with its digest, which is that of the text as kept."""
    problems = []
    for digest in sorted(decided):
        text = recommendations.get(digest)
        if text is None:
            problems.append(f"recommendation {digest} was removed")
        elif digest_of_text(text) != digest:
            problems.append(f"recommendation {digest} was edited")
    return problems
