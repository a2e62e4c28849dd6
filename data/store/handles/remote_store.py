"""A DuckDB file that another process holds, read through that process.

The holder listens on a socket beside the file that only the file's owner may connect to: whoever
reaches it could open the file itself, so no token or sign-in is involved. What is read is the same
query on the same rows; whatever would write has to be asked of the holder.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import socket
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import sqlalchemy as sa

from data.base import errors
from data.base.clock import utc_now
from data.base.errors import StoreBusyError, StoreError, TrimtabError
from data.settings.store import is_postgres_url, store_path
from data.store.engine.dialects import Lock
from data.store.engine.migrate import newest_schema
from data.store.engine.served_queries import FRAME, ROWS, compiled, encode, rows_of, table_of
from data.store.handles.reader import StoreReader
from data.store.handles.store import Store, open_store

if TYPE_CHECKING:
    import pyarrow as pa

_MAX_ADDRESS = 100
"""Bytes of a path that fit into the address of a socket on every system."""
_TIMEOUT_SECONDS, _GREETING_SECONDS = 120.0, 5.0
"""Seconds that a query may take, and that a holder that works takes to say that it does."""
_PROBE_AFTER_SECONDS = 10.0
"""Seconds of silence after which a holder that takes its time is asked whether it still works."""
_HELLO_PATH = "/store"
BACKUP = "/store/backup"
"""Takes the path of a new `file`, answers the proof of each table when it is whole."""
BY_HEADER = "x-trimtab-by"
"""Names who gives a command, percent-encoded where it is more than ASCII."""


def socket_path(path: Path) -> Path:
    """Return the socket of the process that holds the DuckDB file at `path`."""
    return path.with_name(f"{path.name}.sock")


@contextmanager
def socket_address(path: Path) -> Iterator[str]:
    """Yield an address of the socket at `path` that fits, however deep its folder lies."""
    if len(os.fsencode(path)) <= _MAX_ADDRESS:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


class _SocketConnection(http.client.HTTPConnection):
    """HTTP over a socket of this machine."""

    def __init__(self, path: Path, seconds: float | None) -> None:
        super().__init__("localhost", timeout=seconds)
        self._path = path

    def connect(self) -> None:
        """Connect to the socket of the path. Errors: OSError."""
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        with socket_address(self._path) as address:
            self.sock.connect(address)


class StoreHolder:
    """The process that holds a DuckDB file, as others ask it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def greet(self) -> dict[str, Any]:
        """Return the holder's description of itself and the store. Errors: StoreError."""
        return dict(json.loads(self.ask("GET", _HELLO_PATH, seconds=_GREETING_SECONDS)))

    def ask(
        self,
        method: str,
        address: str,
        body: object = None,
        *,
        headers: Mapping[str, str] | None = None,
        seconds: float | None = _TIMEOUT_SECONDS,
    ) -> bytes:
        """Return the holder's answer; without `seconds` it may take as long as the holder works.

        Errors: those that it names, StoreError when it is gone.
        """
        connection = _SocketConnection(socket_path(self.path), seconds)
        sent = None if body is None else encode(body)
        try:
            connection.request(
                method, address, sent, {"Content-Type": "application/json", **(headers or {})}
            )
            while seconds is None and not _has_answer(connection):
                self.ask("GET", _HELLO_PATH, seconds=_TIMEOUT_SECONDS)
            answer = connection.getresponse()
            content = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise StoreError(
                f"the process that holds the store {self.path} does not answer: {error}",
                "See whether it still runs, and what it did (`trimtab audit list`), before you "
                "give the command again.",
            ) from error
        finally:
            connection.close()
        if answer.status >= 400:
            raise refusal_of(content, answer.status, "the process that holds the store")
        return content


def _has_answer(connection: http.client.HTTPConnection) -> bool:
    return bool(select.select([connection.sock], [], [], _PROBE_AFTER_SECONDS)[0])


