"""Replicas that run, as Kubernetes tells, and of whose engine nothing is read."""

from collections.abc import Iterator
from datetime import timedelta

import numpy as np
import pandas as pd
import pytest
from factories import NOW, make_collected

from dashboard.resources.rows import service_row
from dashboard.serving.outlook import service_outlooks
from data.facts.columns import ALLOCATIONS, SERVING, check_frame
from data.records.serving import ServiceOutlook
from data.settings.serving import ServingSettings
from data.store import Store, open_store

SETTINGS = ServingSettings()
JOB = "search/deployment/embed"
PODS = [f"search/embed-5c6d7f8b9-{letter * 5}" for letter in "bcd"]


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """An empty store, on both engines."""
    with open_store(store_url) as opened:
        yield opened


def read(label: str) -> pd.DataFrame:
    """A replica that takes a request a second for two days."""
    starts = pd.to_datetime(
        [NOW - timedelta(minutes=5 * slot) for slot in range(576, 0, -1)], utc=True
    )
    return check_frame(
        pd.DataFrame(
            {"slot_start": starts.as_unit("us"), "label_id": label, "engine": "vllm", "model": "m",
             "address": label, "running_requests": 4.0, "waiting_requests": 0.0,
             "finished_requests": 300.0, "request_seconds": 1200.0, "request_count": 300.0}
        ),
        SERVING,
    )  # fmt: skip


def foreseen(
    store: Store, reads: list[str], pods: list[str], *, hours: float = 2.0, told: float = 0.0,
    ended: bool = False,
) -> ServiceOutlook:  # fmt: skip
    """The one service, whose pods began `hours` ago and were told of `told` hours ago."""
    frame = pd.DataFrame(
        [{"job_id": JOB, "label_id": label, "started_at": NOW - timedelta(hours=hours),
          "seen_at": NOW - timedelta(hours=told), "source": "k",
          "ended_at": NOW if ended and pod == pods[-1] else pd.NaT}
         for pod in pods for label in (pod, f"pod-uid:{pod}")]
    )  # fmt: skip
    for name in ("started_at", "seen_at", "ended_at"):
        frame[name] = pd.to_datetime(frame[name], utc=True).astype("datetime64[us, UTC]")
    serving = pd.concat([read(label) for label in reads], ignore_index=True)
    allocations = check_frame(frame, ALLOCATIONS)
    store.keep(make_collected(serving=serving, allocations=allocations))
    (found,) = service_outlooks(store.reader, SETTINGS, NOW)
    return found


def test_a_replica_whose_engine_is_not_read_is_told_and_kept(store: Store) -> None:
    """Three run and two tell of their requests: two are enough for what is known."""
    found = foreseen(store, PODS[:2], PODS)
    assert (found.replicas, found.silent_replicas) == (2, 1)
    assert set(found.required_replicas) == {3}
    assert found.reason.startswith("no engine was read of 1 of 3 replicas")
    assert (found.bounds, found.peak_load_ratio) == (None, None)
    row = service_row(found, SETTINGS, NOW)
    assert (row.state, row.required_replicas, row.reason) == ("unknown", 3, found.reason)


@pytest.mark.parametrize(
    ("pods", "facts"),
    [
        (PODS, {"hours": 0.5}),  # it may be loading its model
        (PODS, {"told": 1.5}),  # it may have ended since
        (PODS, {"ended": True}),
        ([*PODS[:2], "search/embed-0"], {}),  # another role
        (PODS[:2], {}),
    ],
)
def test_a_pod_that_may_serve_nothing_is_not_missed(
    store: Store, pods: list[str], facts: dict[str, float]
) -> None:
    """What starts, ended, or is called otherwise than those that tell."""
    found = foreseen(store, PODS[:2], pods, **facts)
    assert found.silent_replicas == 0
    assert "no engine was read" not in found.reason
    assert service_row(found, SETTINGS, NOW).state != "unknown"


def test_workers_behind_a_leader_are_not_missed(store: Store) -> None:
    """Of an engine over several pods with numbers the first answers for all."""
    pods = [f"search/embed-{number}" for number in range(4)]
    found = foreseen(store, pods[:1], pods)
    assert (found.replicas, found.silent_replicas) == (1, 0)
    assert np.isfinite(found.requests_per_second or np.nan)
