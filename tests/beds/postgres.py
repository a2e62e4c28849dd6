"""A real PostgreSQL (Debian package) on a Unix socket, with a database per test."""

import contextlib
import itertools
import os
import pwd
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psycopg

_READY_SECONDS = 180
_OWNER = "trimtab"
# Power loss is not what these tests are about, and a test's database is gone in a second.
_SETTINGS = {
    "listen_addresses": "",
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "shared_buffers": "64MB",
    "max_connections": "60",
    "autovacuum": "off",
}


def program(name: str) -> str:
    """A program of the newest PostgreSQL, or a failure that says how to get it."""
    folders = sorted(
        Path("/usr/lib/postgresql").glob("*/bin"), key=lambda entry: int(entry.parent.name)
    )
    for folder in reversed(folders):
        if (folder / name).exists():
            return str(folder / name)
    found = shutil.which(name)
    assert found, f"{name} is not installed; as root: apt-get install postgresql"
    return found


def _as_server() -> list[str]:
    """PostgreSQL refuses to run as root: give the words that change to Debian's user for it."""
    return ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []


class PostgresBed:
    """One server in a folder of its own; `url` gives the address of a database as its owner."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._server: subprocess.Popen[bytes] | None = None
        self._numbers = itertools.count(1)

    def url(self, database: str, *, role: str = _OWNER) -> str:
        """The address of a database, for a role."""
        return f"postgresql+psycopg://{role}@/{database}?host={self.folder}"

    def admin(self, *statements: str, database: str = "postgres") -> None:
        """Run statements as the superuser, each a transaction of its own."""
        with self.connection(database) as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def connection(
        self, database: str = "postgres", *, role: str = _OWNER
    ) -> psycopg.Connection[tuple[object, ...]]:
        """A connection of the driver that commits each statement."""
        return psycopg.connect(
            host=str(self.folder), user=role, dbname=database, autocommit=True, connect_timeout=60
        )

    def create(self, name: str, *, template: str = "template1") -> str:
        """Make a database and give its address."""
        self.admin(f'CREATE DATABASE "{name}" TEMPLATE "{template}"')
        return self.url(name)

    @contextmanager
    def database(self, *, template: str = "template1") -> Iterator[str]:
        """The address of a database that goes with the block, whoever is still connected."""
        name = f"test_{next(self._numbers)}"
        url = self.create(name, template=template)
        try:
            yield url
        finally:
            self.admin(f'DROP DATABASE IF EXISTS "{name}" WITH (FORCE)')

    def start(self, **settings: str) -> None:
        """Start the server and wait until it answers."""
        options = [f"-c{name}={value}" for name, value in (_SETTINGS | settings).items()]
        with (self.folder / "log").open("ab") as log:
            self._server = subprocess.Popen(
                [*_as_server(), program("postgres"), "-D", self.folder / "data",
                 f"-cunix_socket_directories={self.folder}", *options],
                stdout=log, stderr=log, cwd="/", start_new_session=True,
            )  # fmt: skip
        deadline = time.monotonic() + _READY_SECONDS
        while True:
            try:
                self.connection().close()
            except psycopg.OperationalError:
                assert self._server.poll() is None, (self.folder / "log").read_text()
                assert time.monotonic() < deadline, (self.folder / "log").read_text()
                time.sleep(0.05)
            else:
                return

    def stop(self, mode: str = "fast") -> None:
        """Stop the server: `fast` ends the sessions, `immediate` is a crash."""
        server, self._server = self._server, None
        if server is None:
            return
        subprocess.run(
            [*_as_server(), program("pg_ctl"), "stop", "-D", self.folder / "data", "-m", mode],
            check=True, capture_output=True, cwd="/",
        )  # fmt: skip
        server.wait(timeout=120)

    def restart(self, mode: str = "immediate", **settings: str) -> None:
        """Stop and start it."""
        self.stop(mode)
        self.start(**settings)


@contextmanager
def running_postgres(**settings: str) -> Iterator[PostgresBed]:
    """A server of its own, in a short path: a socket's name has 107 characters at most."""
    folder = Path(tempfile.mkdtemp(prefix="trimtab-pg-"))
    try:
        if os.geteuid() == 0:
            owner = pwd.getpwnam("postgres")
            os.chown(folder, owner.pw_uid, owner.pw_gid)
        subprocess.run(
            [*_as_server(), program("initdb"), "-D", folder / "data", "-U", _OWNER,
             "--auth=trust", "--no-sync", "--locale=C.UTF-8", "--encoding=UTF8"],
            check=True, capture_output=True, cwd="/",
        )  # fmt: skip
        bed = PostgresBed(folder)
        bed.start(**settings)
        try:
            yield bed
        finally:
            bed.stop("immediate")
    finally:
        with contextlib.suppress(FileNotFoundError):
            shutil.rmtree(folder)
