"""Many processes on one PostgreSQL store: one chain, one schema, one execution, one holder."""

import multiprocessing
from datetime import timedelta
from pathlib import Path

import pytest
from beds.apply_bench import JOB, Bench, fill
from beds.file_cluster import FileCluster
from beds.postgres import PostgresBed
from factories import NOW, make_collected, make_samples

from dashboard.decisions.service import DecisionService
from data.base.errors import StoreBusyError
from data.records.commands import Person
from data.settings.all_settings import Settings
from data.settings.apply import ApplySettings
from data.store import Store, open_store

pytestmark = pytest.mark.postgres
# Forks of a process that has imported the store and opened none: each would import for 1.4 CPU s.
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["data.store"])


def _append(url: str, number: int, entries: int) -> None:
    with open_store(url) as store:
        for entry in range(entries):
            store.append_audit(
                at=NOW, actor=f"process {number}", event="stopped", digest="", detail=str(entry)
            )


def run_all(target: object, *arguments: tuple[object, ...]) -> None:
    """Run a function in a process per tuple of arguments and wait for all to end well."""
    processes = [_FORKS.Process(target=target, args=argument) for argument in arguments]  # type: ignore[arg-type]
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
