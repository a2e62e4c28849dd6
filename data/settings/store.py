"""Location of a store: its settings, its address, its file. Imports no database."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from data.base.errors import StoreError, scrub
from data.base.state_folder import DEFAULT_FOLDER
from data.settings.fields import Section, documented_path, require

_PREFIX = "duckdb:///"
_ADDRESSES = "duckdb:///PATH or postgresql+psycopg://USER@HOST/NAME"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings(Section, name="store"):
    """The location of facts, plans and decisions."""

    url: str = documented_path(f"duckdb:///{DEFAULT_FOLDER}/trimtab.duckdb", _ADDRESSES)

    def _check(self) -> None:
        address = scrub(self.url)  # it may hold a password
        valid = is_store_address(self.url)
        require(valid, "store.url", address, f"of DuckDB or PostgreSQL: {_ADDRESSES}")


def is_postgres_url(url: str) -> bool:
    """Return whether a store address names a PostgreSQL database."""
    return url.split(":", 1)[0].lower() in ("postgresql", "postgresql+psycopg", "postgres")


def is_store_address(url: str) -> bool:
    """Return whether an address names a PostgreSQL database, or the file of a DuckDB.

    DuckDB's own words for what is no file (:memory:, md:) do not, since nothing would be kept
    there; it also cuts a path at a question mark.
    """
    path = url.removeprefix(_PREFIX)
    no_file = path.startswith((":", "md:", "motherduck:")) or "?" in path
    return is_postgres_url(url) or not (path in ("", url) or no_file or not path.isprintable())


def store_path(url: str) -> Path:
    """Return the path of a store address duckdb:///PATH. Errors: StoreError for anything else.

    The rest of the address is the path as it is: no escapes, no options.
    """
    if is_postgres_url(url) or not is_store_address(url):
        raise StoreError(
            f"store address {scrub(url)!r} cannot be used", "Give duckdb:///PATH of a file."
        )
    return Path(url.removeprefix(_PREFIX)).expanduser()


def is_file(path: Path) -> bool:
    """Return whether a file is there. Errors: StoreError where this user may not look."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise closed(path, error.strerror or "") from error
    return True


def require_file(path: Path) -> bool:
    """Return True where the file of a store is. Errors: StoreError where there is none."""
    if is_file(path):
        return True
    raise StoreError(
        f"there is no store at {path}", "Run `trimtab cycle` or `trimtab import` first."
    )


def require_duckdb(path: Path) -> None:
    """Refuse what is no DuckDB file, before anything of it is changed. Errors: StoreError."""
    try:
        if path.is_file():
            with path.open("rb") as file:
                is_store = file.read(12)[8:] == b"DUCK"
        else:
            is_store = False
    except OSError as error:
        raise closed(path, error.strerror or "") from error
    if not is_store:
        raise StoreError(
            f"cannot use the store {path}: it is no DuckDB file",
            "Give store.url (--store) the file of a Trimtab store, or one that is not there yet.",
        )


def require_store(url: str) -> None:
    """Refuse an address of a file that is not there, before anything heavy is imported.

    Errors: StoreError. A database server is asked when it is opened.
    """
    if not is_postgres_url(url):
        require_file(store_path(url))


def closed(path: Path, reason: str) -> StoreError:
    """Return the refusal of a file that this user may not use."""
    return StoreError(
        f"this user may not use the store {path}{_owner_of(path)}: {reason}",
        "Run the command as the user who owns it, or ask its server by the HTTP API "
        "(an admin makes a token: `trimtab token make`).",
    )


def _owner_of(path: Path) -> str:
    """Return the owner of the file, for a message; '' where that is not told."""
    with suppress(OSError, KeyError, NotImplementedError):
        return f" of {path.owner()}"
    return ""
