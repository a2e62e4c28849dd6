"""What was learnt of a service before its model, engine, image, command or GPUs changed."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from factories import NOW, make_collected, make_samples

from dashboard.serving.outlook import service_outlooks
from data.facts.columns import ALLOCATIONS, SAMPLES, SERVING, check_frame, empty_frame
from data.records.serving import ServiceOutlook
from data.settings.serving import ServingSettings
from data.store import Store, open_store

SETTINGS = ServingSettings()
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
        [{"job_id": "search/deployment/ranker", "label_id": label if not number else f"x{number}",
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
                job_id=name, end=end_of - timedelta(minutes=1), minutes=175, **boards
            )
            store.keep(make_collected(times, batch_id=f"boards {number}"))
    serving = pd.concat([old, new])
    store.keep(make_collected(empty_frame(SAMPLES), serving=serving, batch_id="served", **facts))
    (found,) = service_outlooks(store.reader, SETTINGS, NOW)
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
    assert f"GPUs changed at {CHANGED:%Y-%m-%d %H:%M} UTC" in found.reason
    assert len(found.rates_q95) == 36
    assert found.arrival_scv == 1.0


@pytest.mark.parametrize("what", ["nothing", "model", "runs"])
@pytest.mark.parametrize("slots", [1, 22])
def test_within_two_hours_of_a_change_a_week_counts_as_before(
    store: Store, what: str, slots: int
) -> None:
    """What just went may be back, and boards are told by the hour: the full slots are not lost."""
    found = changed(store, what, end=slots)
    assert (found.seen_full, found.slots_per_replica, found.reason) == (True, 40, "")
    assert found.required_replicas != ()


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
    (found,) = service_outlooks(store.reader, SETTINGS, NOW)
    assert found.seen_full
    assert found.replicas == 2


def with_a_peak(
    store: Store, minutes: int, *, idle: bool = False, full: bool = False
) -> tuple[ServiceOutlook, ServiceOutlook]:
    """One service that changed so long ago and one that did not, of three days, alike otherwise.

    8 requests a second by day and 1 by night. Now is noon, when the day begins.
    """
    slot = np.arange(3 * 288)
    new = slot >= len(slot) - minutes // 5
    rates = np.where(slot % 288 < 144, 8.0, 1.0)
    rates += np.random.default_rng(1).normal(0, 0.05, len(slot))
    rates[new & idle] = 0.0
    starts = pd.date_range(NOW, periods=len(slot) + 1, freq="-5min")[:0:-1].as_unit("us")
    for number, model in enumerate(("other", "m")):
        frame = pd.DataFrame({
            "slot_start": starts, "label_id": f"search/ranker{number}-0", "engine": "vllm",
            "model": np.where(new, model, "m"), "address": "a", "running_requests": 4 * rates,
            "waiting_requests": 2.0 * (new & full), "finished_requests": 300 * rates,
            "request_seconds": 1200 * rates, "request_count": 300 * rates, "kv_cache_ratio": 0.5,
        })  # fmt: skip
        store.keep(make_collected(serving=check_frame(frame, SERVING), batch_id=model))
    changed, same = service_outlooks(store.reader, SETTINGS, NOW)
    return changed, same


@pytest.mark.parametrize("minutes", [5, 30, 180, 12 * 60])
@pytest.mark.parametrize("idle", [False, True])
def test_after_a_change_no_more_is_ordered_than_the_week_asks(
    store: Store, minutes: int, *, idle: bool
) -> None:
    """One quiet request a second, or none, is no measure of a peak of 8 that the week carried."""
    changed, same = with_a_peak(store, minutes, idle=idle)
    assert changed.required_replicas == same.required_replicas != ()
    told = f"changed at {NOW - timedelta(minutes=minutes):%Y-%m-%d %H:%M} UTC"
    assert (told in changed.reason) == (minutes > 120)
    assert same.reason == ""


def test_what_was_seen_full_since_a_change_is_ordered(store: Store) -> None:
    """A replica that lets requests wait at 4 carries no 32, whatever the week says."""
    changed, _same = with_a_peak(store, 180, full=True)
    assert (changed.seen_full, changed.slots_per_replica) == (True, 4)
    assert max(changed.required_replicas) >= 8
