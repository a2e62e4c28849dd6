"""Reading a job file's fields: of the right kind, inside their range, fit for a cluster.

Everything in a job file is untrusted: what goes on must be plain enough that no shell, no sbatch
and no YAML could read more into it than a value.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from data.base.errors import ChangeRefusedError, scrub

JOB_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
PATH = re.compile(r"/[A-Za-z0-9_./%+=@-]{0,400}")
IMAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_./:@-]{0,400}")
CLAIM = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?")
VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_MAX_TEXT = 4000

Whole = int


def refused(what: str, value: object, rule: str) -> ChangeRefusedError:
    """Return the error for a field of the job file."""
    return ChangeRefusedError(
        f"{what} of the job file is {scrub(repr(value), limit=80)}", f"It must be {rule}."
    )


def plain_text(what: str, value: str) -> str:
    """Return a text without control characters, of a decent length. Errors: ChangeRefusedError."""
    if len(value) > _MAX_TEXT or not value.isprintable():
        raise refused(what, value, f"printable text of at most {_MAX_TEXT} characters")
    return value


@dataclass(slots=True)
class Table:
    """One table of a job file; remembers which keys were asked for, so that others are refused."""

    name: str
    values: Mapping[str, Any]
    asked: set[str] = field(default_factory=set)

    def _what(self, key: str) -> str:
        return f"{self.name}.{key}" if self.name else key

    def value(self, key: str) -> Any:
        """Return the stated value, None when it is not stated."""
        self.asked.add(key)
        return self.values.get(key)

    def table(self, key: str) -> "Table":
        """Return an inner table, empty when it is not stated."""
        value = self.value(key)
        if value is None:
            value = {}
        if not isinstance(value, Mapping):
            raise refused(self._what(key), value, "a table")
        return Table(self._what(key), value)

    def text(self, key: str, pattern: re.Pattern[str] | None = None, *, wanted: str = "") -> str:
        """Return a text that matches, '' when it is not stated."""
        value = self.value(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise refused(self._what(key), value, "a text")
        plain_text(self._what(key), value)
        if pattern is not None and (pattern.fullmatch(value) is None or ".." in value.split("/")):
            raise refused(self._what(key), value, wanted)
        return value

    def number(self, key: str, *, low: float, high: float) -> float | None:
        """Return a number in its range, None when it is not stated."""
        value = self.value(key)
        if value is None:
            return None
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not low <= value <= high
        ):
            raise refused(self._what(key), value, f"a number from {low:g} to {high:g}")
        return float(value)

    def whole(self, key: str, *, low: int = 1, high: int = 10**9) -> Whole | None:
        """Return a whole number in its range, None when it is not stated."""
        value = self.number(key, low=low, high=high)
        if value is None:
            return None
        if value != int(value):
            raise refused(self._what(key), value, "a whole number")
        return int(value)

    def needed(self, key: str, *, low: int = 1, high: int = 10**9) -> Whole:
        """Return a whole number that must be stated."""
        value = self.whole(key, low=low, high=high)
        if value is None:
            raise ChangeRefusedError(
                f"the job file lacks {self._what(key)}", f"Add {self._what(key)}."
            )
        return value

    def flag(self, key: str) -> bool | None:
        """Return true or false, None when it is not stated."""
        value = self.value(key)
        if value is not None and not isinstance(value, bool):
            raise refused(self._what(key), value, "true or false")
        return value

    def word(self, key: str, choices: Iterable[str]) -> str:
        """Return one of the known words, '' when it is not stated."""
        words = tuple(choices)
        value = self.text(key)
        if value and value not in words:
            raise refused(self._what(key), value, f"one of {', '.join(words)}")
        return value

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts, empty when it is not stated."""
        value = self.value(key)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
            raise refused(self._what(key), value, "a list of texts")
        return tuple(plain_text(self._what(key), entry) for entry in value)

    def refuse_others(self) -> None:
        """Refuse keys that nobody asked for: a misspelt limit must not be ignored."""
        others = sorted(set(self.values) - self.asked)
        if others:
            name = scrub(self._what(others[0]), limit=60)
            raise ChangeRefusedError(
                f"the job file has an unknown key {name!r}",
                f"Known here: {', '.join(sorted(self.asked))}.",
            )
