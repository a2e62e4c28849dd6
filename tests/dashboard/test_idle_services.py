"""Services without requests: a number all the same, and why where there is none."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from beds.served import served
from factories import NOW, make_collected, make_job

from dashboard.serving.outlook import service_outlooks
from data.facts.jobs import SchedulerFacts
from data.records.serving import ServiceOutlook
from data.settings.serving import ServingSettings
from data.store import Store, open_store


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """An empty store, on both engines."""
    with open_store(store_url) as opened:
        yield opened


def outlook(store: Store, *frames: pd.DataFrame, now: datetime = NOW) -> tuple[ServiceOutlook, ...]:
    """What is foreseen of what engines served."""
    for position, frame in enumerate(frames):
        store.keep(make_collected(serving=frame, batch_id=str(position)))
    return service_outlooks(store.reader, ServingSettings(), now)


MONDAY = datetime(2026, 1, 5, 1, 30, tzinfo=UTC)
"""07:00 in India."""


def office(days: int, *, health: float = 0.0) -> np.ndarray:
    """8 requests a second from 08:00 to 19:00 in India, Monday to Friday; else `health`."""
    starts = MONDAY.timestamp() - 300 * np.arange(days * 288, 0, -1) + 19_800
    hour, weekday = starts % 86_400 / 3600, (starts // 86_400 + 3) % 7
    return np.where((weekday < 5) & (hour >= 8) & (hour < 19), 8.0, health)


@pytest.mark.parametrize("days", [7, 8, 12])
@pytest.mark.parametrize("health", [0.0, 0.001])
def test_mondays_peak_is_ordered_after_a_weekend_without_requests(
    store: Store, days: int, health: float
) -> None:
    """What a replica carries is learnt from Friday; the peak comes as a week before."""
    rates = office(days, health=health)
    waiting = np.where(rates > 1, 2.0, 0.0)
    (found,) = outlook(store, served(rates, waiting_requests=waiting, end=MONDAY), now=MONDAY)
    assert found.reason == ""
    assert found.service_seconds is not None
    assert found.service_seconds.central == pytest.approx(4.0)
    assert found.required_at(MONDAY, timedelta(minutes=30)) == 1
    peak = MONDAY + timedelta(minutes=50)  # the cold start before 08:00
    ordered = dict(zip(found.slot_starts, found.required_replicas, strict=True))
    assert ordered[peak] == ordered[peak + timedelta(hours=2)] >= 2
    assert found.rates_q50[6] == pytest.approx(8.0, rel=0.2)


def test_a_service_that_is_idle_has_its_least_number(store: Store) -> None:
    """One replica, with and without requests before; of an autoscaler that stops the last none."""
    never = served(np.zeros(600), label="search/never-0")
    once = served(np.where(np.arange(2000) < 40, 3.0, 0.0), label="search/once-0")
    extra = (("min_replicas", "1"), ("scales_to_zero", "yes"))
    job = make_job("search/none", scheduler=SchedulerFacts(extra=extra))
    none = served(np.zeros(600), label="search/none-0")
    store.keep(make_collected(jobs=(job,), batch_id="job"))
    found = {entry.job_id: entry for entry in outlook(store, never, once, none)}
    assert set(found["search/never"].required_replicas) == {1}
    assert found["search/never"].required_at(NOW, timedelta(minutes=30)) == 1
    assert "no request has come yet" in found["search/never"].reason
    assert set(found["search/once"].required_replicas) == {1}
    assert found["search/once"].reason == ""
    assert set(found["search/none"].required_replicas) == {0}


UNTOLD = {
    "finished_requests": np.nan, "request_seconds": np.nan, "request_count": np.nan,
}  # fmt: skip


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        ({"running_requests": np.nan}, "tells no requests at work"),
        (UNTOLD, "scraped too rarely"),
        (UNTOLD | {"prompt_tokens": 1.0}, "tells no requests that ended"),
        (UNTOLD | {"finished_requests": 300.0, "running_requests": 0.0}, "are not timed"),
        (UNTOLD | {"finished_requests": 0.0}, "no request has ended yet"),
    ],
)
def test_why_there_is_no_number_names_the_cause(
    store: Store, columns: dict[str, object], words: str
) -> None:
    """No such metric, rare scrapes, and requests that have not ended are told apart."""
    (found,) = outlook(store, served(np.ones(20), **columns))
    assert found.required_replicas == ()
    assert words in found.reason


def test_requests_that_no_scrape_meets_at_work_still_teach(store: Store) -> None:
    """They are timed: a hundredth of a second each."""
    told = {"running_requests": 0.0, "request_seconds": 3.0, "request_count": 300.0}
    (found,) = outlook(store, served(np.ones(600), **told))
    assert found.slots_per_replica == 1
    assert set(found.required_replicas) == {1}


def test_a_model_that_was_changed_before_the_weekend_is_sized_as_the_one_before(
    store: Store,
) -> None:
    """It had no request since: all readings teach, and the reason says since when it is changed."""
    rates = office(7)
    frame = served(rates, waiting_requests=np.where(rates > 1, 2.0, 0.0), end=MONDAY)
    frame["model"] = np.where(np.arange(len(frame)) < len(frame) - 400, "old", "new")
    (found,) = outlook(store, frame, now=MONDAY)
    assert found.model == "new"
    assert "changed at" in found.reason
    assert max(found.required_replicas) >= 2
