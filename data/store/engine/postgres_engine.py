"""Opens a PostgreSQL database as the store of several processes, and names its failures.

The password may stand in the address; better, libpq reads it from PGPASSFILE or a service file.
"""

import psycopg
import sqlalchemy as sa
from psycopg.abc import Buffer
from psycopg.types.string import StrDumper

from data.base.errors import StoreBusyError, StoreError, scrub
from data.base.text import without_nul

_SESSION = {
    "timezone": "UTC",
    "datestyle": "ISO",
    "standard_conforming_strings": "on",
    # What was acknowledged is on disk, whatever the server's default says.
    "synchronous_commit": "on",
    "lock_timeout": "60s",
    "statement_timeout": "600s",
    "idle_in_transaction_session_timeout": "900s",
}
_UNAVAILABLE_WORDS = ("starting up", "shutting down", "not yet accepting", "recovery mode")
_FULL = ("too many", "connection slots are reserved", *_UNAVAILABLE_WORDS)
_CONNECT_SECONDS = 10
_POOL, _OVERFLOW, _POOL_SECONDS = 4, 8, 30


class _Text(StrDumper):
    """Sends text without what PostgreSQL takes in none: questions too may hold what people send."""

    def dump(self, obj: str) -> Buffer | None:
        """Return the bytes."""
        return super().dump(without_nul(obj))


class _BoundedPool(sa.QueuePool):
    """A pool whose exhaustion is an error in our words."""

    def connect(self) -> sa.PoolProxiedConnection:
        """Return a connection. Errors: StoreBusyError when none came free in time."""
        try:
            return super().connect()
        except sa.exc.TimeoutError as error:
            raise StoreBusyError(
                f"all {_POOL + _OVERFLOW} connections of this process to the store are in use",
                "Try again; if it stays so, ask less at once or look for slow queries.",
            ) from error


def postgres_url(address: str) -> sa.URL:
    """Return the address with its driver. Errors: StoreError without a database name."""
    try:
        url = sa.make_url(address).set(drivername="postgresql+psycopg")
    except (sa.exc.ArgumentError, ValueError):
        url = None
    if url is None or not url.database:
        raise StoreError(
            f"store address {scrub(address)!r} cannot be used",
            "Give postgresql+psycopg://USER@HOST/DATABASE.",
        )
    return url


def open_postgres(address: str, *, program: str = "trimtab") -> sa.Engine:
    """Return an engine on the database, proven to answer. Errors: StoreBusyError, StoreError."""
    url = postgres_url(address)
    options = " ".join(f"-c {name}={value}" for name, value in _SESSION.items())
    engine = sa.create_engine(
        url,
        poolclass=_BoundedPool,
        pool_size=_POOL,
        max_overflow=_OVERFLOW,
        pool_timeout=_POOL_SECONDS,
        pool_pre_ping=True,  # a server that was restarted costs a look, not an error
        connect_args={
            "options": options,
            "connect_timeout": _CONNECT_SECONDS,
            "application_name": program,
            "keepalives_idle": 30,
        },
    )

    def name_failure(context: sa.ExceptionContext) -> None:
        failure = context.original_exception
        if isinstance(failure, psycopg.Error):
            raise named_failure(url, failure) from failure

    def send_storable(driver: psycopg.Connection, _record: object) -> None:
        driver.adapters.register_dumper(str, _Text)

    sa.event.listen(engine, "handle_error", name_failure)
    sa.event.listen(engine, "connect", send_storable)
    try:
        with engine.connect() as connection:
            connection.exec_driver_sql("SELECT 1")
    except StoreError:
        engine.dispose()
        raise
    return engine


def named_failure(url: sa.URL, failure: psycopg.Error) -> StoreError:
    """Return the failure in our words; the address is told without its password."""
    where = f"the store {url.database} at {url.host or url.query.get('host', 'the local server')}"
    text = scrub(str(failure).splitlines()[0] if str(failure) else type(failure).__name__)
    state = failure.sqlstate or ""
    if state in ("53300", "57P03") or any(words in text for words in _FULL):
        return StoreBusyError(
            f"{where} takes no further connection now: {text}",
            "Try again once it is ready."
            if any(words in text for words in _UNAVAILABLE_WORDS)
            else "Try again; raise max_connections, or put a pooler before it.",
        )
    if state == "55P03":
        return StoreBusyError(
            f"{where} is kept waiting by another writer: {text}",
            "Try again; pg_stat_activity shows who holds the lock.",
        )
    if state == "42501":
        return StoreError(
            f"{where} refused it to the role {url.username or '(default)'}: {text}",
            "Use the role that `trimtab store grants` made for this process.",
        )
    if state == "57014":
        return StoreError(f"{where} took too long: {text}", "Ask for less, or see its load.")
    if isinstance(failure, psycopg.OperationalError):
        return StoreError(
            f"{where} cannot be reached: {text}",
            "See that the server runs and that address and role are right; what was being "
            "written is there whole or not at all.",
        )
    return StoreError(f"cannot use {where}: {text}", "Check that it is a database of Trimtab.")
