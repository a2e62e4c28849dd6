"""Services whose autoscaler stops the last replica: listed while none runs, and started in time.

The cluster of the loop is the test's own: a replica serves ten minutes after its order. At zero
another trigger starts one for the first request, which then waits for it.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from beds.served import served
from factories import make_collected, make_job

from dashboard.resources.rows import service_row
from dashboard.serving.outlook import service_outlooks
from data.facts.columns import ALLOCATIONS, check_frame
from data.facts.jobs import SchedulerFacts
from data.records.serving import ServiceOutlook
from data.settings.serving import ServingSettings
from data.store import Store, open_store

SETTINGS = ServingSettings()
STALE = timedelta(minutes=SETTINGS.stale_minutes)
JOB, SLOT, START = "search/deployment/chat", timedelta(minutes=5), timedelta(minutes=10)
STEPS = 36
MIDNIGHT = datetime(2026, 1, 6, tzinfo=UTC)
"""A Tuesday."""


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """An empty store, on both engines."""
    with open_store(store_url) as opened:
        yield opened


def rates_of(start: datetime, slots: int, rng: np.random.Generator) -> np.ndarray:
    """Requests a second by slots of five minutes: one a minute from 08:00 to 18:00, drawn."""
    hours = np.array([(start + slot * SLOT).hour for slot in range(slots)])
    return rng.poisson(np.where((hours >= 8) & (hours < 18), 5.0, 0.0)) / 300


def keep(store: Store, at: datetime, name: str, facts: SchedulerFacts, **frames: object) -> None:
    """Keep what a source told up to `at`, of the one job as its scheduler describes it."""
    job = make_job(JOB, name="chat", namespace="search", scheduler=facts, source="test",
                   first_seen_at=at - timedelta(days=1), last_seen_at=at)  # fmt: skip
    collected = make_collected(jobs=(job,), batch_id=name, **frames)
    report = replace(collected.report, window_start=at - SLOT, window_end=at)
    store.keep(replace(collected, report=report))


def pod(number: int) -> str:
    """A name as a ReplicaSet draws it."""
    letters = "bcdfghjklmnpqrstvwxz"
    drawn = f"{letters[number // 400 % 20]}{letters[number // 20 % 20]}{letters[number % 20]}"
    return f"search/chat-5c6d7f8b9-xx{drawn}"


def held(spans: list[tuple[datetime, datetime]]) -> pd.DataFrame:
    """When pods ran, as Kubernetes tells: it knows no end of one that is deleted."""
    rows = [{"job_id": JOB, "label_id": label, "started_at": start, "seen_at": end,
             "source": "test"}
            for number, (start, end) in enumerate(spans)
            for label in (pod(number), f"pod-uid:{number}")]  # fmt: skip
    frame = pd.DataFrame(rows)
    for name in ("started_at", "seen_at"):
        frame[name] = pd.to_datetime(frame[name], utc=True).astype("datetime64[us, UTC]")
    return check_frame(frame, ALLOCATIONS)


def days_until(end: datetime, days: int) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return what one replica a day served from 07:50 to 18:10, and when its pods ran."""
    rng, frames, spans = np.random.default_rng(3), [], []
    for day in range(days, 0, -1):
        start = end.replace(hour=7, minute=50) - timedelta(days=day)
        stop = start + timedelta(hours=10, minutes=20)
        spans.append((start - START, stop))
        rates = rates_of(start, 124, rng)
        frames.append(served(rates, label=pod(days - day), end=stop))
    return pd.concat(frames, ignore_index=True), held(spans)


ZERO = SchedulerFacts(extra=(("min_replicas", "1"), ("scales_to_zero", "yes")))


def at_night(
    store: Store, now: datetime, *, facts: SchedulerFacts = ZERO
) -> tuple[ServiceOutlook, ...]:
    """What is foreseen at `now` of a week of days, with nights at zero, beside another service."""
    serving, allocations = days_until(MIDNIGHT, 7)
    other = served(np.full(12, 1.0), label="search/other-0", end=now)
    keep(store, now, "week", facts, serving=pd.concat([serving, other], ignore_index=True),
         allocations=allocations)  # fmt: skip
    return tuple(
        found for found in service_outlooks(store.reader, SETTINGS, now) if found.service != "other"
    )


