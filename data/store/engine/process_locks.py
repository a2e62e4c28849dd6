"""One process for each part of the work on a shared store, by a lock that dies with its holder.

The lock is a session's: it ends when the process or its connection does, so nothing is left behind
by a crash. A holder asks for it again before each piece of work, because a server that was
restarted has forgotten it. What two holders could do to each other in between is kept harmless by
the leases, the fences and the unique keys; this lock keeps them from working twice for nothing.
"""

import threading
import zlib
from contextlib import suppress
from typing import Any, Self

import sqlalchemy as sa

from data.base.errors import StoreBusyError, StoreError
from data.store.engine.dialects import is_postgres

_SPACE = 0x7473
_HOLDER = sa.text(
    "SELECT a.pid, coalesce(host(a.client_addr), 'this host') AS host, a.backend_start"
    " FROM pg_locks AS l JOIN pg_stat_activity AS a ON a.pid = l.pid"
    " WHERE l.locktype = 'advisory' AND l.granted AND l.classid = :space AND l.objid = :key"
    " AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


class SoleHolder:
    """The claim to be the only process doing `part`; use it in a `with` block.

    On DuckDB it always holds: the file itself has one process. Errors: StoreBusyError naming the
    connection that holds it.
    """

    def __init__(self, engine: sa.Engine, part: str) -> None:
        self._engine = engine
        self._part = part
        self._key = zlib.crc32(part.encode()) & 0x7FFFFFFF
        self._connection: sa.Connection | None = None
        self._asking = threading.Lock()

    def __enter__(self) -> Self:
        self.require()
        return self

    def __exit__(self, *_error: object) -> None:
        self._let_go()

    def require(self) -> None:
        """See that the claim holds, and take it again when the connection was lost.

        Errors: StoreBusyError when another process has it now, StoreError without a server.
        """
        if is_postgres(self._engine):
            with self._asking:
                self._require()

    def is_taken(self) -> bool:
        """Return whether any process has the claim now."""
        if not is_postgres(self._engine):
            return True
        with self._engine.connect() as connection:
            return self._holder(connection) is not None

    def _require(self) -> None:
        if self._connection is not None:
            try:
                self._connection.exec_driver_sql("SELECT 1")
            except StoreError:
                self._let_go()
            else:
                return
        # An open transaction would be ended by the server's time limit, and the claim with it.
        connection = self._engine.connect().execution_options(isolation_level="AUTOCOMMIT")
        connection.detach()
        try:
            self._take(connection)
        except BaseException:
            connection.close()
            raise
        self._connection = connection

    def _take(self, connection: sa.Connection) -> None:
        reply = connection.execute(sa.select(sa.func.pg_try_advisory_lock(_SPACE, self._key)))
        if reply.scalar_one():
            return
        row = self._holder(connection)
        who = (
            "another process"
            if row is None or row.backend_start is None  # hidden from a role of other rights
            else f"a process at {row.host} (database session {row.pid}, since "
            f"{row.backend_start:%Y-%m-%d %H:%M} UTC)"
        )
        raise StoreBusyError(
            f"the part {self._part!r} of the store {self._engine.url.database} is done by {who}",
            "One process does it at a time: stop that one, or leave this one stopped.",
        )

    def _holder(self, connection: sa.Connection) -> Any:
        return connection.execute(_HOLDER, {"space": _SPACE, "key": self._key}).first()

    def _let_go(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            if not connection.invalidated:
                with suppress(StoreError):
                    connection.execute(sa.select(sa.func.pg_advisory_unlock(_SPACE, self._key)))
            connection.close()
