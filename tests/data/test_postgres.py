"""PostgreSQL as the store: odd values, partitions, and a server that fails, is full or locked."""

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import psycopg
import pytest
import sqlalchemy as sa
from beds.postgres import PostgresBed, running_postgres
from factories import NOW, make_collected, make_samples

from data.base.errors import StoreBusyError, StoreError
from data.settings.all_settings import RetentionSettings
from data.store import Store, open_store
from data.store.engine.bulk import insert_new_rows, read_frame

pytestmark = pytest.mark.postgres


@pytest.fixture
def own_server() -> Iterator[PostgresBed]:
    """A server that a test may stop."""
    with running_postgres(max_connections="14", superuser_reserved_connections="1") as bed:
        yield bed


def test_hostile_text_and_odd_numbers_come_back_as_they_went(shared: Store) -> None:
    """Quotes, line ends, separators, COPY's own marks; doubles to the last bit, unknown as such."""
    texts = ['a"b', "a,b", "line\nend\r\n", "\\N", "\\.", "", "NULL", "'; DROP TABLE audit; --",
             "🜁 ünï", "%s %(x)s :name $1", "\t", "t"]  # fmt: skip
    numbers = [0.1 + 0.2, 1e-308, 1.7976931348623157e308, -0.0, np.nan, 5e-324, 1 / 3, 2**53 + 1.0,
               0.0, -1.5, 1e22, 123456.789]  # fmt: skip
    samples = make_samples(minutes=12).assign(job_id=texts, power_watts=numbers)
    with shared._transaction() as connection:
        connection.exec_driver_sql("SELECT make_partition('samples', '2026-01-05')")
        insert_new_rows(
            connection, "samples", samples.assign(batch_id="b"), key=("sampled_at", "job_id")
        )
        names = ", ".join(samples.columns)
        back = read_frame(connection, f"SELECT {names} FROM samples ORDER BY sampled_at")  # noqa: S608
    expected = samples.sort_values("sampled_at").reset_index(drop=True)
    pd.testing.assert_frame_equal(back, expected, check_exact=True, check_dtype=False)


def test_a_parameter_is_no_sql(shared: Store) -> None:
    """What COPY is told of a person's input is quoted."""
    shared.keep(make_collected())
    hostile = "x' OR '1'='1"
    history = shared.reader.job_history(
        hostile, start=NOW - timedelta(hours=2), end=NOW, slot_seconds=900
    )
    assert history.empty


def test_a_nul_in_a_label_does_not_stop_the_batch(shared: Store) -> None:
    """PostgreSQL has no such character: it is replaced, and everything else is kept."""
    shared.keep(make_collected(make_samples(minutes=2, node="bad\0node")))
    assert {gpu.node for gpu in shared.reader.gpus()} == {"bad\N{REPLACEMENT CHARACTER}node"}


def partitions(store: Store, table: str) -> list[str]:
    """The names of a table's partitions."""
    query = (
        "SELECT inhrelid::REGCLASS::TEXT AS name FROM pg_inherits"
        " WHERE inhparent = CAST(:parent AS REGCLASS) ORDER BY 1"
    )
    with store._engine.connect() as connection:
        return [row.name for row in connection.execute(sa.text(query), {"parent": table})]


def test_retention_drops_whole_partitions(shared: Store) -> None:
    """A day of samples goes as a table; the hours of a part day go as rows."""
    for days in range(4):
        shared.keep(make_collected(make_samples(end=NOW - timedelta(days=days))))
    assert len(partitions(shared, "samples")) == 4
    retention = RetentionSettings(raw_days=1.5, five_minute_days=2, hourly_days=60)
    gone = shared.forget(retention, NOW)
    assert gone["samples"] == 120
    assert partitions(shared, "samples") == ["samples_20260104", "samples_20260105"]
    assert partitions(shared, "five_minute") == ["five_minute_202601"]
    counts = shared.reader.counts()
    assert (counts["samples"], counts["hourly"]) == (120, 8)
    assert shared.forget(retention, NOW)["samples"] == 0


def test_a_reader_puts_retention_off_and_breaks_nothing(
    shared: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A partition is dropped when nobody reads the table; until then the rows stay."""
    monkeypatch.setattr("data.store.engine.partitions._LOCK_TIMEOUT", timedelta(milliseconds=200))
    shared.keep(make_collected())
    retention, later = RetentionSettings(raw_days=1, five_minute_days=1), NOW + timedelta(days=9)
    with shared._engine.begin() as reader:
        reader.exec_driver_sql("SELECT count(*) FROM samples")
        assert shared.forget(retention, later)["samples"] == 0
    assert shared.reader.counts()["samples"] == 60
    assert shared.forget(retention, later)["samples"] == 60


def test_nobody_edits_the_record(shared: Store) -> None:
    """Not even the owner of the tables by an ordinary statement."""
    shared.append_audit(at=NOW, actor="A", event="stopped", digest="", detail="")
    for statement in ("UPDATE audit SET actor = 'B'", "DELETE FROM audit", "TRUNCATE audit"):
        with (
            pytest.raises(StoreError, match="append-only"),
            shared._engine.begin() as connection,
        ):
            connection.exec_driver_sql(statement)
    assert shared.reader.verify_audit() == ()


def test_a_restart_between_two_batches_costs_nothing(own_server: PostgresBed) -> None:
    """The pool looks before it gives a connection, and a claim is taken again."""
    with open_store(own_server.create("r")) as store, store.sole("cycle") as claim:
        store.keep(make_collected())
        own_server.restart()
        claim.require()
        assert store.sole("cycle").is_taken()
        assert store.keep(make_collected(batch_id="again")) == 0
        assert store.reader.counts()["samples"] == 60


def test_a_crash_of_the_server_in_a_batch_keeps_all_of_it_or_nothing(
    own_server: PostgresBed,
) -> None:
    """The failure is named, and the same batch sent again is whole and there once."""
    stopped: list[int] = []

    def crash(done: int, _total: int) -> None:
        if not stopped:
            stopped.append(done)
            own_server.stop("immediate")

    with open_store(own_server.create("c")) as store:
        store.keep(make_collected())
        later = make_collected(make_samples(end=NOW + timedelta(hours=3)), batch_id="later")
        with pytest.raises(StoreError, match=r"cannot be reached|cannot use"):
            store.keep(later, progress=crash)
        with pytest.raises(StoreError, match="cannot be reached"):
            store.reader.counts()
        own_server.start()
        assert store.reader.counts()["samples"] == 60
        assert (store.keep(later), store.keep(later)) == (60, 0)
        assert store.reader.counts()["batches"] == 2


def test_a_server_without_free_connections_is_busy(own_server: PostgresBed) -> None:
    """It says so, and goes on when one is free."""
    url = own_server.create("f")
    with open_store(url) as store:
        own_server.admin("CREATE ROLE plain LOGIN")
        held = []
        try:
            with contextlib.suppress(psycopg.OperationalError):
                held.extend(own_server.connection("f", role="plain") for _ in range(20))
            with pytest.raises(StoreBusyError, match="no further connection"):
                open_store(url.replace("trimtab@", "plain@", 1))
        finally:
            for entry in held:
                entry.close()
        assert store.reader.counts()["samples"] == 0


def test_a_statement_that_takes_too_long_is_ended(shared: Store) -> None:
    """A slow server is an error with a name, not a hang."""
    with shared._engine.connect() as connection:
        connection.exec_driver_sql("SET statement_timeout = 100")
        with pytest.raises(StoreError, match="took too long"):
            connection.exec_driver_sql("SELECT pg_sleep(30)")


def test_a_lock_that_is_not_given_up_is_named(shared: Store) -> None:
    """A writer that hangs makes others wait a time, and then they say so."""
    with shared._engine.begin() as holder, shared._engine.connect() as waiting:
        holder.exec_driver_sql("LOCK TABLE audit")
        waiting.exec_driver_sql("SET lock_timeout = 100")
        with pytest.raises(StoreBusyError, match="kept waiting"):
            waiting.exec_driver_sql("SELECT * FROM audit")


def test_an_absent_server_is_named_without_its_password(tmp_path: Path) -> None:
    """The message tells where it was looked for."""
    with pytest.raises(StoreError, match="cannot be reached") as caught:
        open_store(f"postgresql+psycopg://me:sesame@/gone?host={tmp_path}")
    assert "sesame" not in str(caught.value)
