"""Ten thousand hostile answers to the client: series or one named error, never a crash.

`python -m benchmarks.fuzz_prometheus --cases 100000` asks more.
"""

from collections import Counter
from collections.abc import Callable

import pytest
from fuzz.answering_adapter import FuzzedPrometheus
from fuzz.prometheus_bodies import hostile_body

from data.base.errors import CollectorError

CASES = 10_000
COLLECTED = 500


def outcome(ask: Callable[[bytes], int], seed: int) -> str:
    """Whether case `seed` was `read`, `empty` or `refused`; a crash names the case."""
    body = hostile_body(seed)
    try:
        return "read" if ask(body) else "empty"
    except CollectorError as error:
        return "refused" if error.hint else f"refused without a hint: {error}"
    except Exception as error:
        error.add_note(f"seed {seed}: {body[:300]!r}")
        raise


@pytest.mark.slow
@pytest.mark.slow_end
def test_no_answer_crashes_the_client() -> None:
    """Every body ends in series that can be written, or in a named error; both happen often."""
    prometheus = FuzzedPrometheus()
    ends = Counter(outcome(prometheus.ask, seed) for seed in range(CASES))
    assert set(ends) == {"read", "empty", "refused"}
    assert min(ends["read"], ends["refused"]) > CASES / 5


@pytest.mark.slow
@pytest.mark.slow_end
def test_no_answer_crashes_a_collection() -> None:
    """The way on from the client to samples holds too: all are of the time asked for."""
    prometheus = FuzzedPrometheus()
    ends = Counter(outcome(prometheus.collect, seed) for seed in range(CASES, CASES + COLLECTED))
    assert set(ends) <= {"read", "empty", "refused"}
    assert ends["read"] > COLLECTED / 5


def test_the_same_seed_is_the_same_case() -> None:
    """A case that fails can be had again by its seed."""
    assert [hostile_body(seed) for seed in range(50)] == [hostile_body(seed) for seed in range(50)]
    assert len({hostile_body(seed) for seed in range(50)}) == 50
