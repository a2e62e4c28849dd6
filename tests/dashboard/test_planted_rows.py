"""Rows that no audit entry covers: told by the verification, and obeyed by nobody."""

import hashlib
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from beds.apply_bench import Bench
from beds.postgres import PostgresBed
from beds.raw_requests import answer
from browser.bed import TRIMTAB, running_server
from factories import NOW
from sqlalchemy.engine import make_url
from tampering import tamper

from data.base.clock import utc_now
from data.base.errors import StoreError
from data.records.commands import CommandKind, Person, command_id_of
from data.records.findings import FindingEventKind
from data.store import Store, open_store
from data.store.engine import tables
from data.store.engine.dialects import is_postgres
from data.store.engine.record_json import to_json
from data.store.record.grants import grants_sql

TEXT = "trimtab_" + "planted" * 6
ENTRIES = {"no entry": 0, "the entry of another row": 1, "an entry that is not there": 999}
"""What the column `entry` of a planted row says."""


def planted(table: str, digest: str, entry: int) -> list[tuple[sa.Table, dict[str, Any]]]:
    """Return a row of the table that would be obeyed, and the lease that a command needs."""
    by, subject = to_json(Person(name="Mallory")), digest
    numbered = {"sequence": 900, "entry": entry}
    command_id = command_id_of(CommandKind.ROLLBACK, subject)
    rows: dict[str, list[tuple[sa.Table, dict[str, Any]]]] = {
        "decisions": [
            (tables.decisions, {"digest": digest, "decision": "approved", "decided_by": "Mallory",
             "decided_at": NOW, "remark": "", "change_digest": "", "person": by}),
        ],
        "commands": [
            (tables.commands, {"command_id": command_id, "kind": "rollback", "digest": digest,
             "subject": subject, "target": "t", "change_digest": "", "person": by,
             "asked_at": NOW}),
            (tables.leases, {"command_id": command_id, "version": 1, "owner": "", "fence": 0,
             "until": NOW, "not_before": NOW, "held": "", "finished": False}),
        ],
        "journal": [
            (tables.journal, {"command_id": command_id, "digest": digest, "event": "rolled-back",
             "step": -1, "written_at": NOW, "fence": 1, "detail": "", "record": ""}),
        ],
        "finding_events": [
            (tables.finding_events, {"number": 1, "digest": digest, "reason": "",
             "event": str(FindingEventKind.SNOOZED), "until_at": NOW + timedelta(days=90),
             "made_at": NOW, "person": by, "remark": ""}),
        ],
        "token_events": [
            (tables.token_events, {"token_id": "abc", "event": "token-made", "person": "alex",
             "role": "admin", "token_hash": hashlib.sha256(TEXT.encode()).hexdigest(),
             "expires_at": utc_now() + timedelta(days=9), "made_at": NOW, "made_by": "alex"}),
        ],
    }  # fmt: skip
    return [(kind, row if kind is tables.leases else row | numbered) for kind, row in rows[table]]


def plant(store: Store, rows: list[tuple[sa.Table, dict[str, Any]]]) -> None:
    """Insert rows as somebody with full rights on the database, past its triggers."""
    with store._transaction() as connection:
        if is_postgres(connection):
            connection.exec_driver_sql("SET LOCAL session_replication_role = replica")
        for table, row in rows:
            connection.execute(table.insert().values(**row))


def obeyed(store: Store, digest: str) -> tuple[object, ...]:
    """Return everything that a planted row could change."""
    reader, now = store.reader, NOW + timedelta(minutes=30)
    return (
        reader.recommendation(digest, now=now).state, reader.commands(), reader.journal(),
        reader.finding_events(), reader.tokens(), reader.token_of(TEXT),
        reader.approval_row(digest), reader.states(),
        store.commands.take(owner="w", now=now, lasting=timedelta(hours=1)),
    )  # fmt: skip


@pytest.mark.parametrize("table", [table.name for table in tables.COVERED])
def test_a_planted_row_is_told_and_not_obeyed(bench: Bench, table: str) -> None:
    """Whatever its entry says, on both engines; the record before it is whole."""
    bench.approve()
    bench.ask()
    bench.work(visits=3)
    obeyed(bench.store, bench.digest)  # takes what is due
    before = obeyed(bench.store, bench.digest)
    for case, entry in ENTRIES.items():
        plant(bench.store, planted(table, bench.digest, entry))
        after, problems = obeyed(bench.store, bench.digest), bench.store.reader.verify_audit()
        tamper(bench.store, f"DELETE FROM {table} WHERE sequence = 900")  # noqa: S608 our own name
        tamper(bench.store, "DELETE FROM leases WHERE version = 1 AND fence = 0")
        assert after == before, case
        text = " ".join(problems)
        assert f"{table}:900 is covered by 0" in text, (case, text)


SHADOW = (
    "CREATE TEMPORARY TABLE audit AS SELECT 1 AS sequence, 'commands:900' AS covers,"
    " '' AS event, '' AS digest, '' AS actor, now() AS entry_at"
)
"""A table of the session, by whose name PostgreSQL looks before that of the record."""


def insert_behind_a_shadow(store: Store, table: sa.Table, row: dict[str, Any]) -> None:
    """Insert a row while a table of the session has an entry for it."""
    with store._transaction() as connection:
        connection.exec_driver_sql(SHADOW.replace("commands", table.name))
        connection.execute(table.insert().values(**row))


@pytest.mark.postgres
@pytest.mark.parametrize("table", [table.name for table in tables.COVERED])
def test_the_database_refuses_a_row_without_its_entry(postgres: PostgresBed, table: str) -> None:
    """The roles that may append to a table cannot append what no entry covers.

    Nor what an entry covers that is of another table of that name.
    """
    with postgres.database(template="store_template") as url:
        name = str(make_url(url).database)
        with postgres.connection(name) as owner:
            owner.execute(grants_sql().encode())
        role = "apply" if table == "journal" else "web"
        with open_store(postgres.url(name, role=f"trimtab_{role}")) as store:
            for entry in ENTRIES.values():
                rows = [row for row in planted(table, "d" * 64, entry) if row[0].name == table]
                with pytest.raises(StoreError, match="audit entry"):
                    insert_behind_a_shadow(store, *rows[0])
            assert store.reader.verify_audit() == ()


def test_a_server_lets_nobody_in_by_a_planted_token(tmp_path: Path) -> None:
    """A started server refuses the token, and the command names the row and ends with 3."""
    url = f"duckdb:///{tmp_path}/t.duckdb"
    with open_store(url) as store:
        plant(store, planted("token_events", "", 0))
    access = {"TRIMTAB_ACCESS_MODE": "proxy", "TRIMTAB_ACCESS_PROXY_ADDRESSES": "127.0.0.1",
              "TRIMTAB_ACCESS_ADMINS": "alex"}  # fmt: skip
    with running_server(url, tmp_path, **access) as server:
        status, text = answer(server, "/api/v1/tokens", Authorization=f"Bearer {TEXT}")
        assert (status, "is not known" in text) == (401, True), text
    verify = subprocess.run(
        [TRIMTAB, "--store", url, "audit", "verify"], capture_output=True, text=True, check=False
    )
    assert verify.returncode == 3
    assert "row token_events:900 is covered by 0 entries" in verify.stdout