@pytest.mark.parametrize("hour", [1, 3, 5])
def test_a_service_at_zero_is_listed_and_started_ahead_of_its_day(store: Store, hour: int) -> None:
    """Nobody is ordered by night, one before 08:00; how many ask meanwhile is unknown."""
    now = MIDNIGHT + timedelta(hours=hour)
    (found,) = at_night(store, now)
    assert (found.replicas, found.read_until) == (0, now)
    assert (found.requests_per_second, found.running_requests) == (None, None)
    assert found.required_at(now, STALE) == 0
    ordered = dict(zip(found.slot_starts, found.required_replicas, strict=True))
    for at, count in ordered.items():
        if at < MIDNIGHT + timedelta(hours=7):
            assert count == 0, at
        if MIDNIGHT + timedelta(hours=7, minutes=50) <= at:
            assert count == 1, at
    row = service_row(found, SETTINGS, now)
    assert (row.replicas, row.required_replicas, row.requests_per_second) == (0, 0, None)


@pytest.mark.parametrize(
    "facts",
    [
        SchedulerFacts(),
        SchedulerFacts(extra=(("min_replicas", "0"), ("note", '["scales_to_zero"'))),
    ],
)
def test_what_is_not_told_to_stop_at_zero_is_gone(store: Store, facts: SchedulerFacts) -> None:
    """It was deleted, or is not scraped any more: an hour later it is no service."""
    assert at_night(store, MIDNIGHT + timedelta(hours=1), facts=facts) == ()


def test_a_scheduler_that_was_not_read_since_tells_nothing(store: Store) -> None:
    """Kubernetes was read until 18:10: whether a pod runs at one o'clock is unknown."""
    serving, allocations = days_until(MIDNIGHT, 7)
    evening = MIDNIGHT - timedelta(hours=5, minutes=50)
    keep(store, evening, "week", ZERO, serving=serving, allocations=allocations)
    other = make_collected(
        serving=served(np.full(12, 1.0), label="search/other-0", end=MIDNIGHT), batch_id="other"
    )
    store.keep(replace(other, report=replace(other.report, source="prometheus")))
    found = service_outlooks(store.reader, SETTINGS, MIDNIGHT + timedelta(hours=1))
    assert [entry.service for entry in found] == ["other"]


def test_a_pod_that_runs_unread_is_not_taken_for_zero(store: Store) -> None:
    """It may load its model, or its engine is not scraped: what it serves is unknown."""
    serving, allocations = days_until(MIDNIGHT, 7)
    now = MIDNIGHT + timedelta(hours=1)
    more = held([(MIDNIGHT - timedelta(hours=5), now)])
    other = served(np.full(12, 1.0), label="search/other-0", end=now)
    keep(store, now, "week", ZERO, serving=pd.concat([serving, other], ignore_index=True),
         allocations=pd.concat([allocations, more.assign(label_id="search/chat-5c6d7f8b9-bcdfg")],
                               ignore_index=True))  # fmt: skip
    found = service_outlooks(store.reader, SETTINGS, now)
    assert [entry.service for entry in found] == ["other"]


def test_an_autoscaler_that_follows_sleeps_by_night_and_is_awake_by_day(tmp_path: object) -> None:
    """A day and a half of orders by the hour: how long replicas ran, and who waited."""
    rng = np.random.default_rng(5)
    with open_store(f"duckdb:///{tmp_path}/t.duckdb") as store:
        serving, allocations = days_until(MIDNIGHT, 7)
        keep(store, MIDNIGHT, "week", ZERO, serving=serving, allocations=allocations)
        (told,) = service_outlooks(store.reader, SETTINGS, MIDNIGHT)
        number, ordered_at, slots_held, late, asked = 100, None, 0, 0, 0
        for step in range(STEPS):
            begins = MIDNIGHT + step * timedelta(hours=1)
            rates, ready = rates_of(begins, 12, rng), np.zeros(12, dtype=bool)
            night = begins.hour == 2
            rates = np.where((np.arange(12) == 6) & night, 1 / 300, rates)  # a request by night
            spans: list[tuple[datetime, datetime]] = []
            for slot in range(12):
                at = begins + slot * SLOT
                wanted = told.required_at(at, timedelta(hours=2)) or 0
                if not wanted and rates[slot] == 0 and ordered_at is not None:
                    spans.append((ordered_at, at))
                    ordered_at, number = None, number + 1
                if ordered_at is None and (wanted or rates[slot]):
                    ordered_at = at
                ready[slot] = ordered_at is not None and at - ordered_at >= START
                late += int(rates[slot] > 0 and not ready[slot])
                asked += int(rates[slot] > 0)
            slots_held += int(ready.sum())
            end = begins + timedelta(hours=1)
            frame = served(rates, label=pod(number), end=end)[ready]
            living = [*spans, *([(ordered_at, end)] if ordered_at else [])]
            rows = held(living) if living else None
            keep(store, end, f"step-{step}", ZERO, serving=frame,
                 **({} if rows is None else {"allocations": rows}))  # fmt: skip
            (told,) = service_outlooks(store.reader, SETTINGS, end)
    assert slots_held <= 0.6 * STEPS * 12
    assert late <= 6
    assert asked > 120
