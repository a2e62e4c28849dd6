"""What several tests of applying share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from beds.apply_bench import JOB, Bench, fill
from beds.demo_store import DEMO_END
from beds.file_cluster import FileCluster
from beds.stated_time import clock_at
from beds.stores import filled


@pytest.fixture
def bench(store_url: str, tmp_path: Path) -> Iterator[Bench]:
    """A recommendation of two GPUs and the job that holds four; the record is whole at the end."""
    cluster = FileCluster(tmp_path / "cluster.json")
    cluster.create({JOB: {"gpus": "4", "model": "H100", "note": ""}})
    with filled(store_url, fill) as store:
        yield Bench(store, cluster, tmp_path)
        assert store.reader.verify_audit() == ()


@pytest.fixture(scope="module")
def demo_time() -> Iterator[None]:
    """The product's clock begins where the day of the demo ends, for the tests of a file."""
    with clock_at(DEMO_END):
        yield
