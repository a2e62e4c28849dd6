"""What a transaction made only for itself takes no memory after it."""

from contextlib import suppress

import pandas as pd
import sqlalchemy as sa
from factories import make_collected, make_samples

from data.store import Store
from data.store.engine.dialects import make_temporary

_KEPT_ON = {
    "duckdb": "SELECT count(*) FROM duckdb_tables() WHERE temporary",
    "postgresql": "SELECT count(*) FROM pg_class WHERE relpersistence = 't' AND relkind = 'r'",
}


def kept_on(store: Store) -> int:
    """Return how many temporary tables the connection holds that wrote; the pool has no other."""
    with store._engine.connect() as connection:
        return int(connection.execute(sa.text(_KEPT_ON[connection.dialect.name])).scalar_one())


def test_facts_that_were_merged_leave_no_table(store: Store) -> None:
    """Samples that one batch tells twice: DuckDB held them as long as the connection."""
    twice = pd.concat([make_samples(), make_samples()], ignore_index=True)
    store.keep(make_collected(twice))
    assert kept_on(store) == 0


def test_nor_does_what_failed(store: Store) -> None:
    """The transaction after it has the same connection."""
    with suppress(ZeroDivisionError), store._transaction() as connection:
        make_temporary(connection, "merged_facts", "SELECT 1 AS one")
        raise ZeroDivisionError
    with store._transaction() as connection:
        make_temporary(connection, "merged_jobs", "SELECT 1 AS one")
    assert kept_on(store) == 0
