"""A store whose files cannot grow: what was kept stays, and writing goes on when there is room."""

import resource
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from factories import NOW, make_collected, make_samples
from reliability import Measured

from data.errors import StoreError
from data.store import Store, open_store

_UNLIMITED = resource.getrlimit(resource.RLIMIT_FSIZE)


@pytest.fixture
def room() -> Iterator[None]:
    """Gives the process its room back, whatever the test does."""
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, _UNLIMITED)


def keep(store: Store, hour: int) -> None:
    """Keep the ten hours of eight boards that end at an hour."""
    samples = make_samples(gpus=8, minutes=600, end=NOW + timedelta(hours=hour))
    store.keep(make_collected(samples, batch_id=str(hour)))


def keep_until_full(store: Store) -> int:
    """Keep batch after batch; give how many the store held when one was refused."""
    for kept in range(1, 100):
        try:
            keep(store, kept)
        except StoreError:
            return kept
    pytest.fail("the store never ran out of room")


@pytest.mark.slow
@pytest.mark.usefixtures("room")
@pytest.mark.parametrize("left_kib", [0, 100, 1000, 3000])
def test_a_store_that_cannot_grow_loses_nothing_and_goes_on(
    tmp_path: Path, left_kib: int, measured: Measured
) -> None:
    """Writes fail by name, reading goes on; with room again the same process writes again."""
    path = tmp_path / "t.duckdb"
    with open_store(f"duckdb:///{path}") as store:
        keep(store, 0)
        size = max(file.stat().st_size for file in tmp_path.iterdir())
        resource.setrlimit(resource.RLIMIT_FSIZE, (size + 1024 * left_kib, _UNLIMITED[1]))
        kept = keep_until_full(store)
        assert store.reader.counts()["batches"] == kept
        with pytest.raises(StoreError, match="space"):
            keep(store, kept)
        resource.setrlimit(resource.RLIMIT_FSIZE, _UNLIMITED)
        keep(store, 200)
        assert store.reader.counts()["batches"] == kept + 1
    with open_store(f"duckdb:///{path}") as again:
        assert again.reader.counts()["batches"] == kept + 1
    measured(f"{kept} batches kept before the disk was full, none lost, writing went on")
