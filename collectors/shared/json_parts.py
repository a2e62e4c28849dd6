"""Values in JSON documents that others wrote: parts, texts, lists, times and quantities."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from data.base.errors import scrub

_MAX_TEXT = 300
_QUANTITY = re.compile(r"(\d{1,19}(?:\.\d{0,9})?|\.\d{1,9})([numkMGTPE]|[KMGTPE]i|[eE]\d{1,2})?")
_FACTORS = {unit: Decimal(1000) ** power for power, unit in enumerate("kMGTPE", 1)}
_FACTORS |= {f"{unit}i": Decimal(1024) ** power for power, unit in enumerate("KMGTPE", 1)}
_FACTORS |= {unit: Decimal(10) ** -power for unit, power in (("", 0), ("m", 3), ("u", 6), ("n", 9))}
_BILLION = 1_000_000_000


def part(document: object, *names: str) -> Any:
    """Return the value under these names one inside the other, None where one is missing."""
    for name in names:
        if not isinstance(document, Mapping):
            return None
        document = document.get(name)
    return document


def text_in(document: object, *names: str) -> str:
    """Return a text found by these names, '' when there is none."""
    value = part(document, *names)
    return fit(value) if isinstance(value, str) else ""


def fit(text: str) -> str:
    """Return foreign text on one line, clipped: annotations hold a quarter of a megabyte of any."""
    if len(text) <= _MAX_TEXT and text.isascii() and text.isprintable():
        return text
    return scrub(text[: 4 * _MAX_TEXT], limit=_MAX_TEXT)


def list_in(document: object, *names: str) -> list[Any]:
    """Return a list found by these names, empty when there is none."""
    value = part(document, *names)
    return value if isinstance(value, list) else []


def time_in(document: object, *names: str) -> datetime | None:
    """Return a time (RFC 3339) found by these names, None when there is none."""
    try:
        time = datetime.fromisoformat(text_in(document, *names))
        return time.astimezone(UTC) if time.tzinfo else None
    except (ValueError, OverflowError):  # an hour west of the year 1 is not a time
        return None


def count_of(value: object) -> int:
    """Return the whole number of a quantity; 0 for what is absent or not a whole number."""
    return whole_number(value) or 0


def quantity(value: object) -> Decimal | None:
    """Return a quantity of Kubernetes such as 7910m or 527Gi, None for anything else."""
    match = _QUANTITY.fullmatch(str(value))
    if match is None:
        return None
    unit = match[2] or ""
    factor = Decimal(10) ** int(unit[1:]) if unit[1:].isdecimal() else _FACTORS[unit]
    return Decimal(match[1]) * factor


def whole_number(value: object) -> int | None:
    """Return the whole number below a billion of a quantity, 2, "2" or "80k", else None."""
    number = None if isinstance(value, bool) else quantity(value)
    return None if number is None or number % 1 or number >= _BILLION else int(number)
