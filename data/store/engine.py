"""Opens the DuckDB file: every connection is a cursor of its own, and failures are named.

DuckDB lets one process own a file. Within it each pooled connection is separate, because one
connection object shared by threads silently returns wrong rows.
"""

import re
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.exc import DBAPIError

from data.errors import StoreBusyError, StoreError, scrub

_PREFIX = "duckdb:///"
_HOLDER = re.compile(r"PID (\d+)")
_CONFIG = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "enable_external_access": "false",
    "lock_configuration": "true",
}


def store_path(url: str) -> Path:
    """Give the path of a store address duckdb:///PATH. Errors: StoreError for anything else."""
    if not url.startswith(_PREFIX) or len(url) == len(_PREFIX):
        raise StoreError(
            f"store address {scrub(url)!r} cannot be used", "Give duckdb:///PATH of a file."
        )
    return Path(url.removeprefix(_PREFIX))


def open_engine(path: Path, *, create: bool) -> sa.Engine:
    """Give an engine on the file, proven to open. Errors: StoreBusyError, StoreError."""
    if not create and not path.is_file():
        raise StoreError(
            f"there is no store at {path}", "Run `trimtab cycle` or `trimtab import` first."
        )
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StoreError(
            f"cannot make the folder {path.parent}: {error.strerror}",
            "Point store.url at a folder that can be written.",
        ) from error
    engine = sa.create_engine(
        f"{_PREFIX}{path}", connect_args={"config": _CONFIG}, pool_size=8, max_overflow=32
    )
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("SELECT 1")
    except DBAPIError as error:
        engine.dispose()
        raise _named(path, str(error.orig)) from error
    return engine


def _named(path: Path, text: str) -> StoreError:
    if "Could not set lock" in text:
        holder = _HOLDER.search(text)
        who = f"process {holder.group(1)}" if holder else "another process"
        return StoreBusyError(
            f"the store {path} is held by {who}",
            "Stop that process or use its dashboard, or give another file with --store.",
        )
    if "WAL" in text or "replay" in text.lower():
        return StoreError(
            f"the write-ahead log of {path} cannot be replayed: {scrub(text)}",
            f"Move {path}.wal aside to open the last checkpoint; keep it for inspection.",
        )
    return StoreError(
        f"cannot open the store {path}: {scrub(text)}",
        "Check that the file is a Trimtab store and can be written.",
    )
