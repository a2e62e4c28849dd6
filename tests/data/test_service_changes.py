"""Which slots of a service are told by replicas of the kinds that it has now."""

from collections.abc import Iterator
from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from factories import NOW, make_collected, make_samples

from data.facts.columns import ALLOCATIONS, SERVING, check_frame
from data.store import Store, open_store

DAYS = 6
SLOTS = DAYS * 288
SINCE = NOW - timedelta(days=DAYS)


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """An empty store, on both engines."""
    with open_store(store_url) as opened:
        yield opened


def read(label: str, slots: np.ndarray, model: str = "m", address: str = "a") -> pd.DataFrame:
    """A replica that was read in these slots of the six days."""
    starts = pd.to_datetime(SINCE) + pd.to_timedelta(5 * slots, unit="min")
    return check_frame(
        pd.DataFrame(
            {"slot_start": starts.as_unit("us"), "label_id": label, "engine": "vllm",
             "model": model, "address": address, "running_requests": 1.0}
        ),
        SERVING,
    )  # fmt: skip


def between(first: float, after: float) -> np.ndarray:
    """The slots from one hour of the six days to another."""
    return np.arange(round(12 * first), round(12 * after))


def ran(label: str, runs: str, since: datetime) -> dict[str, object]:
    """A pod of the service, with what it runs."""
    return {"job_id": "search/deployment/chat", "label_id": label, "started_at": since,
            "seen_at": NOW, "source": "k", "runs": runs, "ended_at": NOW}  # fmt: skip


def alike(store: Store, *serving: pd.DataFrame, runs: tuple[dict[str, object], ...] = (),
          end: datetime = NOW) -> np.ndarray:  # fmt: skip
    """Which slots of the one service count, by slot of the six days that was read."""
    facts = {}
    if runs:
        frame = pd.DataFrame(runs)
        for name in ("started_at", "seen_at", "ended_at"):
            frame[name] = pd.to_datetime(frame[name], utc=True).astype("datetime64[us, UTC]")
        facts = {"allocations": check_frame(frame, ALLOCATIONS)}
    store.keep(make_collected(serving=pd.concat(serving, ignore_index=True), **facts))
    (found,) = store.reader.services(start=SINCE, end=end, within=timedelta(hours=1))
    return found.like_now


@pytest.mark.parametrize("hour", [0, 2, 6, 12, 21])
@pytest.mark.parametrize("always", [True, False])
def test_gpus_of_which_some_are_there_by_day_alone_are_no_change(
    store: Store, hour: int, *, always: bool
) -> None:
    """H100 from 8 to 20, A100 always or by night alone: at each hour the whole week counts."""
    ends = 12 * (24 * (DAYS - 1) + hour) + 12
    slots = np.arange(ends)
    by_day = (slots % 288 >= 96) & (slots % 288 < 240)
    pods, runs = [], []
    for day in range(DAYS):
        today = slots // 288 == day
        for name, when, gpu in (("d", by_day, "H100"), ("n", always | ~by_day, "A100")):
            if (today & when).any():
                pods.append(read(f"search/chat-{name}{day}", slots[today & when]))
                runs.append(ran(f"search/chat-{name}{day}", f"image {gpu}", SINCE))
    end = SINCE + timedelta(minutes=5 * ends)
    assert alike(store, *pods, runs=tuple(runs), end=end).all()


@pytest.mark.parametrize("late", [1, 6, 12])
@pytest.mark.parametrize("by", ["pods", "labels", "runs"])
def test_a_kind_that_is_read_a_little_late_is_still_there(store: Store, by: str, late: int) -> None:
    """A canary's neighbours, one of two names of a model, of five to 60 minutes ago."""
    slots = np.arange(SLOTS)
    texts = ("m", "m") if by == "runs" else ("m", "lora")
    label = "search/chat-0" if by == "labels" else "search/chat-1"
    frames = [
        read("search/chat-0", slots[: SLOTS - late], texts[0], "a"),
        read(label, slots[SLOTS // 2 :], texts[1], "b"),
    ]
    runs = (ran("search/chat-0", "old", SINCE), ran("search/chat-1", "new", SINCE))
    assert alike(store, *frames, runs=runs if by == "runs" else ()).all()


@pytest.mark.parametrize("minutes", [0, 5, 55])
def test_a_board_that_is_unread_for_an_hour_is_not_given_back(store: Store, minutes: int) -> None:
    """Two boards of a pod without a scheduler; in the newest hour one is read."""
    hour = NOW - timedelta(hours=1)
    pod = "search/chat-0"
    both = make_samples(gpus=2, job_id=pod, minutes=300, end=hour - timedelta(minutes=1))
    store.keep(make_collected(both, batch_id="both"))
    alone = make_samples(gpus=1, job_id=pod, minutes=60 - minutes, end=NOW - timedelta(minutes=1))
    store.keep(make_collected(alone, batch_id="alone"))
    assert alike(store, read(pod, np.arange(SLOTS))).all()


def test_a_few_of_a_former_kind_leave_the_others(store: Store) -> None:
    """One of three replicas had another model until two days ago."""
    frames = [read(f"search/chat-{number}", np.arange(SLOTS)) for number in range(2)]
    assert alike(store, *frames, read("search/chat-2", between(0, 96), "old")).all()


@pytest.mark.parametrize("hours", [3, 30])
@pytest.mark.parametrize("by", ["model", "runs"])
@pytest.mark.parametrize("rollout", [0, 0.5])
def test_what_was_before_a_rollout_does_not_count(
    store: Store, by: str, hours: int, rollout: float
) -> None:
    """Two replicas become two of another kind, whose overlap counts."""
    changed = 24 * DAYS - hours
    texts = ("old", "new") if by == "model" else ("m", "m")
    frames, runs = [], []
    for number in range(2):
        names = (f"search/chat-{number}", f"search/chat-{number + 2}")
        frames += [
            read(names[0], between(0, changed + rollout), texts[0]),
            read(names[1], between(changed, 24 * DAYS), texts[1]),
        ]
        runs += [ran(names[0], "old", SINCE), ran(names[1], "new", SINCE)]
    found = alike(store, *frames, runs=tuple(runs) if by == "runs" else ())
    assert found.tolist() == (np.arange(SLOTS) >= 12 * changed).tolist()


def test_boards_of_some_pods_and_the_scheduler_of_others_tell_no_change(store: Store) -> None:
    """Pods that ended before Kubernetes was read have boards, those of now an image."""
    ended, now = "search/chat-7d9f8c6b5-xxxxx", "search/chat-7d9f8c6b5-bbbbb"
    hours = 24 * DAYS - 30
    held = make_samples(job_id=ended, minutes=300, end=SINCE + timedelta(hours=hours))
    store.keep(make_collected(held, batch_id="held"))
    frames = [read(ended, between(0, hours)), read(now, between(hours, 24 * DAYS))]
    assert alike(store, *frames, runs=(ran(now, "image", SINCE),)).all()
