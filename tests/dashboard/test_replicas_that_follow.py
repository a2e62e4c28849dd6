"""An autoscaler that follows the number for weeks: a closed loop of orders and readings.

The engine of the loop is the test's own: a replica takes 16 requests at once, 4 s each; what finds
no place waits. It tells requests at work and waiting, and its KV-cache where it has one.
"""

from collections.abc import Iterator
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from factories import NOW, make_collected

from dashboard.serving.outlook import service_outlooks
from data.facts.columns import SERVING, check_frame
from data.settings.serving import ServingSettings
from data.store import Store, open_store

PLACES, SECONDS = 16, 4.0
CARRIED = PLACES / SECONDS
STEP = timedelta(hours=4)
SLOTS, STEPS_OF_A_DAY = 48, 6


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """An empty store of one engine: what differs between engines is not asked here."""
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as opened:
        yield opened


def served(
    begins: datetime, replicas: int, rates: np.ndarray, *, has_cache: bool
) -> tuple[pd.DataFrame, int]:
    """Return what replicas told of some slots, and in how many of them requests waited."""
    starts = begins + timedelta(minutes=5) * np.arange(len(rates))
    work = np.minimum(rates * SECONDS, replicas * PLACES)
    waiting = np.maximum(rates - replicas * CARRIED, 0.0) * 60
    ended = work / SECONDS * 300 / replicas
    parts = [
        pd.DataFrame({
            "slot_start": pd.to_datetime(starts, utc=True).as_unit("us"),
            "label_id": f"search/ranker-{number}", "engine": "vllm", "model": "m", "address": "a",
            "running_requests": work / replicas, "waiting_requests": waiting / replicas,
            "finished_requests": ended, "request_seconds": ended * SECONDS,
            "request_count": ended,
            "kv_cache_ratio": work / replicas / PLACES if has_cache else np.nan,
        })
        for number in range(replicas)
    ]  # fmt: skip
    return check_frame(pd.concat(parts, ignore_index=True), SERVING), int((waiting >= 1).sum())


def followed(
    store: Store, peaks: list[float], *, replicas: int = 1, has_cache: bool = True
) -> list[tuple[int, int]]:
    """Return (replicas, slots in which requests waited) by step: each order is followed."""
    found, rng = [], np.random.default_rng(1)
    for step in range(len(peaks) * STEPS_OF_A_DAY):
        begins = NOW + step * STEP
        hour = (begins.hour + np.arange(SLOTS) / 12) % 24
        shape = 0.55 - 0.45 * np.cos(2 * np.pi * (hour - 4) / 24)
        rates = peaks[step // STEPS_OF_A_DAY] * shape * rng.normal(1.0, 0.02, SLOTS)
        serving, late = served(begins, replicas, rates, has_cache=has_cache)
        found.append((replicas, late))
        store.keep(make_collected(serving=serving, batch_id=str(step)))
        (told,) = service_outlooks(store.reader, ServingSettings(), begins + STEP)
        replicas = max(1, *told.required_replicas[: SLOTS // 2])
    return found


@pytest.mark.parametrize(("share", "has_cache"), [(0.1, True), (0.6, False)])
def test_a_service_that_one_replica_carries_is_not_scaled_out_for_ever(
    store: Store, share: float, *, has_cache: bool
) -> None:
    """Never full: that nobody knows what it could carry is no reason for more, day after day.

    Of the first days it is not known how far demand rises; never more than two more.
    """
    steps = followed(store, [share * CARRIED] * 6, has_cache=has_cache)
    held = [replicas for replicas, _late in steps]
    assert max(held) <= 3
    assert max(held[-STEPS_OF_A_DAY:]) <= 2
    assert min(held[-STEPS_OF_A_DAY:]) == 1
    assert not any(late for _replicas, late in steps)


def test_what_filled_its_replicas_gets_enough_and_keeps_it(store: Store) -> None:
    """At its peak four times what one carries; after a day nothing waits, and the number stays."""
    steps = followed(store, [4 * CARRIED] * 5, has_cache=False)
    settled = steps[STEPS_OF_A_DAY:]
    assert any(late for _replicas, late in steps[:STEPS_OF_A_DAY])
    assert not any(late for _replicas, late in settled)
    assert max(replicas for replicas, _late in settled) <= 8
    assert max(replicas for replicas, _late in settled[-STEPS_OF_A_DAY:]) <= 6


def test_a_service_that_grows_is_followed(store: Store) -> None:
    """A third more every day, from a half of what one carries to four times of it."""
    peaks = [0.5 * CARRIED * 1.3**day for day in range(9)]
    steps = followed(store, peaks)
    assert max(replicas for replicas, _late in steps[-STEPS_OF_A_DAY:]) <= 7
    assert sum(late for _replicas, late in steps) <= 0.03 * len(steps) * SLOTS


def test_too_many_replicas_are_given_back_where_the_cache_tells(store: Store) -> None:
    """Twelve replicas for the half of what one carries, none ever full."""
    steps = followed(store, [0.5 * CARRIED] * 3, replicas=12)
    assert steps[0][0] == 12
    assert max(replicas for replicas, _late in steps[1:]) <= 2
    assert not any(late for _replicas, late in steps)
