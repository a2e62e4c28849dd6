"""Many who ask and many who work at once: one command, one execution."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest
from beds.apply_bench import JOB, START, Bench, fill
from beds.file_cluster import FileCluster
from reliability import Measured

from data.base.errors import LeaseLostError, StalePlanError
from data.records.commands import Work
from data.store import open_store

WORKERS = 8


@pytest.fixture
def bench(bench: Bench) -> Bench:
    """An approved recommendation and the job that it is about."""
    bench.approve()
    return bench


@pytest.mark.slow
@pytest.mark.parametrize("store_url", ["duckdb"], indirect=True)  # threads; processes elsewhere
@pytest.mark.parametrize("askers", [50, pytest.param(1000, marks=pytest.mark.slow_end)])
def test_a_thousand_racing_applies_are_one_execution(
    bench: Bench, askers: int, measured: Measured
) -> None:
    """Dozens ask while eight workers work, a thousand at the slow end: each step arrives once."""
    ready = threading.Barrier(WORKERS + 1)
    done = threading.Event()

    def work() -> None:
        worker = bench.new_worker()
        ready.wait()
        while not done.is_set():
            if not worker.work_once():
                done.wait(0.002)

    def ask() -> int:
        bench.ask()
        return 1

    with ThreadPoolExecutor(WORKERS) as workers, ThreadPoolExecutor(64) as asking:
        working = [workers.submit(work) for _ in range(WORKERS)]
        ready.wait()
        asked = sum(asking.map(lambda _number: ask(), range(askers)))
        while bench.state == "applying":
            done.wait(0.02)
        done.set()
        for name in working:
            name.result()
    assert asked == askers
    assert bench.state == "applied"
    assert bench.job()["log"] == [["gpus", "2"], ["note", bench.digest]]
    assert len(bench.store.reader.commands()) == 1
    assert bench.store.reader.verify_audit() == ()
    measured(f"{asked:,} asks: 1 execution")


def test_a_worker_whose_lease_was_taken_over_writes_nothing(bench: Bench) -> None:
    """The late one is fenced off: its word does not reach the journal."""
    bench.ask()
    lasting = timedelta(minutes=3)
    commands = bench.store.commands
    first = commands.take(owner="first", now=START, lasting=lasting)
    assert first is not None
    assert commands.take(owner="second", now=START, lasting=lasting) is None
    second = commands.take(owner="second", now=START + lasting, lasting=lasting)
    assert second is not None
    assert second.fence == first.fence + 1
    before = len(bench.store.reader.audit())
    with pytest.raises(LeaseLostError):
        commands.write(
            first, Work.SENDING, at=START, lasting=lasting, digest=bench.digest, actor="x"
        )
    assert len(bench.store.reader.audit()) == before


def test_an_outcome_that_cannot_follow_is_refused(bench: Bench) -> None:
    """The store keeps to the state machine, whoever writes."""
    bench.ask()
    lease = bench.store.commands.take(owner="w", now=START, lasting=timedelta(minutes=3))
    assert lease is not None
    with pytest.raises(StalePlanError, match="cannot follow"):
        bench.store.commands.write(
            lease,
            "verified",
            at=START,
            lasting=timedelta(minutes=3),
            digest=bench.digest,
            actor="x",
        )


def test_a_lease_of_a_dead_process_is_free_when_the_store_is_opened(tmp_path: Path) -> None:
    """One process holds the file, so whoever opens it need not wait for the lease to run out."""
    cluster = FileCluster(tmp_path / "cluster.json")
    cluster.create({JOB: {"gpus": "4", "model": "H100", "note": ""}})
    url = f"duckdb:///{tmp_path}/t.duckdb"
    with open_store(url) as store:
        fill(store)
        bench = Bench(store, cluster, tmp_path)
        bench.approve()
        bench.ask()
        assert store.commands.take(owner="dead", now=START, lasting=timedelta(hours=9))
    with open_store(url) as store:
        assert store.commands.take(owner="new", now=START, lasting=timedelta(minutes=3))
