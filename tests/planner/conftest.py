"""What several tests of plans share."""

from collections.abc import Iterator

import pytest
from drawn import examples

from planner.slots import exact_program


@pytest.fixture(scope="module")
def short_search() -> Iterator[None]:
    """Exact programs search a twentieth of their tree, as properties have of their examples.

    For what holds of every plan, the cheapest or not. `make test-all` searches all of it.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact_program, "_NODE_COLUMNS", examples(exact_program._NODE_COLUMNS))
        yield
