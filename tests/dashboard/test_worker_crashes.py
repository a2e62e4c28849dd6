"""SIGKILL at every step of the worker: what follows looks first and ends right, never twice."""

import shutil
import signal
from pathlib import Path

import pytest
from beds.apply_bench import JOB, Bench, fill
from beds.dying_worker import running_parent
from beds.file_cluster import FileCluster
from reliability import Measured

from data.store import open_store


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


@pytest.mark.slow
@pytest.mark.slow_end
@pytest.mark.parametrize("undo", [False, True], ids=["apply", "rollback"])
def test_a_worker_killed_anywhere_is_followed_by_one_that_ends_right(
    tmp_path: Path, undo: bool, measured: Measured
) -> None:
    """At every point, before and after each write and each command: one change, whole record."""
    made, whole = tmp_path / "made", tmp_path / "whole"
    made.mkdir()
    prepared(made, undo=undo)
    shutil.copytree(made, whole)
    wanted = ("rolled-back", "4", ["2", "4"]) if undo else ("applied", "2", ["2"])
    with running_parent(whole) as parent:
        assert parent.points >= 14
        for point in range(1, parent.points + 1):
            folder = tmp_path / f"at-{point}"
            shutil.copytree(made, folder)
            assert parent.worker(folder, point) == -signal.SIGKILL
            assert parent.worker(folder, 0) == 0
            assert outcome(folder) == wanted, f"killed at point {point} of {parent.points}"
            shutil.rmtree(folder)
    assert outcome(whole) == wanted
    said = f"killed at each of {parent.points} points: one change"
    measured(f"{'rollback' if undo else 'apply'} {said}")


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
