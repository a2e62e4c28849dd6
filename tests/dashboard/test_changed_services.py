"""What was learnt of a service before its model, engine, image, command or GPUs changed."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from factories import NOW, make_collected, make_samples

from dashboard.serving_outlook import foreseen_serving
from data.columns import ALLOCATIONS, SERVING, check_frame
from data.records.serving import ServiceOutlook
from data.serving_settings import ServingSettings
from data.store import Store, open_store

SETTINGS = ServingSettings(cold_start_minutes=5)
CHANGED = NOW - timedelta(hours=3)
DAYS, BEFORE, AFTER = 3, 3 * 288 - 36, 36


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """An empty store, on both engines."""
    with open_store(store_url) as opened:
        yield opened


def served(
    label: str, *, since: datetime, slots: int, seconds: float, **texts: str
) -> pd.DataFrame:
    """A replica that takes 2 requests a second, `seconds` each, and is full where it is slow."""
    rates = 2.0 + np.random.default_rng(slots).normal(0, 0.05, slots)
    starts = pd.date_range(since, periods=slots, freq="5min").as_unit("us")
    full = seconds < 5
    values: dict[str, object] = {
        "slot_start": starts, "label_id": label, "engine": "vllm", "model": "m", "address": "a",
        "running_requests": 40.0 if full else 16.0, "waiting_requests": 2.0 if full else 0.0,
        "finished_requests": 300 * rates, "request_seconds": 300 * seconds * rates,
        "request_count": 300 * rates, "kv_cache_ratio": 0.9 if full else 0.2,
    }  # fmt: skip
    return check_frame(pd.DataFrame(values | texts), SERVING)


def held(label: str, since: datetime, runs: str, *, starts: int, seconds: float) -> pd.DataFrame:
    """Pods of one workload that began five minutes apart; the first has this name."""
    frame = pd.DataFrame(
        [{"job_id": "search/Deployment/ranker", "label_id": label if not number else f"x{number}",
          "started_at": since + timedelta(minutes=5 * number), "seen_at": NOW, "source": "k",
          "start_seconds": seconds, "runs": runs,
          "ended_at": None if runs != "old" and not number else CHANGED + timedelta(hours=1)}
         for number in range(starts)]
    )  # fmt: skip
    for name in ("started_at", "seen_at", "ended_at"):
        frame[name] = pd.to_datetime(frame[name], utc=True).astype("datetime64[us, UTC]")
    return check_frame(frame, ALLOCATIONS)


def changed(store: Store, what: str, *, end: int = AFTER) -> ServiceOutlook:
    """A service of three days of which this changed three hours ago: 4 s became 8 s."""
    began = CHANGED - timedelta(minutes=5 * BEFORE)
    texts = {what: "other"} if what in ("model", "engine") else {}
    name = "search/ranker-0" if what != "pods" else "search/ranker-7ddc86b5f4-2c4xk"
    later = "search/ranker-0" if what != "pods" else "search/ranker-9c7d8b6f5x-zzz9b"
    old = served(name, since=began, slots=BEFORE, seconds=4.0)
    new = served(later, since=CHANGED, slots=end, seconds=8.0, **texts)
    facts: dict[str, pd.DataFrame] = {}
    if what in ("pods", "runs"):
        spans = [
            held(name, began, "old", starts=12, seconds=100.0),
            held(later, CHANGED, "new", starts=10, seconds=900.0),
        ]
        facts = {"allocations": pd.concat(spans, ignore_index=True)}
    if what in ("boards", "gpu_model"):
        for number, end_of in enumerate((CHANGED, NOW)):
            boards = {"gpus": 1 + number} if what == "boards" else {"gpu_model": f"GPU {number}"}
            times = make_samples(
                job_id=name, end=end_of - timedelta(minutes=1), minutes=180, **boards
            )
            store.keep(make_collected(times, batch_id=f"boards {number}"))
    store.keep(make_collected(serving=pd.concat([old, new]), batch_id="served", **facts))
    (found,) = foreseen_serving(store.reader, SETTINGS, NOW)
    return found


@pytest.mark.parametrize("what", ["model", "engine", "pods", "runs", "boards", "gpu_model"])
def test_what_was_learnt_before_a_change_does_not_count(store: Store, what: str) -> None:
    """Full slots, seconds, cache: of the new alone; demand is the service's as before."""
    found = changed(store, what)
    assert found.service_seconds is not None
    assert found.service_seconds.central == pytest.approx(8.0)
    assert found.service_seconds.low == pytest.approx(8.0)
    assert not found.seen_full
    assert found.kv_cache_max_ratio is None
    assert found.slots_per_replica == 32  # twice what was seen, as the cache tells
    assert found.reason == ""
    assert len(found.rates_q95) == 36
    assert found.arrival_scv == 1.0


@pytest.mark.parametrize("what", ["nothing", "model", "runs"])
def test_without_a_change_a_week_counts_as_before(store: Store, what: str) -> None:
    """A slot of the new alone is enough to begin with; the full slots of before are not lost."""
    found = changed(store, what, end=1 if what != "nothing" else AFTER)
    assert found.service_seconds is not None
    assert found.seen_full is (what == "nothing")
    assert found.required_replicas != ()
    assert found.slots_per_replica == (40 if what == "nothing" else 32)


def test_starts_before_a_change_are_no_starts_of_the_new(store: Store) -> None:
    """Twelve of 100 s and then ten of 900 s, of another image: 900 s is the lead."""
    found = changed(store, "runs")
    assert found.cold_start is not None
    assert (found.cold_start.seconds, found.cold_start.starts) == (900.0, 10)


def test_while_a_rollout_lasts_both_count(store: Store) -> None:
    """Old and new replicas answer: what is there is both, and the service keeps its number."""
    old = served("search/ranker-0", since=NOW - timedelta(hours=24), slots=288, seconds=4.0)
    new = served(
        "search/ranker-1", since=NOW - timedelta(minutes=10), slots=2, seconds=8.0, model="other"
    )
    store.keep(make_collected(serving=pd.concat([old, new])))
    (found,) = foreseen_serving(store.reader, SETTINGS, NOW)
    assert found.seen_full
    assert found.replicas == 2
