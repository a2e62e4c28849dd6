"""Numbers as people and tools write them: with their unit, with groups of digits, with a comma."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from collectors.readings.exposition_text import number_of
from data.base.errors import SettingsError, scrub

_MAX_NUMBER = 64
_UNIT = re.compile(r"(.*[\d.,])\s*(%|[A-Za-z]+)")
_BLANKS = str.maketrans({"\u00a0": " ", "\u202f": " ", "\u2009": " ", "\u2019": "'"})
"""Blanks and the apostrophe that part thousands in print."""
_GROUPED = {
    ".": re.compile(r"[+-]?\d{1,3}([ ,'])\d{3}(?:\1\d{3})*(?:\.\d*)?"),
    ",": re.compile(r"[+-]?\d{1,3}([ .'])\d{3}(?:\1\d{3})*(?:,\d*)?"),
}
_PLAIN = {",": re.compile(r"[+-]?\d*(?:,\d*)?(?:[eE][+-]?\d+)?")}
_COMMA = re.compile(r"[+-]?[\d. ']*\d,[\d, ']*\.?\d*")
_UNIT_WORDS = {
    "%": "percent", "percent": "percent", "pct": "percent", "w": "watts", "watt": "watts",
    "watts": "watts", "kw": "kilowatts", "mW": "milliwatts", "mib": "mib", "gib": "gib",
    "b": "bytes", "byte": "bytes", "bytes": "bytes", "mb": "mb", "gb": "gb", "j": "joules",
    "joules": "joules", "mJ": "millijoules", "kwh": "kwh",
}  # fmt: skip
"""Units as cells write them to those of a map. Of mW and mJ the case counts: MW is a million W."""
_CASE_COUNTS = frozenset({"mw", "mj"})


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberForm:
    """The form of a column's numbers.

    `decimal` is '' where the map does not say it. `units` are the factors into our unit that the
    target has, `factor` that of the unit that the map states.
    """

    column: str
    decimal: str = ""
    units: Mapping[str, float] = field(default_factory=dict)
    factor: float = 1.0

    def read(self, text: str) -> float | None:
        """Return the number of a cell in the map's unit, NaN of an empty one, None of other text.

        Errors: SettingsError where a comma may be the decimal sign or part thousands.
        """
        if not text:
            return float("nan")
        if len(text) > _MAX_NUMBER:
            return None
        text = text.translate(_BLANKS)
        united = _UNIT.fullmatch(text)
        number = self._number(united[1].rstrip() if united else text)
        if number is None or united is None:
            return number
        word = united[2] if united[2].casefold() in _CASE_COUNTS else united[2].casefold()
        factor = self.units.get(_UNIT_WORDS.get(word, ""))
        return None if factor is None else number * factor / self.factor

    def _number(self, text: str) -> float | None:
        decimal = self.decimal or "."
        if not self.decimal and _COMMA.fullmatch(text):
            raise SettingsError(
                f"the column {self.column!r} of the trace holds {scrub(text)!r}, whose comma may "
                "be the decimal sign or part thousands",
                'Write decimal = "," or decimal = "." under [file] in the map.',
            )
        if grouped := _GROUPED[decimal].fullmatch(text):
            text = text.replace(grouped[1], "")
        elif decimal == "," and not _PLAIN[","].fullmatch(text):
            return None
        try:
            return number_of(text.replace(",", ".") if decimal == "," else text)
        except ValueError:
            return None
