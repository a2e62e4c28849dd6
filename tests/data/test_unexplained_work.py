"""A board that works without a job is told to the planner; of which nothing is known, too."""

from datetime import timedelta
from pathlib import Path

import numpy as np
import pytest
from factories import NOW, make_collected, make_job, make_samples

from data.store import open_store

NAN = float("nan")


@pytest.mark.parametrize(
    ("utilization", "memory_mib", "idle"),
    [
        (0.0, 500.0, True),
        (NAN, 500.0, True),
        (0.0, NAN, True),
        (0.4, 500.0, False),
        (0.4, NAN, False),
        (0.0, 30_000.0, False),
        (NAN, 30_000.0, False),
        (NAN, NAN, False),
    ],
)
@pytest.mark.parametrize("minutes_idle_since", [0, 20])
def test_only_a_board_known_to_be_idle_is_idle(
    tmp_path: Path, utilization: float, memory_mib: float, idle: bool, minutes_idle_since: int
) -> None:
    """The time is that of the last reading that may have been work, whatever came after."""
    busy = np.arange(60) < 60 - minutes_idle_since
    samples = make_samples(
        job_id="",
        utilization_ratio=np.where(busy, utilization, 0.0),
        memory_used_mib=np.where(busy, memory_mib, 500.0),
    )
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        store.keep(make_collected(samples, ()))
        (gpu,) = store.reader.planning_view(NOW, slot_seconds=900, history_days=7).cluster.gpus
    if idle:
        assert gpu.unexplained_at is None
        return
    last = NOW - timedelta(minutes=minutes_idle_since)
    assert gpu.unexplained_at is not None
    assert abs(gpu.unexplained_at - last) <= timedelta(minutes=5)


def test_work_of_a_job_is_explained(tmp_path: Path) -> None:
    """A label is enough."""
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        store.keep(make_collected(make_samples(), (make_job(),)))
        (gpu,) = store.reader.gpus()
    assert gpu.unexplained_at is None
