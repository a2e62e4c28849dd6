"""Tables as CSV that no spreadsheet runs."""

import csv
import io
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

_FORMULA_STARTS = ("=", "+", "-", "@", "\t", "\r", "\0")


def _csv_cell(value: object) -> object:
    """Give a cell that no spreadsheet takes for a formula (ASVS 1.2.10)."""
    if isinstance(value, str) and value.startswith(_FORMULA_STARTS):
        return f"'{value}"
    return value.isoformat() if isinstance(value, datetime) else value


def csv_text(rows: Sequence[Mapping[Any, object]], columns: Sequence[str]) -> str:
    """Give rows in `columns` order as CSV with a header."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows([_csv_cell(row.get(column)) for column in columns] for row in rows)
    return text.getvalue()
