"""Notes the last acknowledged write beside a DuckDB file, and tells what is missing on opening.

DuckDB opens a file without its write-ahead log, or with a cut one, as if the lost rows had never
been written. Each transaction therefore moves a position in the store forward, and after its
commit the position is noted in a small file of its own, synced to the disk. A store behind its
note has lost acknowledged writes; a store ahead of it was killed between the two.

A position is the time of the write in µs since the epoch, moved on where the clock stood still.
"""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path

import sqlalchemy as sa

from data.base.clock import utc_now
from data.base.errors import StoreError
from data.store.engine import tables
from data.store.engine.dialects import EPOCH
from data.store.engine.private_files import create_private, make_private, write_private
from data.store.record.ledger import append_entry

logger = logging.getLogger(__name__)

ACKNOWLEDGED = "acknowledged"
"""The row of `cursors` that holds the position: of a file, and of no copy of the store."""
_LAST_WRITE_KEY = "trimtab_wrote"
_WRITES = ("INSERT", "UPDATE", "DELETE")
_KINDS = {"batches": "batches of facts", "cycles": "cycles", "audit": "entries of the record"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A position, and the highest number of each table that counts its rows."""

    position: int = 0
    batches: int = 0
    cycles: int = 0
    audit: int = 0
    losses: tuple[str, ...] = ()


def head_path(path: Path) -> Path:
    """Return the file that notes the head of the DuckDB file at `path`."""
    return path.with_name(f"{path.name}.head")


def log_path(path: Path) -> Path:
    """Return the write-ahead log of the DuckDB file at `path`."""
    return path.with_name(f"{path.name}.wal")


class Head:
    """The note of one open DuckDB file; its methods are called by one writer at a time."""

    def __init__(self, path: Path, engine: sa.Engine) -> None:
        self._file = path
        self._log = log_path(path)
        self._engine = engine
        self._noted, self._flaw = _read(head_path(path))
        self.commits = 0
        """How many transactions of this process wrote something."""
        sa.event.listen(engine, "before_cursor_execute", _remember_write)

    @property
    def losses(self) -> tuple[str, ...]:
        """The losses that were found and not accepted yet."""
        return self._noted.losses

    def make_log(self) -> None:
        """Make the log for its owner: DuckDB would make it by the umask, readable for others."""
        with suppress(OSError):
            create_private(self._log)

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """Yield a connection whose writes are kept whole or not, and noted once they are."""
        self.make_log()
        with self._engine.begin() as connection:
            connection.info.pop(_LAST_WRITE_KEY, None)
            yield connection
            mark = self._advance(connection)
        if mark is not None:
            self.commits += 1
            self._note(mark)

    def _advance(self, connection: sa.Connection) -> Mark | None:
        """Move the position on if the transaction wrote anything; give the mark to note."""
        if not connection.info.pop(_LAST_WRITE_KEY, False):
            return None
        now = (utc_now() - EPOCH) // timedelta(microseconds=1)
        mark = _mark(connection)
        position = max(now, mark.position + 1, self._noted.position + 1)
        cursors = tables.cursors
        if mark.position:
            # A key that is deleted and inserted anew ends DuckDB's process when a commit fails.
            same = cursors.c.name == ACKNOWLEDGED
            connection.execute(cursors.update().where(same).values(position=position))
        else:
            connection.execute(cursors.insert().values(name=ACKNOWLEDGED, position=position))
        return replace(mark, position=position, losses=self._noted.losses)

    def _note(self, mark: Mark) -> None:
        """Note a committed mark on the disk. A note that fails is logged: the write stands."""
        try:
            write_private(head_path(self._file), json.dumps(asdict(mark)).encode())
        except OSError as error:
            logger.warning(
                "cannot note the head of the store in %s: %s; a loss of the newest writes would "
                "go untold",
                head_path(self._file),
                error.strerror,
            )
        else:
            self._noted = mark
        with suppress(OSError):
            make_private(self._log)

    def find_loss(self) -> None:
        """Compare the store with its note; keep and log what is missing. Errors: StoreError."""
        with self._engine.connect() as connection:
            lost = self._flaw or _missing(self._noted, _mark(connection))
        if not lost:
            return
        at = utc_now()
        note = f"{lost} (found {at:%Y-%m-%d %H:%M} UTC)"
        self._noted = replace(self._noted, losses=(*self._noted.losses, note))
        with self.transaction() as connection:
            append_entry(
                connection, at=at, actor="trimtab", event="writes-lost", digest="", detail=lost
            )
        logger.warning("%s: %s", self._file, lost)

    def accept_losses(self) -> None:
        """Say no more of the losses that were found; the record keeps them. Errors: StoreError."""
        accepted = replace(self._noted, losses=())
        try:
            write_private(head_path(self._file), json.dumps(asdict(accepted)).encode())
        except OSError as error:
            raise StoreError(
                f"cannot write {head_path(self._file)}: {error.strerror}", "Free space on its disk."
            ) from error
        self._noted = accepted


def _remember_write(
    connection: sa.Connection, _cursor: object, statement: str, *_more: object
) -> None:
    if statement.lstrip()[:6].upper() in _WRITES:
        connection.info[_LAST_WRITE_KEY] = True


def _read(path: Path) -> tuple[Mark, str]:
    """Return the mark that was noted and why it cannot be read; an empty one where none was."""
    try:
        document = json.loads(path.read_bytes())
        losses = tuple(str(loss) for loss in document.pop("losses"))
        return Mark(losses=losses, **{name: int(value) for name, value in document.items()}), ""
    except FileNotFoundError:
        return Mark(), ""
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return Mark(), (
            f"the note {path.name} of the last acknowledged write cannot be read, so nobody can "
            "tell whether writes are missing"
        )


def _mark(connection: sa.Connection) -> Mark:
    cursors = tables.cursors.c
    position = sa.select(cursors.position).where(cursors.name == ACKNOWLEDGED).scalar_subquery()
    highest = [
        sa.func.coalesce(number, 0).label(name)
        for name, number in (
            ("position", position),
            ("batches", sa.select(sa.func.max(tables.batches.c.sequence)).scalar_subquery()),
            ("cycles", sa.select(sa.func.max(tables.cycles.c.sequence)).scalar_subquery()),
            ("audit", sa.select(sa.func.max(tables.audit.c.sequence)).scalar_subquery()),
        )
    ]
    row = connection.execute(sa.select(*highest)).one()
    return Mark(position=row.position, batches=row.batches, cycles=row.cycles, audit=row.audit)


def _missing(noted: Mark, stored: Mark) -> str:
    """Return the acknowledged writes that the store lacks and since when, '' when it lacks none."""
    if stored.position >= noted.position:
        return ""
    rows = []
    for name, kind in _KINDS.items():
        last, first = getattr(noted, name), getattr(stored, name) + 1
        if first <= last:
            rows.append(f"{last - first + 1} {kind} (table {name}, {first} to {last})")
    what = ", ".join(rows) or "no batch, cycle or entry, but changes of other rows"
    since = "its beginning" if not stored.position else f"{_at(stored):%Y-%m-%d %H:%M:%S} UTC"
    return (
        f"the store lacks writes that it had acknowledged, from {since} to "
        f"{_at(noted):%Y-%m-%d %H:%M:%S} UTC: {what}; its write-ahead log or its file was cut, "
        "removed or replaced by an older one"
    )


def _at(mark: Mark) -> datetime:
    return EPOCH + timedelta(microseconds=mark.position)
