"""Rights to write on PostgreSQL: a role for each process, and the SQL that makes it so.

Every role reads everything. None changes the schema, edits or deletes what the audit covers; the
web takes wishes but writes no fact, no plan and no line of the journal; the applier alone writes
the journal and takes a command, so it alone can mark a change applied.
"""

from collections.abc import Iterator, Mapping

from data.base.errors import StoreError

ROLES = ("web", "cycle", "apply")
_APPEND = "INSERT"
_KEEP = "INSERT, UPDATE, DELETE"
_REPLACE = "INSERT, DELETE"

WRITES: Mapping[str, Mapping[str, str]] = {
    # Facts, and what is derived from them.
    "samples": {"cycle": _KEEP},
    "allocations": {"cycle": _KEEP},
    "five_minute": {"cycle": _REPLACE},
    "hourly": {"cycle": _REPLACE},
    "group_hours": {"cycle": _REPLACE},
    "job_slots": {"cycle": _REPLACE},
    "kept_slots": {"cycle": _REPLACE},
    "dirty_hours": {"cycle": _REPLACE},
    "retained": {"cycle": _REPLACE},
    "batches": {"cycle": _APPEND},
    "jobs": {"cycle": _REPLACE},
    "nodes": {"cycle": _REPLACE},
    "board_xids": {"cycle": _KEEP},
    "serving_slots": {"cycle": _REPLACE},
    "board_activity": {"cycle": _REPLACE},
    "contradictions": {"cycle": _REPLACE},
    "job_progress": {"cycle": _REPLACE},
    "quotas": {"cycle": _REPLACE},
    "measured_peaks": {"cycle": _APPEND},
    # Thoughts; superseded ones are forgotten.
    "cycles": {"cycle": _APPEND},
    "plans": {"cycle": _REPLACE},
    "forecasts": {"cycle": _REPLACE},
    "group_forecasts": {"cycle": _REPLACE},
    "workload_forecasts": {"cycle": _REPLACE},
    "memory_outlooks": {"cycle": _REPLACE},
    "serving_outlooks": {"cycle": _REPLACE},
    "slow_work": {"cycle": _REPLACE},
    "recommendations": {"cycle": _REPLACE},
    "findings": {"cycle": _APPEND},
    # The record.
    "audit": {"web": _APPEND, "cycle": _APPEND, "apply": _APPEND},
    "decisions": {"web": _APPEND},
    "finding_events": {"web": _APPEND},
    "token_events": {"web": _APPEND},
    "commands": {"web": _APPEND, "apply": _APPEND},
    "leases": {"web": _APPEND, "apply": "INSERT, UPDATE"},
    "journal": {"apply": _APPEND},
    # People and what they ask for.
    "sign_ins": {"web": _REPLACE},
    "submissions": {"web": _REPLACE, "cycle": _REPLACE},
    "outbox": {"cycle": "INSERT, UPDATE"},
    "cursors": {"cycle": "UPDATE"},
    "reports": {"cycle": _APPEND},
    "findings_told": {"cycle": _REPLACE},
    "schema_version": {},
}
"""Table to role to what the role may do beside reading."""

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
        for table, rights in WRITES.items():
            if role in rights:
                yield f"GRANT {rights[role]} ON {schema}.{table} TO {name};"
        if role == "cycle":
            for function in _FUNCTIONS:
                yield f"GRANT EXECUTE ON FUNCTION {schema}.{function} TO {name};"
