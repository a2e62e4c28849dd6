"""Rights to write on PostgreSQL: a role for each process, and the SQL that makes it so.

Every role reads everything. None changes the schema, edits or deletes what the audit covers; the
web takes wishes but writes no fact, no plan and no line of the journal; the applier alone writes
the journal and takes a command, so it alone can mark a change applied.
"""

from collections.abc import Iterator, Mapping

from data.base.errors import StoreError

ROLES = ("web", "cycle", "apply")
_APPEND = "INSERT"
_WRITE_RIGHTS = "INSERT, UPDATE, DELETE"
_REPLACE = "INSERT, DELETE"

_WRITES = {
    ("web", _APPEND): "audit decisions finding_events token_events commands leases",
    ("web", _REPLACE): "sign_ins submissions",
    ("cycle", _APPEND): "batches measured_peaks cycles findings audit reports",
    ("cycle", _REPLACE): (
        "five_minute hourly group_hours job_slots kept_slots dirty_hours retained jobs nodes "
        "serving_slots board_activity contradictions job_progress quotas plans forecasts "
        "group_forecasts workload_forecasts memory_outlooks serving_outlooks slow_work "
        "recommendations submissions findings_told"
    ),
    ("cycle", "INSERT, UPDATE"): "outbox",
    ("cycle", _WRITE_RIGHTS): "samples allocations board_xids",
    ("cycle", "UPDATE"): "cursors",
    ("apply", _APPEND): "audit commands journal",
    ("apply", "INSERT, UPDATE"): "leases",
}
"""Rights of a role beyond reading, with their tables."""
NOT_WRITTEN = frozenset({"schema_version"})
"""Tables that no role writes."""
WRITES: Mapping[tuple[str, str], tuple[str, ...]] = {
    right: tuple(names.split()) for right, names in _WRITES.items()
}

_FUNCTIONS = ("make_partition(TEXT, TIMESTAMPTZ)", "drop_partitions(TEXT, TIMESTAMPTZ)")


def grants_sql(*, prefix: str = "trimtab", schema: str = "public") -> str:
    """Return the statements that a database's owner runs after `trimtab store migrate`.

    They may be run again. Roles are made without a password: ALTER ROLE sets one, or pg_hba.conf
    asks for a certificate. Errors: StoreError for a name that is no plain word.
    """
    for name in (prefix, schema):
        if not (name.isascii() and name.isidentifier()):
            raise StoreError(f"{name!r} cannot name a role or schema", "Use letters, digits and _.")
    return "\n".join(_statements(prefix, schema)) + "\n"


def _statements(prefix: str, schema: str) -> Iterator[str]:
    for function in ("require_entry()", *_FUNCTIONS):
        # Else a temporary table of a role would pass for the one of its name.
        yield f"ALTER FUNCTION {schema}.{function} SET search_path = {schema}, pg_temp;"
    for role in ROLES:
        name = f"{prefix}_{role}"
        yield f"-- {name}"
        yield (
            f"DO $$ BEGIN CREATE ROLE {name} LOGIN; "
            "EXCEPTION WHEN duplicate_object THEN NULL; END $$;"
        )
        yield f"DO $$ BEGIN EXECUTE format('GRANT CONNECT, TEMPORARY ON DATABASE %I TO {name}',"
        yield "    current_database()); END $$;"
        yield f"GRANT USAGE ON SCHEMA {schema} TO {name};"
        yield f"REVOKE CREATE ON SCHEMA {schema} FROM {name};"
        yield f"REVOKE ALL ON ALL TABLES IN SCHEMA {schema} FROM {name};"
        yield f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {name};"
        for (who, rights), names in WRITES.items():
            for table in names if who == role else ():
                yield f"GRANT {rights} ON {schema}.{table} TO {name};"
        if role == "cycle":
            for function in _FUNCTIONS:
                yield f"GRANT EXECUTE ON FUNCTION {schema}.{function} TO {name};"
