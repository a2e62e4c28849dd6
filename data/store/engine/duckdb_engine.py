"""Opens the DuckDB file: every connection is a cursor of its own, and failures are named.

DuckDB lets one process own a file. Within it each pooled connection is separate, because one
connection object shared by threads silently returns wrong rows.
"""

import re
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from data.base.errors import MORE_MEMORY, OUT_OF_MEMORY, StoreBusyError, StoreError, scrub
from data.settings.store import closed, is_file, require_duckdb, require_file
from data.store.engine.private_files import make_folder, tighten

_HOLDER = re.compile(r"PID (\d+)")
_NO_MEMORY = re.compile(
    r"out of memory|bad.alloc|(?:failed to|cannot) allocate|MemoryError|can't start new thread",
    re.IGNORECASE,
)
CONFIG = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "enable_external_access": "false",
    "lock_configuration": "true",
}


def open_engine(path: Path, *, create: bool) -> sa.Engine:
    """Return an engine on the file, proven to open. Errors: StoreBusyError, StoreError."""
    exists = is_file(path) if create else require_file(path)
    if exists:
        require_duckdb(path)
    try:
        make_folder(path.parent)
        tighten(tuple(path.with_name(path.name + end) for end in ("", ".wal")), path.parent)
    except OSError as error:
        what = f"open the store {path} for writing" if exists else f"make the folder {path.parent}"
        raise StoreError(
            f"cannot {what}: {error.strerror}",
            "Point store.url at a folder that can be written.",
        ) from error
    engine = sa.create_engine(
        sa.URL.create("duckdb", database=str(path)),
        connect_args={"config": CONFIG},
        poolclass=sa.QueuePool,
        pool_size=8,
        max_overflow=32,
    )

    def name_failure(context: sa.ExceptionContext) -> None:
        raise _failure(path, str(context.original_exception)) from context.original_exception

    sa.event.listen(engine, "handle_error", name_failure)
    sa.event.listen(engine, "do_execute", _without_pandas)
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("SELECT 1")
        if not exists:
            path.chmod(0o600)
    except StoreError:
        engine.dispose()
        raise
    return engine


def _without_pandas(cursor: Any, statement: str, parameters: Any, context: Any) -> bool:
    """Execute a statement so that DuckDB does not import pandas; False where it may be there.

    It looks for pandas' NaT among the parameters, and loads pandas to know it: half the time of a
    list. A value that exists without pandas is none. With several threads another may be importing.
    """
    if "pandas" in sys.modules or threading.active_count() > 1:
        return False
    sys.modules["pandas"] = None  # type: ignore[assignment]
    try:
        context.dialect.do_execute(cursor, statement, parameters, context)
    finally:
        del sys.modules["pandas"]
    return True


@contextmanager
def failures_named(connection: sa.Connection) -> Iterator[None]:
    """Translate errors of the driver that SQLAlchemy does not see: frames in, rows out as Arrow.

    Errors: StoreError.
    """
    try:
        yield
    except connection.dialect.loaded_dbapi.Error as error:
        raise _failure(Path(connection.engine.url.database or ""), str(error)) from error


def _failure(path: Path, text: str) -> StoreError:
    """Return the failure in our words; every error of the driver passes here."""
    text = text.replace(str(path), path.name)
    if "Could not set lock" in text:
        holder = _HOLDER.search(text)
        who = f"process {holder.group(1)}" if holder else "another process"
        return StoreBusyError(
            f"the store {path} is held by {who}",
            "Stop that process or use its dashboard, or give another file with --store.",
        )
    if "Permission denied" in text:
        return closed(path, "permission denied")
    if _NO_MEMORY.search(text):
        return StoreError(f"{OUT_OF_MEMORY} using the store {path}", MORE_MEMORY)
    if text.startswith("INTERRUPT Error"):  # of its threads another failed, and its words are lost
        return StoreError(
            f"a statement broke off using the store {path}, and DuckDB kept no reason",
            f"Mostly memory ran out. {MORE_MEMORY}",
        )
    without_name = text.replace(path.name, "")
    if "WAL" in without_name or "replay" in without_name.lower():
        return StoreError(
            f"the write-ahead log of {path} cannot be replayed: {scrub(text)}",
            f"Move {path}.wal aside to open the last checkpoint; keep it for inspection.",
        )
    return StoreError(
        f"cannot use the store {path}: {scrub(text)}",
        "Check that it is a Trimtab store that can be written, and that its disk has space.",
    )
