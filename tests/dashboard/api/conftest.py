"""A store with a finding of each of two owners, and clients of its API."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from beds.api_clients import PROXY, clients, two_owners
from starlette.testclient import TestClient

from data.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    """TT-1 of search, TT-2 of vision."""
    with two_owners(tmp_path) as opened:
        yield opened


@pytest.fixture
def as_(store: Store) -> Iterator[Callable[..., TestClient]]:
    """Clients where a proxy signs people in."""
    with clients(store, PROXY) as client:
        yield client
