"""Accelerators that a scheduler tells of and Trimtab does not read, counted by name."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from data.base.counts import count_text
from data.base.errors import scrub
from data.facts.gpu_resources import NOT_READ

_SHOWN = 3
"""Names of nodes and holders that a text names at most."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadAccelerators:
    """Accelerators that are not read, by resource or driver: their nodes, and their requesters.

    `noun` is what the scheduler calls these. `whole_ratio` is the share of nodes with accelerators
    of which all are read.
    """

    noun: str
    nodes: Mapping[str, tuple[str, ...]]
    holders: Mapping[str, tuple[str, ...]]
    whole_ratio: float

    @classmethod
    def of(
        cls,
        noun: str,
        *,
        nodes: Iterable[tuple[str, str]],
        holders: Iterable[tuple[str, str]],
        readable: Iterable[str],
    ) -> "UnreadAccelerators":
        """Return them from pairs of name and holder; `readable` are nodes with boards we read."""
        by_name = grouped(nodes)
        unknown = {node for names in by_name.values() for node in names}
        readable_count = sum(node not in unknown for node in readable)
        ratio = readable_count / (readable_count + len(unknown)) if unknown else 1.0
        return cls(noun=noun, nodes=by_name, holders=grouped(holders), whole_ratio=ratio)

    @property
    def texts(self) -> tuple[str, ...]:
        """A sentence for each name."""
        return tuple(
            " and ".join(filter(None, (held_by("node", nodes), held_by(self.noun, holders))))
            + f" {'holds' if len(nodes) + len(holders) == 1 else 'hold'} {scrub(name, limit=80)}, "
            f"which is {NOT_READ}"
            for name in sorted({*self.nodes, *self.holders})
            for nodes, holders in [(self.nodes.get(name, ()), self.holders.get(name, ()))]
        )

    def reason(self, *, nothing_else: bool) -> str:
        """Return a report's sentence on it; `nothing_else`: nor does anything else ask for GPUs."""
        return (
            "; ".join(self.texts)
            or f"no node offers and no {self.noun} asks for GPUs" * nothing_else
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
