"""A change made for memory, or to a share, is judged by memory: room, no room, or never read."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from beds.apply_bench import JOB, START, Bench, fill
from beds.file_cluster import FileCluster
from factories import make_collected, make_range, make_recommendation, make_samples

from data.records.actions import Action
from data.records.commands import Measurement
from data.store import open_store
from data.store.engine.record_json import from_json

LIMIT = 80_336.0
SPREAD = replace(
    make_recommendation(),
    action=Action.SPREAD,
    proposed=replace(make_recommendation().now, gpu_count=6),
    savings=replace(make_recommendation().savings, gpu_hours=make_range(0, "GPU-h")),
    details=(("memory_limit_mib", f"{LIMIT:.0f}"),),
)


SHARE = replace(
    SPREAD,
    action=Action.TAKE_SHARE,
    proposed=replace(make_recommendation().now, gpu_count=6, boards=3.0),
    savings=make_recommendation().savings,
)


@pytest.mark.parametrize(
    ("memory_mib", "state", "gpus"),
    [(60_000.0, "verified", "6"), (81_000.0, "rolled-back", "4"), (np.nan, "applied", "6")],
)
def test_a_share_whose_board_is_full_is_given_back(
    tmp_path: Path, memory_mib: float, state: str, gpus: str
) -> None:
    """By the rule that settings allow; what was never read is unknown, and stays."""
    cluster = FileCluster(tmp_path / "cluster.json")
    cluster.create({JOB: {"gpus": "4", "model": "H100", "note": ""}})
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        store.keep(make_collected(make_samples(gpus=4, minutes=24 * 60, end=START), jobs=()))
        fill(store, SHARE)
        bench = Bench(store, cluster, tmp_path)
        bench.digest = SHARE.digest
        bench.set(auto_rollback=True)
        bench.approve()
        bench.ask()
        bench.work()
        assert bench.state == "applied"
        after = make_samples(
            gpus=6, minutes=360, end=START + timedelta(hours=6), memory_used_mib=memory_mib
        )
        store.keep(make_collected(after, jobs=()))
        bench.clock.forward(hours=8)
        bench.work(visits=8)
        assert (bench.state, bench.job()["gpus"]) == (state, gpus)
        (row,) = store.reader.journal(
            digest=SHARE.digest, events=("verified", "fell-short", "unmeasured")
        )
        assert row.event == {"verified": "verified", "applied": "unmeasured"}.get(
            state, "fell-short"
        )


@pytest.mark.parametrize(
    ("memory_mib", "state"),
    [(60_000.0, "verified"), (81_000.0, "fell-short"), (np.nan, "applied")],
)
def test_memory_after_the_change_decides(tmp_path: Path, memory_mib: float, state: str) -> None:
    """It costs GPU-hours and is applied all the same; what fell short is not put back by rule."""
    cluster = FileCluster(tmp_path / "cluster.json")
    cluster.create({JOB: {"gpus": "4", "model": "H100", "note": ""}})
    loss = replace(SPREAD.savings, gpu_hours=replace(make_range(0, "GPU-h"), low=-50, central=-48))
    one = replace(SPREAD, savings=loss)
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        fill(store, one)
        bench = Bench(store, cluster, tmp_path)
        bench.digest = one.digest
        bench.set(auto_rollback=True)
        bench.approve()
        bench.ask()
        bench.work()
        assert bench.state == "applied"
        assert bench.job()["gpus"] == "6"
        after = make_samples(
            gpus=6, minutes=360, end=START + timedelta(hours=6), memory_used_mib=memory_mib
        )
        store.keep(make_collected(after, jobs=()))
        bench.clock.forward(hours=8)
        bench.work(visits=5)
        assert bench.state == state
        assert bench.job()["gpus"] == "6"
        (row,) = store.reader.journal(
            digest=one.digest, events=("verified", "fell-short", "unmeasured")
        )
        read = from_json(Measurement, row.record)
    if state == "applied":
        assert row.event == "unmeasured"
        assert read.memory_peak_mib is None
        assert "no memory was read" in read.reasons[-1]
    else:
        assert (read.memory_peak_mib, read.memory_limit_mib) == (memory_mib, LIMIT)
