"""Mutations that cosmic-ray lacks: of SQL inside strings, and of names that have an opposite."""

import re
from collections.abc import Iterator

from cosmic_ray.operators.operator import Example, Operator
from parso.tree import NodeOrLeaf

OPPOSITES = {
    "max": "min",
    "min": "max",
    "any": "all",
    "all": "any",
    "maximum": "minimum",
    "minimum": "maximum",
    "floor": "ceil",
    "ceil": "floor",
    "low": "high",
    "high": "low",
}
SQL = (
    (r"<=", "<"),
    (r"(?<![<>])>=", ">"),
    (r"(?<=\s)<(?=\s)", "<="),
    (r"(?<=\s)>(?=\s)", ">="),
    (r"(?<=\s)=(?=\s)", "<>"),
    (r"\bAND\b", "OR"),
    (r"\bLEFT JOIN\b", "JOIN"),
    (r"\bANTI JOIN\b", "SEMI JOIN"),
    (r"\bmax\(", "min("),
    (r"\bsum\(", "max("),
    (r"\bleast\(", "greatest("),
    (r"\bgreatest\(", "least("),
    (r"\blag\(", "lead("),
    (r"\blead\(", "lag("),
    (r"\bfloor\(", "ceil("),
    (r"(?<=\s)\+(?=\s)", "-"),
    (r"(?<=\s)-(?=\s)", "+"),
    (r"(?<=\s)\*(?=\s)", "/"),
    (r"(?<=\s)/(?=\s)", "*"),
    (r" / holders\b", ""),
    (r"\b0\b", "1"),
    (r"\b1\b", "0"),
    (r"\btrue\b", "false"),
    (r"\bfalse\b", "true"),
)


class SwapOpposite(Operator):
    """Replaces a called function or a read attribute by its opposite."""

    def mutation_positions(self, node: NodeOrLeaf) -> Iterator[tuple[object, object]]:
        """Yield the place of a name that has an opposite and is called or read from something."""
        if node.type != "name" or node.value not in OPPOSITES:
            return
        before, after = node.get_previous_leaf(), node.get_next_leaf()
        called = after is not None and after.value == "("
        read = node.value in ("low", "high") and before is not None and before.value == "."
        if (called and not (before is not None and before.value == "def")) or read:
            yield node.start_pos, node.end_pos

    def mutate(self, node: NodeOrLeaf, index: int) -> NodeOrLeaf:
        """Return the opposite."""
        node.value = OPPOSITES[node.value]
        return node

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Return what it does."""
        return (Example("max(x)", "min(x)"),)


class MutateSql(Operator):
    """Replaces one token of SQL in a string."""

    def mutation_positions(self, node: NodeOrLeaf) -> Iterator[tuple[object, object]]:
        """Yield the string's place once for each token that has a replacement."""
        for _place in self._places(node):
            yield node.start_pos, node.end_pos

    def mutate(self, node: NodeOrLeaf, index: int) -> NodeOrLeaf:
        """Replace the token of that number."""
        start, end, text = list(self._places(node))[index]
        node.value = node.value[:start] + text + node.value[end:]
        return node

    @staticmethod
    def _places(node: NodeOrLeaf) -> Iterator[tuple[int, int, str]]:
        if node.type != "fstring_string" or "SELECT" not in node.parent.get_code():
            return
        for pattern, text in SQL:
            for found in re.finditer(pattern, node.value):
                yield found.start(), found.end(), text

    @classmethod
    def examples(cls) -> tuple[Example, ...]:
        """Return what it does."""
        return (Example('f"SELECT a FROM b WHERE c <= 1"', 'f"SELECT a FROM b WHERE c < 1"'),)


class OurOperators:
    """The provider that cosmic-ray asks."""

    def __iter__(self) -> Iterator[str]:
        return iter(("SwapOpposite", "MutateSql"))

    def __getitem__(self, name: str) -> type[Operator]:
        return {"SwapOpposite": SwapOpposite, "MutateSql": MutateSql}[name]
