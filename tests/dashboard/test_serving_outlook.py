"""From readings in the store to the replicas that each service needs."""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from beds.served import served
from factories import NOW, make_collected, make_job, make_plan, make_samples

from dashboard.serving import outlook as serving_outlook
from dashboard.serving.outlook import service_history, service_outlooks
from data.facts.columns import ALLOCATIONS, check_frame
from data.records.serving import ColdStart, ServiceOutlook
from data.settings.serving import ServingSettings
from data.store import Store, open_store

SETTINGS = ServingSettings()


@pytest.fixture
def store(store_url: str) -> Iterator[Store]:
    """An empty store, on both engines."""
    with open_store(store_url) as opened:
        yield opened


def daily(days: int) -> np.ndarray:
    """1 request a second by night, 8 from noon to midnight: at NOW, which is noon, it rises."""
    slot = np.arange(days * 288)
    return np.where(slot % 288 < 144, 8.0, 1.0) + np.random.default_rng(1).normal(
        0, 0.05, len(slot)
    )


def outlook(store: Store, *frames: pd.DataFrame, now: datetime = NOW) -> tuple[ServiceOutlook, ...]:
    """What is foreseen of what engines served."""
    for position, frame in enumerate(frames):
        store.keep(make_collected(serving=frame, batch_id=str(position)))
    return service_outlooks(store.reader, SETTINGS, now)


def test_the_peak_is_ordered_before_it_comes(store: Store) -> None:
    """The same hour of earlier days asks for more than the requests of now do."""
    rates = daily(6)
    (found,) = outlook(store, served(rates, waiting_requests=np.where(rates > 6, 2.0, 0.0)))
    assert found.reason == ""
    assert (found.namespace, found.replicas, found.seen_full) == ("search", 1, True)
    assert found.slots_per_replica == pytest.approx(32, abs=2)
    assert found.service_seconds is not None
    assert found.service_seconds.central == pytest.approx(4.0)
    assert found.reactive_replicas == 1
    at_once = found.required_at(NOW, timedelta(minutes=30))
    assert at_once is not None
    assert at_once >= 2
    assert len(found.required_replicas) == len(found.slot_starts) == len(found.rates_q95) == 36


