"""Declaration of a setting, and the check of its range."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import Field, dataclass, field, fields
from datetime import date, time
from typing import Any
from urllib.parse import urlsplit

from data.base.errors import SettingsError, scrub

PATH = "path"
"""Marks a setting whose relative value in a settings file counts from the folder of that file."""
LIST = "list"
"""Marks a setting of several entries."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The values that a setting may have: from `minimum`, or above `above`, to `maximum`."""

    minimum: float | None = None
    above: float | None = None
    maximum: float | None = None
    choices: tuple[str, ...] = ()

    def admit(self, value: Any) -> bool:
        """Return whether a value is within the limits."""
        if self.choices:
            return value in self.choices
        return (
            (self.minimum is None or self.minimum <= value)
            and (self.above is None or self.above < value)
            and (self.maximum is None or value <= self.maximum)
        )

    def rule(self) -> str:
        """Return the allowed values, in words; '' where everything is."""
        if self.choices:
            return " or ".join(choice or "empty" for choice in self.choices)
        if self.maximum is None:
            return ""
        lowest = (
            f"{self.minimum:,.10g} to" if self.above is None else f"above {self.above:g}, at most"
        )
        return f"{lowest} {self.maximum:,.10g}"


def _declared(default: Any, meaning: str, **marks: Any) -> Any:
    metadata = {"meaning": meaning, "secret": False, "limits": Limits()} | marks
    # Whoever prints or logs the settings, by mistake or in a traceback, shows no secret.
    return field(default=default, repr=not metadata["secret"], metadata=metadata)


def documented(
    default: Any,
    meaning: str,
    *,
    secret: bool = False,
    minimum: float | None = None,
    above: float | None = None,
    maximum: float | None = None,
    choices: tuple[str, ...] = (),
) -> Any:
    """Declare a setting: default, meaning with its unit, whether to redact it, and its limits."""
    limits = Limits(minimum=minimum, above=above, maximum=maximum, choices=choices)
    return _declared(default, meaning, secret=secret, limits=limits)


def documented_path(default: str, meaning: str) -> Any:
    """Declare a setting that is a path, or the address of a DuckDB file (see `PATH`)."""
    return _declared(default, meaning, **{PATH: True})


def documented_list(default: str, meaning: str) -> Any:
    """Declare a setting of several entries: a comma-separated text, in a file also a TOML list."""
    return _declared(default, meaning, **{LIST: True})


def fixed(default: Any) -> Any:
    """Declare a fixed figure, which only tests, the demo and `what if` change."""
    return field(default=default, metadata={"secret": False, "limits": Limits()})


def fixed_path(default: str) -> Any:
    """Declare a fixed path, such as one below the state folder."""
    return field(default=default, metadata={"secret": False, "limits": Limits(), PATH: True})


def documented_rows(kind: type, meaning: str) -> Any:
    """Declare a setting of several rows, each a table of the settings file: none by default."""
    return _declared((), meaning, rows=kind)


def settings_in(section: "type[Section] | Section") -> Iterator[Field[Any]]:
    """Return the settings of a section: its fields that are documented."""
    return (field for field in fields(section) if "meaning" in field.metadata)


def shown_value(value: object) -> str:
    """Return a value for a message, clipped; what Python cannot write is named by its type."""
    try:
        return value.isoformat() if isinstance(value, date | time) else scrub(repr(value))
    except (ValueError, RecursionError):  # thousands of digits, or of tables in one another
        return f"a {type(value).__name__} too large to show"


def require(condition: bool, name: str, value: object, rule: str) -> None:
    """Refuse a value outside its rule. Errors: SettingsError naming setting, value and rule."""
    if not condition:
        raise SettingsError(f"{name} is {shown_value(value)}", f"It must be {rule}.")


_LINE_ENDS = frozenset("\r\n\0")


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A section of the settings, whose fields are `documented`; `section` is its name.

    Errors, on making one: SettingsError for a value outside its limits or against `_check`.
    """

    section = ""

    def __init_subclass__(cls, *, name: str = "") -> None:
        if name:  # dataclasses make a class with slots twice, the second time without the name
            cls.section = name

    def __post_init__(self) -> None:
        for setting in fields(self):
            limits: Limits = setting.metadata["limits"]
            value = getattr(self, setting.name)
            # It ends up in headers, commands and files, where a line more is another one.
            one_line = not isinstance(value, str) or _LINE_ENDS.isdisjoint(value)
            self.require(one_line, setting.name, "one line")
            self.require(limits.admit(value), setting.name, limits.rule())
        self._check()

    def _check(self) -> None:
        """Refuse what the limits of single settings do not say."""

    def require(self, condition: bool, name: str, rule: str) -> None:
        """Refuse the value of a setting of this section against its rule. Errors: SettingsError."""
        require(condition, f"{self.section}.{name}", getattr(self, name), rule)


def entries(text: str) -> tuple[str, ...]:
    """Return the entries of a comma-separated list, without blanks."""
    return tuple(word for part in text.split(",") if (word := part.strip()))


def comes_unchanged(address: str) -> bool:
    """Return whether nobody on the way can change what is read."""
    try:
        parts = urlsplit(address)
        local = parts.scheme == "http" and parts.hostname in ("127.0.0.1", "localhost", "::1")
        return bool(parts.hostname) and (local or parts.scheme == "https")
    except ValueError:
        return False


def require_once(names: Sequence[str], setting: str) -> None:
    """Refuse a name that stands twice. Errors: SettingsError."""
    for name in names:
        require(names.count(name) == 1, setting, name, "named once")


def numbers_in(text: str, name: str) -> tuple[float, ...]:
    """Return the comma-separated numbers of a setting. Errors: SettingsError naming it."""
    try:
        numbers = tuple(float(part) for part in entries(text))
    except ValueError:
        numbers = (math.nan,)
    require(all(map(math.isfinite, numbers)), name, text, "numbers separated by commas")
    return numbers


def number_in(text: str) -> float:
    """Return the number that a text is, NaN when it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan
