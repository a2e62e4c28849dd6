"""PostgreSQL as the store: the same rows as DuckDB, and many processes that do not collide."""

import contextlib
import multiprocessing
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import psycopg
import pytest
import sqlalchemy as sa
from beds.apply_bench import JOB, Bench, fill
from beds.file_cluster import FileCluster
from beds.postgres import PostgresBed, running_postgres
from factories import NOW, make_collected, make_plan, make_recommendation, make_samples

from collectors.base import Window
from collectors.simulated_fleet import SimulatedFleet, SimulatedFleetCollector
from dashboard.decision_service import DecisionService
from data.apply_settings import ApplySettings
from data.errors import StoreBusyError, StoreError
from data.records.commands import CommandKind, Person
from data.records.decisions import Decision
from data.settings import RetentionSettings, Settings
from data.store import Store, open_store
from data.store.bulk import insert_new_rows, read_frame
from data.store.grants import WRITES, grants_sql

pytestmark = pytest.mark.postgres
DIGEST = make_recommendation().digest
_SPAWN = multiprocessing.get_context("spawn")


@pytest.fixture
def shared(postgres_url: str) -> Iterator[Store]:
    """An empty store on PostgreSQL."""
    with open_store(postgres_url) as opened:
        yield opened


@pytest.fixture
def own_server() -> Iterator[PostgresBed]:
    """A server that a test may stop."""
    with running_postgres(max_connections="14", superuser_reserved_connections="1") as bed:
        yield bed


def keep_advice(store: Store) -> None:
    """Keep a cycle with one recommendation."""
    store.keep_cycle(
        cycle_id="c1",
        started_at=NOW,
        finished_at=NOW,
        reports=(),
        forecasts=(),
        plan=make_plan(),
        recommendations=(make_recommendation(),),
    )


@pytest.fixture(scope="module")
def both(
    postgres: PostgresBed, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Store, Store]]:
    """The same half day of a simulated fleet in a DuckDB file and in PostgreSQL."""
    collector = SimulatedFleetCollector(fleet=SimulatedFleet(seed=3, nodes=3), step_seconds=60)
    file = tmp_path_factory.mktemp("both") / "t.duckdb"
    with (
        postgres.database(template="store_template") as url,
        open_store(url) as server,
        open_store(f"duckdb:///{file}") as embedded,
    ):
        for store in (embedded, server):
            for hours in (10, 5):
                end = NOW - timedelta(hours=hours - 5)
                store.keep(collector.collect(Window(start=end - timedelta(hours=6), end=end)))
        yield embedded, server


WINDOW = {"start": NOW - timedelta(hours=9, minutes=17), "end": NOW - timedelta(minutes=3)}
_SLOT = {"slot_seconds": 900}
QUESTIONS = {
    "job history": lambda reader: reader.job_history("", **WINDOW, **_SLOT),
    "fleet history": lambda reader: reader.fleet_history(**WINDOW, **_SLOT),
    "fleet history by the hour": lambda reader: reader.fleet_history(**WINDOW, slot_seconds=3600),
    "group history": lambda reader: reader.group_history(**WINDOW, slot_seconds=3600),
    "boards": lambda reader: reader.boards(**WINDOW),
    "board history": lambda reader: reader.board_history(
        reader.boards(**WINDOW)["gpu_uuid"].iloc[0], **WINDOW, **_SLOT
    ),
    "all readings": lambda reader: reader.power_readings(**WINDOW, most=10**6),
    "disagreements": lambda reader: reader.energy_disagreements(**WINDOW),
    **{
        f"energy by {by}": lambda reader, by=by: reader.energy(**WINDOW, by=by)
        for by in ("job", "namespace", "node", "gpu_model", "day", "hour", "fleet")
    },
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_both_engines_give_the_same_answer(both: tuple[Store, Store], question: str) -> None:
    """Every question of the pages, to the rounding of a sum in another order."""
    embedded, server = (QUESTIONS[question](store.reader) for store in both)
    assert len(embedded) or question == "disagreements"
    pd.testing.assert_frame_equal(embedded, server, rtol=1e-9)


def test_both_engines_give_the_same_view_to_plan_on(both: tuple[Store, Store]) -> None:
    """GPUs, jobs, signals: the planner is told one thing."""
    embedded, server = (
        store.reader.planning_view(NOW, slot_seconds=900, history_days=14) for store in both
    )
    assert embedded.cluster == server.cluster
    assert (embedded.jobs, embedded.known_jobs) == (server.jobs, server.known_jobs)
    assert embedded.signals == server.signals
    pd.testing.assert_frame_equal(embedded.history, server.history, rtol=1e-9)


@pytest.mark.parametrize("table", ["five_minute", "hourly"])
def test_both_engines_roll_up_to_the_same_rows(both: tuple[Store, Store], table: str) -> None:
    """One statement makes them, so they agree to the last bits of a sum."""
    query = f"SELECT * FROM {table} ORDER BY slot_start, gpu_uuid, mig_instance, job_id, holder"  # noqa: S608
    frames = []
    for store in both:
        with store._engine.connect() as connection:
            frames.append(read_frame(connection, query))
    assert len(frames[0]) > 100
    pd.testing.assert_frame_equal(frames[0], frames[1], rtol=1e-12)


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
    monkeypatch.setattr("data.store.partitions._PATIENCE", timedelta(milliseconds=200))
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


def _append(url: str, number: int, entries: int) -> None:
    with open_store(url) as store:
        for entry in range(entries):
            store.append_audit(
                at=NOW, actor=f"process {number}", event="stopped", digest="", detail=str(entry)
            )


def run_all(target: object, *arguments: tuple[object, ...]) -> None:
    """Run a function in a process per tuple of arguments and wait for all to end well."""
    processes = [_SPAWN.Process(target=target, args=argument) for argument in arguments]  # type: ignore[arg-type]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0] * len(processes)


def test_processes_append_to_one_unbroken_chain(shared: Store, postgres_url: str) -> None:
    """Four writers at once: no fork, no gap, nothing lost, each in its own order."""
    run_all(_append, *((postgres_url, number, 50) for number in range(4)))
    entries = shared.reader.audit()
    assert [entry.sequence for entry in entries] == list(range(1, 201))
    assert shared.reader.verify_audit() == ()
    for number in range(4):
        mine = [int(entry.detail) for entry in entries if entry.actor == f"process {number}"]
        assert mine == list(range(50))


def _keep(url: str, number: int) -> None:
    with open_store(url) as store:
        for hour in range(4):
            samples = make_samples(end=NOW + timedelta(hours=hour, minutes=30 * number))
            store.keep(make_collected(samples, batch_id=f"{number}-{hour}"))


def test_collectors_that_overlap_keep_every_sample_once(shared: Store, postgres_url: str) -> None:
    """Two instances by mistake: the facts are those of one."""
    run_all(_keep, *((postgres_url, number) for number in range(3)))
    assert shared.reader.counts()["samples"] == 60 * 4 + 30 * 2
    energy = shared.reader.energy(
        start=NOW - timedelta(hours=2), end=NOW + timedelta(hours=5), by="fleet"
    )
    assert energy["energy_kwh"].iloc[0] == pytest.approx(0.4 * 299 / 60, rel=1e-6)


def _ask_and_work(url: str, folder: Path, asks: int) -> None:
    with open_store(url) as store:
        bench = Bench(store, FileCluster(folder / "cluster.json"), folder)
        for _ in range(asks):
            bench.ask()
            bench.worker.work_once()
        while bench.state == "applying":
            bench.worker.work_once()


@pytest.mark.slow
def test_a_thousand_racing_applies_are_one_execution(
    shared: Store, postgres_url: str, tmp_path: Path
) -> None:
    """1,000 asks from four processes that work as well: one command, and each step sent once."""
    cluster = FileCluster(tmp_path / "cluster.json")
    cluster.create({JOB: {"gpus": "4", "model": "H100", "note": ""}})
    fill(shared)
    bench = Bench(shared, cluster, tmp_path)
    bench.approve()
    run_all(_ask_and_work, *((postgres_url, tmp_path, 250) for _ in range(4)))
    assert bench.state == "applied"
    assert bench.job()["log"] == [["gpus", "2"], ["note", bench.digest]]
    assert len(shared.reader.commands()) == 1
    events = [entry.event for entry in shared.reader.audit()]
    assert [events.count(name) for name in ("approved", "apply-asked", "applied")] == [1, 1, 1]
    assert shared.reader.verify_audit() == ()


def _open(url: str) -> None:
    open_store(url).close()


def test_processes_that_migrate_at_once_make_one_schema(postgres: PostgresBed) -> None:
    """Whoever comes second finds the work done."""
    with postgres.database() as url:
        run_all(_open, *((url,) for _ in range(4)))
        with open_store(url) as store:
            assert store.reader.counts()["samples"] == 0


def test_a_second_instance_of_a_part_is_refused(shared: Store, postgres_url: str) -> None:
    """The holder is named; when it lets go, or dies, the part is free."""
    with open_store(postgres_url) as other:
        with shared.sole("cycle"), shared.sole("apply"):
            assert other.sole("cycle").is_taken()
            with pytest.raises(StoreBusyError, match=r"'cycle'.*database session \d+"):
                other.sole("cycle").require()
        assert not other.sole("cycle").is_taken()
        with other.sole("cycle"):
            assert shared.sole("cycle").is_taken()


@pytest.fixture
def roles(postgres: PostgresBed, shared: Store) -> dict[str, str]:
    """The address of the store for each role."""
    name = shared._engine.url.database or ""
    with postgres.connection(name) as owner:
        owner.execute(grants_sql().encode())
        owner.execute(grants_sql().encode())  # may be run again
    return {role: postgres.url(name, role=f"trimtab_{role}") for role in ("web", "cycle", "apply")}


def test_every_table_says_who_may_write_it(shared: Store) -> None:
    """A new table without a line in the grants fails here."""
    assert set(shared.reader.counts()) | {"schema_version"} | {"dirty_hours", "retained"} == set(
        WRITES
    )


def test_each_role_can_do_its_part(roles: dict[str, str]) -> None:
    """A change from facts to its end, by three roles none of which could do it alone."""
    with (
        open_store(roles["web"]) as web,
        open_store(roles["cycle"]) as cycle,
        open_store(roles["apply"]) as applier,
    ):
        cycle.keep(make_collected())
        keep_advice(cycle)
        web.append_decision(digest=DIGEST, decision=Decision.APPROVED, by="A", at=NOW, comment="")
        web.commands.ask(
            kind=CommandKind.APPLY, digest=DIGEST, subject=DIGEST, target="kubernetes",
            person=Person(name="A"), at=NOW,
        )  # fmt: skip
        hour = timedelta(hours=1)
        lease = applier.commands.take(owner="w", now=NOW, lasting=hour)
        assert lease is not None
        for event in ("prepared", "applied"):
            applier.commands.write(
                lease, event, at=NOW, lasting=hour, digest=DIGEST, actor="trimtab"
            )
        applier.commands.finish(lease)
        cycle.forget(RetentionSettings(raw_days=1), NOW + timedelta(days=9))
        assert cycle.outbox.fill(lambda _entry: (), now=NOW) == 0
        assert web.reader.recommendation(DIGEST, now=NOW).state == "applied"
        assert web.reader.verify_audit() == ()


REFUSED = {
    "web writes a plan": ("web", "INSERT INTO plans VALUES ('p', 'c', '{}')"),
    "web writes advice": ("web", "INSERT INTO recommendations VALUES ('d', 'c', 'p', '{}')"),
    "web changes facts": ("web", "DELETE FROM samples"),
    "web marks a command applied": (
        "web",
        "INSERT INTO journal VALUES (1, 1, 'c', 'd', 'applied', -1, now(), 1, '', '')",
    ),
    "web takes a lease": ("web", "UPDATE leases SET owner = 'web', finished = true"),
    "cycle marks a command applied": (
        "cycle",
        "INSERT INTO journal VALUES (1, 1, 'c', 'd', 'applied', -1, now(), 1, '', '')",
    ),
    "cycle approves": (
        "cycle",
        "INSERT INTO decisions VALUES (1, 'd', 'approved', 'x', now(), '')",
    ),
    "cycle asks to apply": (
        "cycle",
        "INSERT INTO commands VALUES (1, 1, 'c', 'apply', 'd', 'd', 't', '', '{}', now())",
    ),
    "applier approves": (
        "apply",
        "INSERT INTO decisions VALUES (1, 'd', 'approved', 'x', now(), '')",
    ),
    "applier writes a plan": ("apply", "INSERT INTO plans VALUES ('p', 'c', '{}')"),
    "web drops history": ("web", "SELECT drop_partitions('samples', now())"),
    **{
        f"{role} {word}s the record": (role, statement)
        for role in ("web", "cycle", "apply")
        for word, statement in (
            ("edit", "UPDATE audit SET actor = 'B'"),
            ("cut", "DELETE FROM audit"),
            ("empty", "TRUNCATE audit"),
            ("disable", "ALTER TABLE audit DISABLE TRIGGER ALL"),
            ("drop", "DROP TABLE audit"),
        )
    },
}


@pytest.mark.parametrize("attempt", REFUSED)
def test_a_role_is_refused_what_is_not_its_part(roles: dict[str, str], attempt: str) -> None:
    """By the server itself, whatever the program thinks it may do."""
    role, statement = REFUSED[attempt]
    with (
        open_store(roles[role]) as store,
        pytest.raises(StoreError, match=f"trimtab_{role}"),
        store._engine.begin() as connection,
    ):
        connection.exec_driver_sql(statement)


def test_a_role_cannot_migrate(postgres: PostgresBed, roles: dict[str, str]) -> None:
    """It says whose work that is."""
    assert roles
    with postgres.database() as url:
        role = url.replace("trimtab@", "trimtab_web@", 1)
        with pytest.raises(StoreError, match=r"trimtab store migrate"):
            open_store(role)
        with pytest.raises(StoreError, match="there is no store"):
            open_store(role, create=False)


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


def test_a_stop_on_one_host_stops_the_applier_on_another(
    shared: Store, postgres_url: str, tmp_path: Path
) -> None:
    """The page's host has another stop file than the applier's; the record carries the wish."""
    cluster = FileCluster(tmp_path / "cluster.json")
    cluster.create({JOB: {"gpus": "4", "model": "H100", "note": ""}})
    fill(shared)
    with open_store(postgres_url) as elsewhere:
        page = DecisionService(
            store=elsewhere,
            settings=lambda: Settings(
                apply=ApplySettings(stop_file=str(tmp_path / "page" / "STOP"))
            ),
        )
        bench = Bench(shared, cluster, tmp_path)
        bench.approve()
        bench.ask()
        page.stop(Person(name="Kim"), "maintenance")
        bench.work(visits=3)
        assert bench.job()["log"] == []
        assert "stopped by Kim" in bench.held
        assert page.resume(Person(name="Kim"))
        bench.work()
    assert bench.state == "applied"
    assert shared.reader.verify_audit() == ()
