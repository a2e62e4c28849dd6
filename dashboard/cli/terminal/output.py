"""Output of rows on stdout: a table for people, JSON and CSV for programs."""

import json
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime
from typing import Any, TextIO

from dashboard.common import figures
from dashboard.common.csv_cells import csv_text
from dashboard.common.escaping import shown
from data.records.recommendations import Range

PARTIAL = FINDINGS = 3
"""The exit code of an answer that lacks a part, or that shows what somebody should look at."""
UNKNOWN = "—"
NOT_OBSERVED = "No GPU was observed in this time, by readings at most 5 min apart."
_WHOLE_FROM = 9_999.5
_NON_ASCII = re.compile("[^ -~\n]")


def plain(value: object) -> Any:
    """Return a value that JSON knows, for records and times."""
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"cannot print a {type(value).__name__}")


def print_json(value: object) -> None:
    """Print one JSON document; NaN is refused, unknown must be null.

    What a terminal would not show is written as its number, which reads back as the same text.
    """
    text = json.dumps(value, default=plain, indent=2, allow_nan=False, ensure_ascii=False)
    sys.stdout.write(_NON_ASCII.sub(_as_number, text) + "\n")


def _as_number(match: re.Match[str]) -> str:
    character = match.group()
    return character if character.isprintable() else json.dumps(character)[1:-1]


def say(text: object, *, file: TextIO | None = None) -> None:
    """Print text for people, line by line, on stdout by default; the names in it are hostile."""
    print("\n".join(map(shown, str(text).removesuffix("\n").split("\n"))), file=file)


def _cell(value: object) -> str:
    if value is None or value == "":
        return UNKNOWN
    if isinstance(value, float):
        # Whole from where four digits would be powers of ten: nobody reads 2.121e+06 as money.
        return f"{value:,.0f}" if abs(value) >= _WHOLE_FROM else f"{value:.4g}"
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M:%SZ}"
    # Names are hostile: control characters would move the cursor of a terminal.
    return shown(value)


def _visible(value: object) -> object:
    return shown(value) if isinstance(value, str) else value


def print_rows(
    rows: Sequence[Mapping[str, object]], form: str, *, columns: Sequence[str], empty: str
) -> None:
    """Print rows in `columns` order as `form`; `empty` says on stderr what to do when none."""
    if form == "json":
        print_json([dict(row) for row in rows])
        return
    if form == "csv":
        # A file gets the text as it came; on a terminal its control characters would be obeyed.
        if sys.stdout.isatty():
            rows = [{name: _visible(value) for name, value in row.items()} for row in rows]
        sys.stdout.write(csv_text(rows, columns))
        return
    if not rows:
        print(empty, file=sys.stderr)
        return
    cells = [[_cell(row.get(column)) for column in columns] for row in rows]
    numeric = [
        all(isinstance(row.get(column), int | float | None) for row in rows) for column in columns
    ]
    widths = [
        max(len(column), *(len(line[index]) for line in cells))
        for index, column in enumerate(columns)
    ]
    for line in [list(columns), *cells]:
        print(
            "  ".join(
                text.rjust(width) if right else text.ljust(width)
                for text, width, right in zip(line, widths, numeric, strict=True)
            ).rstrip()
        )


def range_text(value: Range | None) -> str:
    """Return a range as `central (low–high) unit`, empty when unknown."""
    return figures.range_text(value, unknown="")
