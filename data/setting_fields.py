"""How a setting is declared, and how its range is checked."""

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any

from data.errors import SettingsError, scrub

PATH = "path"
"""Marks a setting whose relative value in a settings file counts from the folder of that file."""
LIST = "list"
"""Marks a setting of several entries."""


def documented(default: Any, meaning: str, *, secret: bool = False) -> Any:
    """Declare a setting: its default, what it means with its unit, and whether to redact it."""
    # Whoever prints or logs the settings, by mistake or in a traceback, shows no secret.
    return field(default=default, repr=not secret, metadata={"meaning": meaning, "secret": secret})


def documented_path(default: str, meaning: str) -> Any:
    """Declare a setting that is a path, or the address of a DuckDB file (see `PATH`)."""
    return field(default=default, metadata={"meaning": meaning, "secret": False, PATH: True})


def documented_list(default: str, meaning: str) -> Any:
    """Declare a setting of several entries: a comma-separated text, in a file also a TOML list."""
    return field(default=default, metadata={"meaning": meaning, "secret": False, LIST: True})


def documented_rows(kind: type, meaning: str) -> Any:
    """Declare a setting of several rows, each a table of the settings file: none by default."""
    return field(default=(), metadata={"meaning": meaning, "secret": False, "rows": kind})


def shown_value(value: object) -> str:
    """Return a value for a message, clipped; what Python cannot write is named by its type."""
    try:
        return scrub(repr(value))
    except (ValueError, RecursionError):  # thousands of digits, or of tables in one another
        return f"a {type(value).__name__} too large to show"


def require(condition: bool, name: str, value: object, rule: str) -> None:
    """Refuse a value outside its rule. Errors: SettingsError naming setting, value and rule."""
    if not condition:
        raise SettingsError(f"{name} is {shown_value(value)}", f"It must be {rule}.")


def require_between(
    section: object, prefix: str, limits: Mapping[str, tuple[float, float, str]]
) -> None:
    """Refuse numbers outside (lowest, highest, unit), by field. Errors: SettingsError."""
    for name, (lowest, highest, unit) in limits.items():
        value = getattr(section, name)
        rule = f"{lowest:g} to {highest:,.10g} {unit}".rstrip()
        require(lowest <= value <= highest, f"{prefix}.{name}", value, rule)


def numbers_in(text: str, name: str) -> tuple[float, ...]:
    """Return the comma-separated numbers of a setting. Errors: SettingsError naming it."""
    try:
        found = tuple(float(one) for one in text.split(",") if one.strip())
    except ValueError:
        found = (math.nan,)
    require(all(map(math.isfinite, found)), name, text, "numbers separated by commas")
    return found


def number_in(text: str) -> float:
    """Return the number that a text is, NaN when it is none."""
    try:
        return float(text)
    except ValueError:
        return math.nan
