"""SIGKILL at every step of the worker: what follows looks first and ends right, never twice."""

import multiprocessing
import shutil
import signal
from pathlib import Path

import pytest
from beds.apply_bench import JOB, Bench, fill
from beds.dying_worker import work
from beds.file_cluster import FileCluster
from reliability import Measured

from data.store import open_store

PROCESSES = multiprocessing.get_context("forkserver")
PROCESSES.set_forkserver_preload(["dashboard.apply.worker", "data.store"])
"""Imports once what takes long, from the repository root; each worker is a process of its own."""


def prepared(folder: Path, *, undo: bool) -> None:
    """An approved command that waits, or one that undoes an applied change."""
    cluster = FileCluster(folder / "cluster.json")
    cluster.create({JOB: {"gpus": "4", "model": "H100", "note": ""}})
    with open_store(f"duckdb:///{folder}/t.duckdb") as store:
        fill(store)
        bench = Bench(store, cluster, folder)
        bench.approve()
        bench.ask()
        if undo:
            bench.work(visits=3)
            bench.roll_back()


def worker(folder: Path, at: int) -> tuple[int | None, int]:
    """Run a worker that dies at the given point, 0 never; give exit code and points passed."""
    heard, said = PROCESSES.Pipe(duplex=False)
    process = PROCESSES.Process(
        target=work, args=(folder / "t.duckdb", folder / "cluster.json", at, said)
    )
    process.start()
    said.close()
    process.join(timeout=60)
    try:
        passed = heard.recv() if heard.poll() else 0
    except EOFError:
        passed = 0
    heard.close()
    return process.exitcode, passed


@pytest.mark.slow
@pytest.mark.parametrize("sixth", range(6))
@pytest.mark.parametrize("undo", [False, True], ids=["apply", "rollback"])
def test_a_worker_killed_anywhere_is_followed_by_one_that_ends_right(
    tmp_path: Path, undo: bool, sixth: int, measured: Measured
) -> None:
    """At every point, before and after each write and each command: one change, whole record."""
    made, whole = tmp_path / "made", tmp_path / "whole"
    made.mkdir()
    prepared(made, undo=undo)
    shutil.copytree(made, whole)
    code, points = worker(whole, 0)
    assert (code, points >= 14) == (0, True)
    wanted = ("rolled-back", "4", ["2", "4"]) if undo else ("applied", "2", ["2"])
    for point in range(1 + sixth, points + 1, 6):
        folder = tmp_path / f"at-{point}"
        shutil.copytree(made, folder)
        assert worker(folder, point)[0] == -signal.SIGKILL
        assert worker(folder, 0)[0] == 0
        assert outcome(folder) == wanted, f"killed at point {point} of {points}"
    measured(f"{'rollback' if undo else 'apply'} killed at each of {points} points: one change")


def outcome(folder: Path) -> tuple[str, object, list[str]]:
    """The state, the value in the cluster, and every value that was ever sent."""
    cluster = FileCluster(folder / "cluster.json")
    with open_store(f"duckdb:///{folder}/t.duckdb") as store:
        bench = Bench(store, cluster, folder)
        assert store.reader.verify_audit() == ()
        log = bench.job()["log"]
        assert isinstance(log, list)
        sent = [value for field, value in log if field == "gpus"]
        return bench.state, bench.job()["gpus"], sent
