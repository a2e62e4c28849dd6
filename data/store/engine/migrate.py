"""Brings a store to the newest schema, one numbered script after the other, in one transaction.

A script `0020_name.sql` runs on both engines, in DuckDB's names of the types. On PostgreSQL
`0020_name.postgres.sql` follows it: indexes, partitions, functions that the queries need. The
first script makes an empty store; its number is the oldest schema that is brought forward.
"""

import re
from collections.abc import Sequence
from importlib.resources import files

import sqlalchemy as sa

from data.base.errors import SchemaTooNewError, StoreError
from data.store.engine.dialects import Lock, hold, is_postgres, postgres_types

_NAME = re.compile(r"(\d{4})_\w+\.sql")


def migration_scripts() -> dict[int, str]:
    """Return every migration script by its number, in order."""
    return _scripts(_NAME)


def _scripts(name: re.Pattern[str]) -> dict[int, str]:
    script_by_number = {}
    for entry in files("data.store.migrations").iterdir():
        match = name.fullmatch(entry.name)
        if match:
            script_by_number[int(match.group(1))] = entry.read_text(encoding="utf-8")
    return dict(sorted(script_by_number.items()))


def newest_schema() -> int:
    """Return the schema that this version reads and writes."""
    return max(migration_scripts())


def migrate(engine: sa.Engine) -> int:
    """Run what is missing and give the schema version. Errors: SchemaTooNewError, StoreError.

    On PostgreSQL one process at a time migrates, under an advisory lock; who may not change tables
    can open a store of the newest schema and no other.
    """
    scripts = migration_scripts()
    newest = newest_schema()
    with engine.begin() as connection:
        if is_postgres(connection) and schema_version(connection) == newest:
            return newest
        hold(connection, Lock.MIGRATION)
        version = schema_version(connection)
        if version > newest:
            raise SchemaTooNewError(
                f"the store has schema {version}, this Trimtab knows {newest}",
                "Use the newer Trimtab that wrote it, or another file with --store.",
            )
        if version == newest:
            return newest
        if 0 < version < min(scripts):
            raise StoreError(
                f"the store has schema {version}, and this Trimtab reads {min(scripts)} and later",
                f"Open it once with the Trimtab of schema {min(scripts)}, which brings it forward.",
            )
        _require_may_create(connection, version, newest)
        connection.exec_driver_sql(
            "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)"
        )
        for number, script in scripts.items():
            if number > version:
                _run(connection, number, script)
    return newest


def make_tables(connection: sa.Connection, names: Sequence[str]) -> None:
    """Make these tables alone of the newest schema, in an empty DuckDB."""
    pattern = re.compile(rf"\b(?:CREATE|ALTER) TABLE (?:{'|'.join(names)})\b")
    for script in migration_scripts().values():
        for statement in script.split(";"):
            if pattern.search(statement):
                connection.exec_driver_sql(statement)


def schema_version(connection: sa.Connection) -> int:
    """Return the schema of the store, 0 for an empty one."""
    query = "SELECT count(*) FROM pg_tables WHERE schemaname = current_schema()"
    if not connection.execute(sa.text(f"{query} AND tablename = 'schema_version'")).scalar_one():
        return 0
    highest = sa.text("SELECT coalesce(max(version), 0) FROM schema_version")
    return int(connection.execute(highest).scalar_one())


def _require_may_create(connection: sa.Connection, version: int, newest: int) -> None:
    if not is_postgres(connection):
        return
    may = sa.text("SELECT has_schema_privilege(current_schema(), 'CREATE')")
    if not connection.execute(may).scalar_one():
        raise StoreError(
            f"the store has schema {version}, this Trimtab needs {newest}, and its role may not "
            "change tables",
            "Run `trimtab store migrate` with the address of the database's owner.",
        )


def _run(connection: sa.Connection, number: int, script: str) -> None:
    """Run the statements of a script at once, and note its number with them."""
    if is_postgres(connection):
        script = postgres_types(script) + _scripts(_FOR_POSTGRES).get(number, "")
    statements = f"{script}; INSERT INTO schema_version VALUES ({number})"  # noqa: S608 - our own text
    connection.exec_driver_sql(statements, execution_options={"no_parameters": True})


_FOR_POSTGRES = re.compile(r"(\d{4})_\w+\.postgres\.sql")