def test_a_longer_cold_start_orders_earlier_and_for_the_high_forecast(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """12 minutes are two slots ahead; beyond the readings' time nothing else differs."""
    store.keep(make_collected(serving=served(daily(3))))
    outlooks = []
    for seconds in (0.0, 720.0):
        monkeypatch.setattr(serving_outlook, "COLD_START_SECONDS", seconds)
        outlooks += service_outlooks(store.reader, SETTINGS, NOW)
    at_once, ahead = outlooks
    needed = at_once.required_replicas
    assert ahead.required_replicas[4:] == tuple(
        max(needed[slot : slot + 3]) for slot in range(4, 36)
    )
    assert len(set(needed)) > 1
    pairs = zip(ahead.rates_q95, ahead.rates_q50, strict=True)
    assert all(high > middle for high, middle in pairs)


def started(seconds: list[float], *, job_id: str = "search/ranker") -> pd.DataFrame:
    """Pods that began an hour apart and took so long to be ready, under both of their names."""
    frame = pd.DataFrame(
        [{"job_id": job_id, "label_id": label, "started_at": NOW - timedelta(hours=hour),
          "seen_at": NOW, "source": "k", "start_seconds": took}
         for hour, took in enumerate(seconds, 1)
         for label in (f"search/ranker-{hour}", f"pod-uid:{hour}")]
    )  # fmt: skip
    for name in ("started_at", "seen_at"):
        frame[name] = pd.to_datetime(frame[name], utc=True).astype("datetime64[us, UTC]")
    return check_frame(frame.assign(ended_at=frame["seen_at"]), ALLOCATIONS)


def test_a_cold_start_that_was_seen_is_the_lead_and_not_the_setting(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nine starts of 11 to 19 minutes: two slots ahead of what no cold start orders."""
    store.keep(make_collected(serving=served(daily(3), label="search/ranker-1")))
    monkeypatch.setattr(serving_outlook, "COLD_START_SECONDS", 0.0)
    few = started([660.0, 700.0, 800.0])
    store.keep(make_collected(batch_id="few", allocations=few))
    (found,) = service_outlooks(store.reader, SETTINGS, NOW)
    needed = found.required_replicas
    assert found.cold_start == ColdStart(
        seconds=0.0, typical_seconds=700.0, starts=3, source="setting"
    )
    many = started([660.0, 700.0, 800.0, *[900.0] * 5, 1140.0, float("nan")])
    store.keep(make_collected(batch_id="many", allocations=many))
    (learnt,) = service_outlooks(store.reader, SETTINGS, NOW)
    assert learnt.cold_start == ColdStart(
        seconds=1140.0, typical_seconds=900.0, starts=9, source="pods"
    )
    assert learnt.required_replicas[4:] == tuple(
        max(needed[slot : slot + 3]) for slot in range(4, 36)
    )
    assert learnt.required_replicas != needed


def test_without_a_scheduler_a_start_is_from_the_boards_to_the_first_tokens(store: Store) -> None:
    """Of boards that were free before, and of an engine that had no time to be idle."""
    since = NOW - timedelta(hours=2)
    frames = []
    for name, first, tokens in (
        ("old", 0, [600.0] * 24),  # its boards were held before anything was read
        ("new", 62, [np.nan] * 13 + [600.0] * 11),  # 11:02 to the end of the slot of 11:05
        ("idle", 62, [0.0] * 13 + [600.0] * 11),  # its engine told that it had nothing to do
    ):
        frame = served(np.ones(24), label=f"search/{name}-0", generation_tokens=tokens)
        frames.append(frame[frame["generation_tokens"].notna()])
        held = make_samples(
            job_id=f"search/{name}-0", minutes=120 - first,
            gpu_uuid=f"GPU-{name}", end=NOW - timedelta(minutes=1),
        )  # fmt: skip
        store.keep(make_collected(held, batch_id=f"boards of {name}"))
    store.keep(make_collected(serving=pd.concat(frames), batch_id="serving"))
    found = store.reader.replica_starts(start=since - timedelta(days=1), end=NOW)
    assert found.to_dict("records") == [
        {"job_id": "search/new", "source": "boards", "seconds": 480.0}
    ]


def test_long_prompts_ask_for_more_replicas_than_as_many_requests_do(store: Store) -> None:
    """2 requests a second all day, but from noon on they read ten times as much."""
    slot = np.arange(4 * 288)
    prompt = np.where(slot % 288 < 144, 3000.0, 300.0) * 600  # NOW is noon: the long ones begin
    seconds = prompt * 4e-3 + 600 * 2.0
    rates = np.full(len(slot), 2.0)
    told = {"request_seconds": seconds, "request_count": 600.0, "running_requests": seconds / 300}
    tokens = {"prompt_tokens": prompt, "generation_tokens": 600 * 200.0}
    (by_requests,) = outlook(store, served(rates, **told))
    store.keep(make_collected(serving=served(rates, **told, **tokens), batch_id="tokens"))
    (by_tokens,) = service_outlooks(store.reader, SETTINGS, NOW)
    assert by_requests.token_seconds is None
    assert by_tokens.token_seconds is not None
    assert by_tokens.token_seconds.prompt.central == pytest.approx(4e-3)
    assert by_tokens.token_seconds.generated.central == pytest.approx(1e-2)
    assert by_tokens.rates_q95 == pytest.approx(by_requests.rates_q95)
    later = slice(4, None)  # the first slots are also held up by what is at work now
    assert max(by_requests.required_replicas[later]) < max(by_tokens.required_replicas[later])
    carried = by_tokens.prompt_tokens_carried
    assert by_tokens.slots_per_replica is not None
    assert carried == pytest.approx(by_tokens.slots_per_replica / 4e-3)


def test_the_peak_of_requests_is_a_share_of_what_replicas_carry_once_one_was_full(
    store: Store,
) -> None:
    """Half the day 4, half 8 requests a second; a full replica carries 6.9 of them as promised."""
    rates = np.where(np.arange(3 * 288) % 288 < 144, 4.0, 8.0)
    waiting = np.where(rates > 6.0, 3.0, 0.0)
    (unseen,) = outlook(store, served(rates))
    assert (unseen.seen_full, unseen.peak_load_ratio) == (False, None)
    store.keep(make_collected(serving=served(rates, waiting_requests=waiting), batch_id="full"))
    (found,) = service_outlooks(store.reader, SETTINGS, NOW)
    assert found.seen_full
    assert found.carried_per_second is not None
    highest = max(8.0, *found.rates_q95)
    assert found.peak_load_ratio == pytest.approx(highest / found.carried_per_second, rel=0.02)
    assert found.peak_load_ratio > 1


@pytest.mark.parametrize("pods", [("0", "1"), ("7ddc86b5f4-2c4xk", "7ddc86b5f4-zzz9b")])
@pytest.mark.parametrize("cluster", ["", "@paris"])
def test_pods_of_one_workload_are_one_service_in_every_cluster(
    store: Store, pods: tuple[str, str], cluster: str
) -> None:
    """A further cluster's name stands behind the pod's, and the workload keeps it."""
    frames = [served(daily(1), label=f"search/ranker-{pod}{cluster}") for pod in pods]
    (found,) = outlook(store, *frames)
    assert (found.job_id, found.replicas) == (f"search/ranker{cluster}", 2)


def test_the_replicas_of_a_day_are_known_by_the_hour(store: Store) -> None:
    """One for the day; a second from the 20th hour before the end to the 14th; an hour unread."""
    first = served(daily(1)).drop(index=range(24, 36))
    second = served(
        daily(1)[:72], label="search/ranker-1", address="b", end=NOW - timedelta(hours=14)
    )
    there = (1, 1, None, 1, *[2] * 6, *[1] * 14)
    (found,) = outlook(store, first, second)
    assert found.hourly_replicas == there
    both = pd.concat([first, second])
    untold = both.assign(finished_requests=np.nan, request_count=np.nan)
    store.keep(make_collected(serving=untold, batch_id="untold"))
    (unsized,) = service_outlooks(store.reader, SETTINGS, NOW)
    assert (unsized.required_replicas, unsized.hourly_replicas) == ((), there)


def test_a_rolling_update_halves_no_peak(store: Store) -> None:
    """For a slot twice the pods are there, old and new: what those of now carry is the measure."""
    rates = np.where(np.arange(288) % 288 < 144, 4.0, 6.0)
    waiting = np.where(np.arange(288) < 5, 3.0, 0.0)
    (before,) = outlook(store, served(rates, waiting_requests=waiting))
    second = served(rates[:100] * 0, label="search/ranker-0", address="b")[99:]
    (after,) = outlook(store, served(rates, waiting_requests=waiting), second)
    assert before.peak_load_ratio is not None
    assert after.peak_load_ratio == pytest.approx(before.peak_load_ratio, rel=0.05)


def test_what_waits_now_is_no_floor_for_hours(store: Store) -> None:
    """However long readings count, a queue holds for an hour: later the forecast alone decides."""
    waiting = np.where(np.arange(288) == 287, 640.0, 0.0)
    store.keep(make_collected(serving=served(np.full(288, 2.0), waiting_requests=waiting)))
    (found,) = service_outlooks(store.reader, ServingSettings(stale_minutes=720), NOW)
    assert found.reactive_replicas is not None
    assert found.required_replicas[0] == found.reactive_replicas > 10
    assert max(found.required_replicas[7:]) < 10


@pytest.mark.parametrize("seed", range(6))
def test_without_a_pattern_never_fewer_than_the_reactive_rule(store: Store, seed: int) -> None:
    """Shuffled demand that just jumped: the forecast knows nothing, the rule counts requests."""
    rates = np.random.default_rng(seed).permutation(daily(2))
    rates[-1] = 40.0
    (found,) = outlook(store, served(rates))
    fresh = [
        required
        for start, required in zip(found.slot_starts, found.required_replicas, strict=True)
        if start < NOW + timedelta(minutes=SETTINGS.stale_minutes)
    ]
    assert found.reactive_replicas is not None
    assert len(fresh) >= 3
    assert min(fresh) >= found.reactive_replicas > 0


def test_services_forecast_at_once_are_what_each_is_alone(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Odd lengths, gaps, unknown values, tokens, too little, just come, without a pod."""
    random = np.random.default_rng(4)
    frames = []
    for number, slots in enumerate((2016, 1301, 700, 97, 40, 7, 1)):
        rates = random.uniform(0.5, 8) * random.lognormal(0, 0.3, slots)
        label = "" if number == 2 else f"ml/service-{number}-0"
        frame = served(rates, label=label, engine=("vllm", "kserve", "tgi")[number % 3])
        if number % 2:
            tokens = {"prompt_tokens": 9e4 * rates * random.lognormal(0, 1, slots)}
            frame = frame.assign(**tokens, generation_tokens=6e4 * rates)
        frame.loc[random.random(slots) < 0.05, "finished_requests"] = np.nan
        frames.append(frame[random.random(slots) < (0.8 if number % 3 else 1.0)])
    together = outlook(store, *frames)
    monkeypatch.setattr(serving_outlook, "_BATCH", 1)
    alone = service_outlooks(store.reader, SETTINGS, NOW)
    assert len(alone) == len(together) >= 6
    assert any(found.token_seconds for found in alone)
    for one, found in zip(alone, together, strict=True):
        for name in ("rates_q50", "rates_q95"):
            assert getattr(found, name) == pytest.approx(getattr(one, name), rel=1e-9)
        rates = {"rates_q50": (), "rates_q95": ()}
        assert replace(found, **rates) == replace(one, **rates)


def test_readings_that_are_stale_give_no_number(store: Store) -> None:
    """Nor does a time before the first slot; half a slot of ten minutes is part of the next."""
    (found,) = outlook(
        store, served(daily(1), end=NOW + timedelta(minutes=5)), now=NOW + timedelta(minutes=6)
    )
    assert found.slot_starts[0] == NOW
    limit = timedelta(minutes=30)
    assert found.required_at(NOW + timedelta(minutes=35), limit) is not None
    assert found.required_at(NOW + timedelta(minutes=36), limit) is None
    assert found.required_at(NOW - timedelta(minutes=1), limit) is None


def test_little_history_is_the_reactive_rule_and_no_history_is_unknown(store: Store) -> None:
    """With the reason; what ended an hour before the newest reading is no service any more."""
    short = served(np.array([2.0, 2.0]), label="search/short-0")
    mute = served(np.ones(5), label="search/mute-0", finished_requests=np.nan, request_count=np.nan)
    gone = served(np.ones(5), label="search/gone-0", end=NOW - timedelta(hours=2))
    found = {entry.service: entry for entry in outlook(store, short, mute, gone)}
    assert set(found) == {"short", "mute"}
    assert "too little history" in found["short"].reason
    assert set(found["short"].required_replicas) == {found["short"].reactive_replicas}
    assert found["mute"].required_replicas == ()
    assert "scraped too rarely" in found["mute"].reason
    assert found["mute"].requests_per_second is None


def test_a_cycle_keeps_it_and_an_empty_one_has_none(store: Store) -> None:
    """Read back as it was; the scheduler's names are used where it told them."""
    job = make_job("search/ranker", name="the ranker")
    store.keep(make_collected(jobs=(job,), batch_id="job"))
    foreseen = outlook(store, served(daily(1)))
    assert [entry.service for entry in foreseen] == ["the ranker"]
    for number, serving in ((1, foreseen), (2, ())):
        store.keep_cycle(
            cycle_id=f"c{number}", started_at=NOW, finished_at=NOW, forecasts=(),
            serving=serving, plan=replace(make_plan(), plan_id=f"{number:064d}"),
            recommendations=(),
        )  # fmt: skip
        assert store.reader.serving_outlook() == serving


def test_a_day_of_a_service_says_where_requests_waited_too_long_and_keeps_gaps(
    store: Store,
) -> None:
    """An hour in which 100 wait where 2 a second come; a gap is neither late nor 0."""
    rates = np.full(288, 2.0)
    waiting = np.where((np.arange(288) >= 100) & (np.arange(288) < 112), 100.0, 0.0)
    frame = served(rates, waiting_requests=waiting, kv_cache_ratio=0.5, generation_tokens=600.0)
    (found,) = outlook(store, frame.drop(index=range(200, 206)))
    assert (found.late_minutes, found.judged_minutes) == (60, 24 * 60 - 30)
    assert (found.kv_cache_ratio, found.generation_tokens_per_second) == (0.5, 2.0)
    assert (found.wait_seconds, found.prompt_tokens_per_second) == (0.0, None)
    history = service_history(store.reader, found, SETTINGS)
    assert len(history) == 288
    assert list(np.flatnonzero(history["is_late"])) == list(range(100, 112))
    assert list(np.flatnonzero(history["requests_per_second"].isna())) == list(range(200, 206))
    known = history["carried_per_second"].dropna()
    assert set(known) == {found.carried_per_second}
    assert found.carried_per_second is not None
    tokens = store.reader.served_tokens(start=NOW - timedelta(days=1), end=NOW)
    whole = tokens["generation_tokens"]
    assert set(whole.dropna()) == {7200.0}  # of whole hours; two have a part of the gap
    assert int(whole.isna().sum()) == 2


def test_the_day_of_replicas_without_a_pod_is_theirs_alone(store: Store) -> None:
    """A job with the name of their model is another service."""
    mine = served(np.full(20, 3.0), label="", model="search/ranker")
    both = outlook(store, mine, served(np.full(20, 5.0)))
    rates = {
        entry.job_id: service_history(store.reader, entry, SETTINGS)["requests_per_second"].max()
        for entry in both
    }
    assert rates == {"": 3.0, "search/ranker": 5.0}
