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


def refused(what: str, found: object, wanted: str) -> ChangeRefusedError:
    """Return the error for a field of the job file."""
    return ChangeRefusedError(
        f"{what} of the job file is {scrub(repr(found), limit=80)}", f"It must be {wanted}."
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
        """Return what is stated, None when it is not."""
        self.asked.add(key)
        return self.values.get(key)

    def table(self, key: str) -> "Table":
        """Return an inner table, empty when it is not stated."""
        found = self.value(key)
        if found is None:
            found = {}
        if not isinstance(found, Mapping):
            raise refused(self._what(key), found, "a table")
        return Table(self._what(key), found)

    def text(self, key: str, pattern: re.Pattern[str] | None = None, *, wanted: str = "") -> str:
        """Return a text that matches, '' when it is not stated."""
        found = self.value(key)
        if found is None:
            return ""
        if not isinstance(found, str):
            raise refused(self._what(key), found, "a text")
        plain_text(self._what(key), found)
        if pattern is not None and (pattern.fullmatch(found) is None or ".." in found.split("/")):
            raise refused(self._what(key), found, wanted)
        return found

    def number(self, key: str, *, low: float, high: float) -> float | None:
        """Return a number in its range, None when it is not stated."""
        found = self.value(key)
        if found is None:
            return None
        if (
            isinstance(found, bool)
            or not isinstance(found, int | float)
            or not low <= found <= high
        ):
            raise refused(self._what(key), found, f"a number from {low:g} to {high:g}")
        return float(found)

    def whole(self, key: str, *, low: int = 1, high: int = 10**9) -> Whole | None:
        """Return a whole number in its range, None when it is not stated."""
        found = self.number(key, low=low, high=high)
        if found is None:
            return None
        if found != int(found):
            raise refused(self._what(key), found, "a whole number")
        return int(found)

    def needed(self, key: str, *, low: int = 1, high: int = 10**9) -> Whole:
        """Return a whole number that must be stated."""
        found = self.whole(key, low=low, high=high)
        if found is None:
            raise ChangeRefusedError(
                f"the job file lacks {self._what(key)}", f"Add {self._what(key)}."
            )
        return found

    def flag(self, key: str) -> bool | None:
        """Return true or false, None when it is not stated."""
        found = self.value(key)
        if found is not None and not isinstance(found, bool):
            raise refused(self._what(key), found, "true or false")
        return found

    def word(self, key: str, known: Iterable[str]) -> str:
        """Return one of the known words, '' when it is not stated."""
        words = tuple(known)
        found = self.text(key)
        if found and found not in words:
            raise refused(self._what(key), found, f"one of {', '.join(words)}")
        return found

    def texts(self, key: str) -> tuple[str, ...]:
        """Return a list of texts, empty when it is not stated."""
        found = self.value(key)
        if found is None:
            return ()
        if not isinstance(found, list) or not all(isinstance(entry, str) for entry in found):
            raise refused(self._what(key), found, "a list of texts")
        return tuple(plain_text(self._what(key), entry) for entry in found)

    def refuse_others(self) -> None:
        """Refuse keys that nobody asked for: a misspelt limit must not be ignored."""
        others = sorted(set(self.values) - self.asked)
        if others:
            shown = scrub(self._what(others[0]), limit=60)
            raise ChangeRefusedError(
                f"the job file has an unknown key {shown!r}",
                f"Known here: {', '.join(sorted(self.asked))}.",
            )
