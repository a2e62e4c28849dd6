"""A change made for memory, or to a share, is judged by memory: room, no room, or never read.

A share is judged by its requests too: slowed beside others, as fast as before, or not timed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from beds.apply_bench import JOB, START, Bench, fill
from beds.file_cluster import FileCluster
from factories import make_collected, make_range, make_recommendation, make_samples

from dashboard.apply.worker.verification import is_undecided, request_speed
from data.facts.columns import ALLOCATIONS, SERVING, check_frame
from data.records.actions import Action
from data.records.commands import Measurement
from data.store import Store, open_store
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


def timed(minutes: int, *, pace: float, requests: float = 20.0) -> pd.DataFrame:
    """What an engine timed in slots of five minutes up to the moment, from START - 24 h on."""
    slots = pd.date_range(START - timedelta(hours=24), periods=minutes // 5, freq="5min")
    tokens = requests * (150 + 100 * (np.arange(len(slots)) % 3))
    frame = pd.DataFrame(
        {
            "slot_start": slots.floor("5min"),
            "label_id": JOB,
            "engine": "vllm",
            "model": "m",
            "request_count": requests,
            "generation_tokens": tokens,
            "request_seconds": tokens * pace * (1 + 0.02 * (np.arange(len(slots)) % 2)),
        }
    )
    return check_frame(frame, SERVING)


def held() -> pd.DataFrame:
    """The pod of the service, as its scheduler tells."""
    start = pd.Timestamp(START - timedelta(hours=24)).as_unit("us")
    row = {"job_id": JOB, "label_id": JOB, "started_at": start, "seen_at": start, "ended_at": start}
    return check_frame(pd.DataFrame([row | {"source": "test"}]), ALLOCATIONS)


@dataclass
class ShareBench:
    """A share that was taken at START, its day before, and the hours since."""

    bench: Bench
    store: Store

    def after(self, hours: int, *, pace: float, requests: float = 20.0) -> None:
        """Let hours pass in which the board is read and the engine times its requests."""
        end = START + timedelta(hours=hours)
        samples = make_samples(gpus=6, minutes=60 * hours, end=end)
        served = timed(60 * (24 + hours), pace=pace, requests=requests)
        served = served[served["slot_start"] >= START]
        name = f"{hours}"
        self.store.keep(make_collected(samples, jobs=(), serving=served, batch_id=name))
        self.bench.clock.at = end + timedelta(minutes=30)
        self.bench.work(visits=8)


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[ShareBench]:
    """A share that was applied, of a service whose engine timed a day of requests."""
    cluster = FileCluster(tmp_path / "cluster.json")
    cluster.create({JOB: {"gpus": "4", "model": "H100", "note": ""}})
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        day = make_samples(gpus=4, minutes=24 * 60, end=START)
        served = timed(24 * 60, pace=0.02)
        store.keep(make_collected(day, jobs=(), serving=served, allocations=held()))
        fill(store, SHARE)
        bench = Bench(store, cluster, tmp_path)
        bench.digest = SHARE.digest
        bench.set(auto_rollback=True)
        bench.approve()
        bench.ask()
        bench.work()
        assert bench.state == "applied"
        yield ShareBench(bench, store)


@pytest.mark.parametrize(
    ("pace", "state", "gpus"), [(0.0206, "verified", "6"), (0.03, "rolled-back", "4")]
)
def test_a_share_that_is_slowed_beside_others_is_given_back(
    shared: ShareBench, pace: float, state: str, gpus: str
) -> None:
    """Its board has room and shows work as before: seconds a token tell, and are told."""
    shared.after(6, pace=pace)
    assert (shared.bench.state, shared.bench.job()["gpus"]) == (state, gpus)
    (row,) = shared.store.reader.journal(digest=SHARE.digest, events=("verified", "fell-short"))
    read = from_json(Measurement, row.record)
    assert read.throughput_ratio == pytest.approx(0.02 / pace, abs=0.01)


def test_a_share_that_has_served_little_is_watched_on(shared: ShareBench) -> None:
    """Three requests tell nothing: no verdict after the usual slots, one when more have come."""
    shared.after(3, pace=0.03, requests=0.0)
    assert shared.bench.state == "applied"
    assert "no samples yet" in shared.bench.held
    shared.after(6, pace=0.03)
    assert shared.bench.state == "rolled-back"


def test_no_speed_is_told_of_few_requests_or_no_times() -> None:
    """Below 30 requests, below eight slots, or without durations; requests count without tokens."""
    day = timed(24 * 60, pace=0.02)
    slower = timed(24 * 60, pace=0.04)
    told = request_speed(day, slower)
    assert told is not None
    assert told[0] == pytest.approx(0.5)
    assert 0 < told[1] < 0.01
    for few in (
        slower[:7],
        slower.assign(request_count=0.1),
        slower.assign(request_seconds=np.nan),
    ):
        assert request_speed(day, few) is None
    assert is_undecided(day, slower[:7], 0.9)
    assert not is_undecided(day, slower.assign(request_seconds=np.nan), 0.9)
    assert not is_undecided(day[:3], slower, 0.9)
    unsaid = request_speed(day, slower.assign(generation_tokens=np.nan))
    assert unsaid is not None
    assert unsaid[0] == pytest.approx(0.5, abs=0.05)


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
