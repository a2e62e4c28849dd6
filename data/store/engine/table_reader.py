"""Reader of tables: rows, frames, and the records that rows hold as JSON.

Every call takes a connection of its own, so any thread may call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import sqlalchemy as sa

from data.store.engine.bulk import frame_of, read_table
from data.store.engine.record_json import from_json

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

Record = TypeVar("Record")


class TableReader:
    """Asks one store; nothing here writes."""

    def __init__(self, engine: sa.Engine) -> None:
        self._engine = engine

    def _table(self, query: str, **parameters: Any) -> pa.Table:
        with self._engine.connect() as connection:
            return read_table(connection, query, parameters)

    def _frame(self, query: str, **parameters: Any) -> pd.DataFrame:
        return frame_of(self._table(query, **parameters))

    def _rows(self, statement: sa.Executable) -> list[Any]:
        with self._engine.connect() as connection:
            return list(connection.execute(statement).all())

    def _records(self, kind: type[Record], statement: sa.Executable) -> tuple[Record, ...]:
        """Return the records that the rows hold in their column `record`."""
        return tuple(from_json(kind, row.record) for row in self._rows(statement))
