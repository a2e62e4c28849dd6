"""How long a replica starts: what was seen, once there is enough of it, and never by guessing."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.serving.cold_start import LEAD_SHARE, MIN_STARTS, cold_start

SECONDS = st.floats(1, 7200)
SETTING = 480.0


@given(st.lists(SECONDS, min_size=MIN_STARTS + 1, max_size=51))
def test_the_next_start_takes_no_longer_nine_times_of_ten(starts: list[float]) -> None:
    """Whatever the distribution: of starts in any order each may be the one that comes next."""
    kept = [
        starts[place] <= cold_start({"pods": starts[:place] + starts[place + 1 :]}, SETTING).seconds
        for place in range(len(starts))
    ]
    assert np.mean(kept) >= LEAD_SHARE


@given(st.lists(SECONDS, min_size=MIN_STARTS, max_size=50), st.randoms(use_true_random=False))
def test_it_is_one_of_the_starts_seen_in_whatever_order(
    starts: list[float], random: object
) -> None:
    """Never beyond what was seen; the longest while there are few."""
    found = cold_start({"pods": starts}, SETTING)
    shuffled = list(starts)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert cold_start({"pods": shuffled}, SETTING) == found
    assert found.seconds in starts
    assert found.typical_seconds is not None
    assert found.typical_seconds <= found.seconds
    assert (found.starts, found.source) == (len(starts), "pods")
    if len(starts) < 2 * MIN_STARTS + 1:
        assert found.seconds == max(starts)


@given(st.lists(SECONDS, max_size=MIN_STARTS - 1), st.lists(SECONDS, max_size=MIN_STARTS - 1))
def test_few_starts_leave_the_setting(pods: list[float], boards: list[float]) -> None:
    """How many were seen is said, and what half of them took."""
    found = cold_start({"pods": pods, "boards": boards}, SETTING)
    assert (found.seconds, found.source) == (SETTING, "setting")
    assert found.starts == max(len(pods), len(boards))
    assert (found.typical_seconds is None) == (not pods and not boards)


@pytest.mark.parametrize(("pods", "source"), [(9, "pods"), (8, "boards")])
def test_what_the_scheduler_tells_goes_first_once_it_is_enough(pods: int, source: str) -> None:
    """Boards are read by the minute and tokens by five: that is the coarser."""
    found = cold_start({"pods": [100.0] * pods, "boards": [300.0] * 9}, SETTING)
    assert (found.source, found.seconds) == (source, {"pods": 100.0, "boards": 300.0}[source])
