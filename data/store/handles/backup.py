"""Backs a store up into one DuckDB file while it is written to, and restores it.

A backup is the store at one moment, read in one transaction and proven like any copy. On
restoring, what stood there before is moved aside, never overwritten.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path

import duckdb
import sqlalchemy as sa

from data.base.errors import StoreBusyError, StoreError, scrub
from data.settings.store import is_postgres_url, store_path
from data.store.engine.duckdb_engine import open_engine
from data.store.engine.private_files import make_folder
from data.store.handles.copy_store import Progress, TableProof, copy_store, prove
from data.store.handles.store import Store, open_store
from data.store.record.last_write import head_path, log_path


def back_up(store: Store, file: Path, *, progress: Progress) -> tuple[TableProof, ...]:
    """Write the store as it is at one moment into a new file; give the proof of each table.

    Errors: StoreError when the file exists or cannot be written; nothing of it is left then.
    """
    if file.exists():
        raise StoreError(f"{file} exists already", "Give the name of a new file.")
    if not file.parent.is_dir():
        raise StoreError(f"there is no folder {file.parent}", "Make it, or give another file.")
    with _workpiece(file, "partial") as partial:
        with open_store(f"duckdb:///{partial}") as target:
            proofs = copy_store(store, target, progress=progress)
            problems = target.reader.verify_audit()
            if problems != store.reader.verify_audit()[: len(problems)]:
                raise StoreError(
                    f"the record arrived with a flaw: {problems[0]}", "Nothing was kept; try again."
                )
        _move(partial, file)
    return proofs


def restore(
    file: Path, url: str, *, replace: bool, now: datetime, progress: Progress
) -> tuple[TableProof, ...]:
    """Make the store at `url` what the backup holds; give the proof of each table.

    The backup stays as it is. With `replace` a DuckDB store that stands there is moved aside. A
    database must be empty. Errors: StoreError, StoreBusyError while a process holds the store.
    """
    if not file.is_file():
        raise StoreError(f"there is no backup {file}", "Give a file of `trimtab store backup`.")
    target = None if is_postgres_url(url) else store_path(url)
    if target is not None:
        _require_free(target, replace=replace)
        try:
            make_folder(target.absolute().parent)
        except OSError as error:
            raise StoreError(
                f"cannot make the folder of {target}: {error.strerror}", "Give another store.url."
            ) from error
    with _workpiece(target or file, "restoring") as copied:
        try:
            shutil.copyfile(file, copied)
        except OSError as error:
            raise StoreError(
                f"cannot copy {file} to {copied}: {error.strerror}", "Free space on its disk."
            ) from error
        copied.chmod(0o600)
        proofs = _proven(copied, file, progress)
        if target is None:
            address = f"duckdb:///{copied}"
            with open_store(address, create=False) as source, open_store(url) as server:
                return copy_store(source, server, progress=progress)
        for part in _parts(target):
            if part.exists():
                ending = part.name.removeprefix(target.name)
                part.replace(target.with_name(f"{target.name}.before-{now:%Y%m%dT%H%M%SZ}{ending}"))
        _move(copied, target)
    return proofs


def _proven(copied: Path, file: Path, progress: Progress) -> tuple[TableProof, ...]:
    """Read every row of the copy of a backup. Errors: StoreError that names the backup."""
    try:
        with open_store(f"duckdb:///{copied}", create=False) as source:
            return prove(source, progress=progress)
    except (StoreError, OSError, duckdb.Error, sa.exc.DBAPIError) as error:
        text = error.message if isinstance(error, StoreError) else str(error)
        why = " ".join(text.split()).replace(copied.name, file.name)
        raise StoreError(
            f"{file} is no backup of a store, or it is damaged: {scrub(why)}",
            "Give another backup. Nothing was changed.",
        ) from error


@contextmanager
def _workpiece(sibling: Path, what: str) -> Iterator[Path]:
    """Yield the path of a file to work on, which is gone afterwards with all that belongs to it."""
    path = sibling.with_name(f".{sibling.name}.{what}-{os.getpid()}")
    try:
        yield path
    finally:
        for part in _parts(path):
            with suppress(OSError):
                part.unlink(missing_ok=True)


def _parts(path: Path) -> tuple[Path, ...]:
    return (path, log_path(path), head_path(path))


def _move(source: Path, to: Path) -> None:
    """Return a closed file its name, once it is on the disk. Errors: StoreError."""
    try:
        with source.open("rb") as body:
            os.fsync(body.fileno())
        source.replace(to)
    except OSError as error:
        raise StoreError(f"cannot write {to}: {error.strerror}", "Free space there.") from error


def _require_free(path: Path, *, replace: bool) -> None:
    """Refuse a store that stands there unless it may be replaced, and one that is in use."""
    if not any(part.exists() for part in _parts(path)):
        return
    if not replace:
        raise StoreError(
            f"a store stands at {path} already",
            "Restore elsewhere with --store, or give --replace: the old one is then moved aside.",
        )
    try:
        open_engine(path, create=False).dispose()
    except StoreBusyError:
        raise
    except StoreError:  # a damaged store is what a backup is for
        return
