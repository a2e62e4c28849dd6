"""Quotas in the store, on both engines: the latest reading of each source, and unknown as NULL."""

from dataclasses import replace
from datetime import datetime, timedelta

from factories import NOW, make_collected, make_quota

from data.facts.collected import Collected
from data.facts.quotas import Quota, QuotaKind
from data.settings.all_settings import RetentionSettings
from data.store import Store

MINUTE = timedelta(minutes=1)
KNOWN = make_quota(
    "research",
    kind=QuotaKind.CLUSTER_QUEUE,
    resource="nvidia.com/gpu",
    flavor="h100",
    gpu_model="H100-SXM5-80GB",
    lending_limit=2.5,
    reserved=4.0,
    admitted=5,
    pending=7,
    weight=0.5,
    priority=100,
    preempts="normal",
    parent="all",
)
OF_PODS = make_quota("zoo/gpus", kind=QuotaKind.RESOURCE_QUOTA, resource="nvidia.com/gpu")
UNKNOWN = make_quota("vision", nominal=None, borrowing_limit=None, used=None)


def reading(at: datetime, quotas: tuple[Quota, ...] | None, source: str = "test") -> Collected:
    """Return what a source told of its queues at a time."""
    made = make_collected(jobs=())
    told = quotas and tuple(replace(quota, source=source, observed_at=at) for quota in quotas)
    return replace(
        made,
        batch_id=f"{source}{at}{told}",
        quotas=told,
        report=replace(made.report, source=source, window_end=at, window_start=at),
    )


def queues(store: Store) -> list[str]:
    """Return the queues whose limits are told."""
    return [quota.queue for quota in store.reader.quotas()]


def test_quotas_come_back_as_they_were_told(store: Store) -> None:
    """Every field of them, and None for what nobody tells."""
    told = (KNOWN, UNKNOWN, OF_PODS)
    store.keep(reading(NOW, told))
    assert sorted(store.reader.quotas(), key=lambda quota: quota.queue) == [*told]
    store.keep(reading(NOW + MINUTE, (UNKNOWN,)))
    assert store.reader.quotas() == (replace(UNKNOWN, observed_at=NOW + MINUTE),)


def test_a_queue_that_is_gone_goes_and_one_that_changed_changes(store: Store) -> None:
    """The next reading stands for all before it, also one that finds no queue at all."""
    store.keep(reading(NOW, (KNOWN, UNKNOWN)))
    store.keep(reading(NOW + MINUTE, (replace(KNOWN, used=None, nominal=9.0),)))
    (only,) = store.reader.quotas()
    assert (only.queue, only.used, only.nominal) == ("research", None, 9.0)
    store.keep(reading(NOW + 2 * MINUTE, ()))
    assert store.reader.quotas() == ()


def test_who_does_not_tell_leaves_what_was_told(store: Store) -> None:
    """With its time, by which its age shows; each source has its own."""
    store.keep(reading(NOW, (KNOWN,)))
    store.keep(reading(NOW + MINUTE, None))
    store.keep(reading(NOW + MINUTE, (UNKNOWN,), source="other"))
    assert sorted(queues(store)) == ["research", "vision"]
    assert {quota.observed_at for quota in store.reader.quotas()} == {NOW, NOW + MINUTE}


def test_a_late_reading_changes_nothing(store: Store) -> None:
    """Whatever the order of arrival, the latest reading is shown."""
    store.keep(reading(NOW + MINUTE, (KNOWN,)))
    store.keep(reading(NOW, (replace(KNOWN, nominal=1.0), UNKNOWN)))
    assert store.reader.quotas() == (replace(KNOWN, observed_at=NOW + MINUTE),)


def test_a_plan_knows_quotas_of_the_last_day(store: Store) -> None:
    """An older reading says nothing of what is enforced now, a later one nothing of then."""
    store.keep(replace(make_collected(), quotas=(KNOWN,)))

    def seen(at: datetime) -> int:
        return len(store.reader.planning_view(at, slot_seconds=900, history_days=1).quotas)

    day = timedelta(days=1)
    assert [seen(at) for at in (NOW - MINUTE, NOW, NOW + day, NOW + day + MINUTE)] == [0, 1, 1, 0]


def test_quotas_are_forgotten_with_other_facts_of_their_age(store: Store) -> None:
    """Of a source that is gone for good."""
    store.keep(reading(NOW, (KNOWN,)))
    retention = RetentionSettings(raw_days=1, five_minute_days=1, hourly_days=1)
    assert store.forget(retention, NOW)["quotas"] == 0
    assert store.forget(retention, NOW + timedelta(days=2))["quotas"] == 1
    assert store.reader.quotas() == ()
