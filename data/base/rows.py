"""Records of one kind filled from those of another by the names of their columns."""

from dataclasses import fields
from typing import Any, TypeVar

Row = TypeVar("Row")


def columns_of(row: type[Any]) -> tuple[str, ...]:
    """Return the names of the columns of a row, in order."""
    return tuple(field.name for field in fields(row))


def row_of(kind: type[Row], record: object, /, **columns: Any) -> Row:
    """Return a row with its `columns` columns, and else what the record has by the same names."""
    values = {name: getattr(record, name) for name in columns_of(kind) if name not in columns}
    return kind(**values, **columns)
