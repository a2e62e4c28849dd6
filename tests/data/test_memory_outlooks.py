"""What a cycle foresaw of memory is kept with it; where no cycle looked, that is said."""

from datetime import timedelta

import pytest
from beds.stores import back_to_schema
from factories import NOW, make_memory_finding, make_plan

from data.records.memory import MemoryFinding
from data.settings.all_settings import RetentionSettings
from data.store import Store, open_store
from data.store.handles.cached_reader import CachedReader

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


def test_a_store_of_the_schema_before_is_brought_forward(store_url: str) -> None:
    """Nobody looked there; the next cycle's outlook shows at once, also to who asked before."""
    with open_store(store_url) as store:
        keep(store, 1, None)
        back_to_schema(store, 7)
    with open_store(store_url) as store:
        reader = CachedReader(store._engine)
        assert reader.memory_outlook() is None
        keep(store, 2, (FINDING,))
        assert reader.memory_outlook() == (FINDING,)