def refusal_of(content: bytes, status: int, who: str) -> TrimtabError:
    """Return the error that an answer names, of its own class and in its own words."""
    fields: dict[str, Any] = {}
    with suppress(ValueError):
        document = json.loads(content)
        fields = document if isinstance(document, dict) else {}
    kind = getattr(errors, str(fields.get("error", "")), StoreError)
    is_ours = isinstance(kind, type) and issubclass(kind, TrimtabError)
    message = str(fields.get("detail") or f"{who} answered {status}")
    return (kind if is_ours else StoreError)(message, str(fields.get("hint", "")))


class ServedReader(StoreReader):
    """Reads through the process that holds the file."""

    def __init__(
        self, engine: sa.Engine, holder: StoreHolder, now: datetime, seconds: float | None
    ) -> None:
        super().__init__(engine)
        self._holder = holder
        self._seconds = seconds
        self._ahead = now - utc_now()

    def clock(self) -> datetime:
        """Return the time that the holder goes by: a demo's is ahead."""
        return utc_now() + self._ahead

    def _table(self, query: str, **parameters: Any) -> pa.Table:
        return table_of(self._ask(FRAME, sa.text(query).bindparams(**parameters)))

    def _rows(self, statement: sa.Executable) -> list[Any]:
        return rows_of(self._ask(ROWS, statement))

    def _ask(self, form: str, statement: sa.Executable) -> bytes:
        text, values = compiled(statement, self._engine.dialect)
        query = {"text": text, "values": values}
        return self._holder.ask("POST", f"{_HELLO_PATH}/{form}", query, seconds=self._seconds)


class ServedStore(Store):
    """A store that another process holds: it reads, and refuses to write.

    Without `seconds` a query may take as long as that process works.
    """

    def __init__(self, path: Path, seconds: float | None = _TIMEOUT_SECONDS) -> None:
        # Never opened: its dialect writes the queries.
        engine = sa.create_engine(sa.URL.create("duckdb", database=str(path)))
        super().__init__(engine)
        self.holder = StoreHolder(path)
        hello = self.holder.greet()
        now = datetime.fromisoformat(hello["now"])
        self.reader = ServedReader(engine, self.holder, now, seconds)
        self._process = int(hello["process"])
        self._losses = tuple(str(loss) for loss in hello["losses"])
        if hello["schema"] != newest_schema():
            raise StoreBusyError(
                f"the store {path} is held by process {self._process} of another version of "
                f"Trimtab (schema {hello['schema']}, this one knows {newest_schema()})",
                "Restart that process, so that both are of one version.",
            )

    def _transaction(self, *_locks: Lock) -> NoReturn:
        raise StoreBusyError(
            f"the store {self.holder.path} is held by process {self._process}, which does not "
            "take this command",
            "Stop that process or use its dashboard, or give another file with --store.",
        )

    @property
    def losses(self) -> tuple[str, ...]:
        """Acknowledged writes that the holder found missing when it opened the file."""
        return self._losses

    def accept_losses(self) -> None:
        """Refuse (StoreBusyError), as every write is."""
        self._transaction()

    @property
    def schema(self) -> int:
        """The number of the newest migration that ran on it."""
        return newest_schema()


def shared_store(url: str) -> Store:
    """Return a store that another process uses too: on a server, or through who holds its file.

    Errors: StoreError.
    """
    if is_postgres_url(url):
        return open_store(url, create=False)
    return ServedStore(store_path(url), None)


def served_store(path: Path) -> ServedStore | None:
    """Return the store through the process that holds it, None where none answers.

    Errors: StoreBusyError when that process is of another version.
    """
    try:
        return None if holder_of(path) is None else ServedStore(path)
    except StoreBusyError:
        raise
    except StoreError:  # it ended since it was greeted
        return None


def holder_of(path: Path) -> StoreHolder | None:
    """Return the process that holds the DuckDB file at `path`, None where none answers."""
    address = socket_path(path)
    try:
        listening, file = address.lstat(), path.stat()
    except OSError:
        return None
    # In a folder that a group may write somebody else could listen in its place.
    if not stat.S_ISSOCK(listening.st_mode) or listening.st_uid != file.st_uid:
        return None
    holder = StoreHolder(path)
    try:
        holder.greet()
    except StoreError:
        return None
    return holder
