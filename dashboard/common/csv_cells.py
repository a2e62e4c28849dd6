"""Tables as CSV that no spreadsheet runs."""

import csv
import io
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from dashboard.common.escaping import cell


def _csv_cell(value: object) -> object:
    return value.isoformat() if isinstance(value, datetime) else cell(value)


def csv_text(rows: Sequence[Mapping[Any, object]], columns: Sequence[str]) -> str:
    """Return rows in `columns` order as CSV with a header."""
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(map(cell, columns))
    writer.writerows([_csv_cell(row.get(column)) for column in columns] for row in rows)
    return text.getvalue()
