"""What the tests of the store share."""

from collections.abc import Iterator

import pytest

from data.store import Store, open_store


@pytest.fixture
def shared(postgres_url: str) -> Iterator[Store]:
    """An empty store on PostgreSQL."""
    with open_store(postgres_url) as opened:
        yield opened
