"""Brings a store to the newest schema, one numbered script after the other, in one transaction."""

import re
from importlib.resources import files

import sqlalchemy as sa

from data.errors import SchemaTooNewError

_NAME = re.compile(r"(\d{4})_\w+\.sql")


def migration_scripts() -> dict[int, str]:
    """Give every migration script by its number, in order."""
    found = {}
    for entry in files("data.store.migrations").iterdir():
        match = _NAME.fullmatch(entry.name)
        if match:
            found[int(match.group(1))] = entry.read_text(encoding="utf-8")
    return dict(sorted(found.items()))


def migrate(engine: sa.Engine) -> int:
    """Run what is missing and give the schema version. Errors: SchemaTooNewError."""
    scripts = migration_scripts()
    newest = max(scripts)
    with engine.begin() as connection:
        connection.exec_driver_sql(
            "CREATE TABLE IF NOT EXISTS schema_version (version BIGINT NOT NULL)"
        )
        version = connection.exec_driver_sql(
            "SELECT coalesce(max(version), 0) FROM schema_version"
        ).scalar_one()
        if version > newest:
            raise SchemaTooNewError(
                f"the store has schema {version}, this Trimtab knows {newest}",
                "Use the newer Trimtab that wrote it, or another file with --store.",
            )
        for number, script in scripts.items():
            if number > version:
                for statement in filter(str.strip, script.split(";")):
                    connection.exec_driver_sql(statement)
                connection.execute(
                    sa.text("INSERT INTO schema_version VALUES (:version)"), {"version": number}
                )
    return newest
