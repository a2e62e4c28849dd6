"""Rows of the CSV files that ship with Trimtab, as records."""

import csv
from collections.abc import Callable, Mapping
from importlib.resources import files
from typing import Any, TypeVar, get_type_hints

Record = TypeVar("Record")
Cells = Mapping[str, str]
_READ: Mapping[Any, Callable[[str], Any]] = {
    int: int,
    float: float,
    str: str,
    bool: lambda cell: cell == "yes",
}


def shipped_rows(name: str) -> list[dict[str, str]]:
    """Return the rows of a file of the catalogue."""
    text = files("data.catalogue").joinpath(name).read_text(encoding="utf-8")
    return list(csv.DictReader(text.splitlines()))


def shipped_records(
    kind: type[Record], name: str, **columns: Callable[[Cells], Any]
) -> tuple[Record, ...]:
    """Return a record of each row, of its cells by name; `columns` are made of the whole row."""
    kinds = get_type_hints(kind)
    return tuple(
        kind(
            **{
                column: _READ[kinds[column]](cell)
                for column, cell in row.items()
                if column in kinds and column not in columns
            },
            **{column: make(row) for column, make in columns.items()},
        )
        for row in shipped_rows(name)
    )
