"""What a cycle foresaw of memory is kept with it; where no cycle looked, that is said."""

from datetime import timedelta

import pytest
from factories import NOW, make_memory_finding, make_plan

from data.records.memory import MemoryFinding
from data.settings.all_settings import RetentionSettings
from data.store import Store

FINDING = make_memory_finding()


def keep(store: Store, number: int, memory: tuple[MemoryFinding, ...] | None) -> None:
    """Keep a cycle that foresaw this."""
    at = NOW + timedelta(days=number)
    store.keep_cycle(
        cycle_id=f"c{number}",
        started_at=at,
        finished_at=at,
        forecasts=(),
        memory=memory,
        plan=make_plan(plan_id=f"{number}" * 12),
        recommendations=(),
    )


def test_what_was_foreseen_is_read_back_whole(store: Store) -> None:
    """In its order, with advice, evidence and times; the latest cycle's alone."""
    other = make_memory_finding(job_id="b")
    keep(store, 1, (other,))
    keep(store, 2, (FINDING, other))
    assert store.reader.memory_outlook() == (FINDING, other)


@pytest.mark.parametrize("memory", [None, ()])
def test_nobody_looked_is_not_nothing_found(
    memory: tuple[MemoryFinding, ...] | None, store: Store
) -> None:
    """Also not where a cycle before looked."""
    keep(store, 1, (FINDING,))
    keep(store, 2, memory)
    assert store.reader.memory_outlook() == memory


def test_it_goes_with_the_forecasts_it_rests_on(store: Store) -> None:
    """The newest stays, however old."""
    keep(store, 1, (FINDING,))
    keep(store, 2, (FINDING,))
    deleted = store.forget(RetentionSettings(), NOW + timedelta(days=13))
    assert deleted["memory_outlooks"] == 1
    assert store.reader.memory_outlook() == (FINDING,)
