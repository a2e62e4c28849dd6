"""Value of a field: as a launch states it, else the default of its framework."""

from dataclasses import dataclass, field
from typing import Any

from dashboard.submission.launchers.fields import LaunchDialect, Statements, Value


@dataclass(slots=True)
class Told:
    """Looks up what was stated, else what the framework does unasked, with a note of it."""

    syntax: LaunchDialect
    facts: Statements
    defaults: dict[str, Value]
    assumed: list[str] = field(default_factory=list)

    def value(self, name: str) -> Any:
        """Return the stated value of a field, the framework's default, or None.

        Of a word that is not known there is None, never the default.
        """
        stated = self.facts.items.get(name)
        if stated is not None:
            return stated.value
        usual = self.defaults.get(name)
        if usual is not None:
            note = f"{name.replace('_', ' ')} = {usual}, what {self.syntax.name} does unasked"
            if note not in self.assumed:
                self.assumed.append(note)
        return usual

    def stated(self, name: str) -> Any:
        """Return the stated value of a field, None without one."""
        entry = self.facts.items.get(name)
        return None if entry is None else entry.value

    def named(self, name: str) -> str:
        """Name the flag that states a field, with its value, for an error."""
        entry = self.facts.items[name]
        return f"{entry.flag} {entry.raw} of {entry.origin}"
