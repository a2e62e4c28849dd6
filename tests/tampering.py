"""What somebody with full rights on the database could do to the record."""

from data.store import Store
from data.store.engine.dialects import is_postgres


def tamper(store: Store, *statements: str) -> None:
    """Run each statement in a transaction of its own, past the triggers that refuse it."""
    for statement in statements:
        with store._transaction() as connection:
            if is_postgres(connection):
                connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
            connection.exec_driver_sql(statement)
