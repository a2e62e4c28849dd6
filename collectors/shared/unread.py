"""Accelerators that a scheduler tells of and Trimtab does not read, counted by name."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from data.base.counts import count_text
from data.base.errors import scrub
from data.facts.gpu_resources import UNREAD_SUFFIX

_SHOWN = 3
"""Names of nodes and holders that a text names at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadAccelerators:
    """Accelerators that are not read, by resource or driver: their nodes, and their requesters.

    `holders` are names by what holds or asks for them, the scheduler's word for a job first.
    `whole_ratio` is the share of nodes with accelerators of which all are read.
    """

    nodes: Mapping[str, tuple[str, ...]]
    holders: Mapping[str, Mapping[str, tuple[str, ...]]]
    whole_ratio: float

    @classmethod
    def of(
        cls,
        *,
        nodes: Iterable[tuple[str, str]],
        holders: Mapping[str, Iterable[tuple[str, str]]],
        readable: Iterable[str],
    ) -> "UnreadAccelerators":
        """Return them from pairs of name and holder; `readable` are nodes with boards we read."""
        by_name = grouped(nodes)
        unknown = {node for names in by_name.values() for node in names}
        readable_count = sum(node not in unknown for node in readable)
        ratio = readable_count / (readable_count + len(unknown)) if unknown else 1.0
        by_noun = {noun: grouped(pairs) for noun, pairs in holders.items()}
        return cls(nodes=by_name, holders=by_noun, whole_ratio=ratio)

    @property
    def texts(self) -> tuple[str, ...]:
        """A sentence for each name."""
        all_holders = {"node": self.nodes, **self.holders}
        lines = []
        for name in sorted({name for names in all_holders.values() for name in names}):
            holders = {noun: names.get(name, ()) for noun, names in all_holders.items()}
            parts = " and ".join(filter(None, (held_by(*entry) for entry in holders.items())))
            verb = "holds" if sum(map(len, holders.values())) == 1 else "hold"
            lines.append(f"{parts} {verb} {scrub(name, limit=80)}, which is {UNREAD_SUFFIX}")
        return tuple(lines)

    def reason(self, *, nothing_else: bool) -> str:
        """Return a report's sentence on it; `nothing_else`: nor does anything else ask for GPUs."""
        return (
            "; ".join(self.texts)
            or f"no node offers and no {next(iter(self.holders))} asks for GPUs" * nothing_else
        )


def grouped(pairs: Iterable[tuple[str, str]]) -> dict[str, tuple[str, ...]]:
    """Return the holders of each name, each once."""
    by_name: dict[str, set[str]] = {}
    for name, holder in pairs:
        by_name.setdefault(name, set()).add(holder)
    return {name: tuple(sorted(holders)) for name, holders in by_name.items()}


def held_by(noun: str, names: Iterable[str]) -> str:
    """Return the number of names, with the first of them, '' of none."""
    names = tuple(names)
    if not names:
        return ""
    more = f" and {len(names) - _SHOWN} more" * (len(names) > _SHOWN)
    first = ", ".join(scrub(name, limit=80) for name in names[:_SHOWN])
    return f"{count_text(len(names), noun)} ({first}{more})"
