"""What another number of boards brings a run, against a run that is walked through."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from fleet_cases import BRIEF
from growth_cases import GROWS, JOB_ID, advised, elastic, fleet
from hypothesis import given
from hypothesis import strategies as st
from planning_cases import AS_OF

from data.records.actions import Action
from data.records.recommendations import Recommendation
from planner.advise import Advice
from planner.advisers.growth_gain import DOUBLING, gain_of

HOUR = 3600.0


def grown_in(advice: Advice) -> list[Recommendation]:
    """The recommendations that grow a job."""
    return [row for row in advice.recommendations if row.action is Action.GROW]


def test_measured_sizes_stand_before_assumed_ones() -> None:
    """Five finished runs on each number tell the speed; a size that was no faster is left out.

    Runs of the present number alone tell its end: ten hours are left, at 4/3 of the speed 7.5.
    """
    runs = {4: (20 * HOUR,) * 5, 6: (15 * HOUR,) * 5, 8: (20 * HOUR,) * 5}
    for mode in ("measured", "assumed"):
        problem = fleet(elastic(), planning=replace(GROWS, grow_elastic_training=mode))
        (row,) = grown_in(advised(problem, facts={"runs": {JOB_ID: runs}}))
        assert row.proposed.gpu_count == 6
        assert row.confidence.startswith("medium: measured")
    told = {"runs": {JOB_ID: runs}, "progress": {}}
    mixed = {JOB_ID: (20 * HOUR,) * 10 + (15 * HOUR,) * 5}
    (row,) = grown_in(advised(fleet(elastic()), facts=told, past_runs=mixed))
    assert row.delay_hours is not None
    assert row.delay_hours.central == pytest.approx(-2.5, abs=0.2)
    few = {size: lengths[:4] for size, lengths in runs.items()}
    advice = advised(
        fleet(elastic(), planning=replace(GROWS, grow_elastic_training="measured")),
        facts={"runs": {JOB_ID: few}},
    )
    assert grown_in(advice) == []


def run_through(
    sizes: tuple[int, int], left: float, speed: float, pause: float, known: float
) -> tuple[float, float]:
    """How much earlier a run ends and what it holds more, walked in steps of 6 s."""

    def walk(*, changes: bool) -> tuple[float, float]:
        hours, done, held, step = 0.0, 0.0, 0.0, 1 / 600
        while done < left:
            working = hours >= pause if changes else True
            grown = changes and hours < pause + known
            done += step * (speed if grown else 1.0) * working
            held += step * (sizes[1] if grown else sizes[0])
            hours += step
        return hours, held

    (plain, held), (other, more) = walk(changes=False), walk(changes=True)
    return plain - other, more - held


@given(
    sizes=st.tuples(st.integers(1, 8), st.integers(1, 8)),
    left=st.floats(1.0, 40.0),
    speed=st.floats(0.5, 2.2),
    pause=st.floats(0.0, 0.4),
    known=st.sampled_from([4.0, 24.0]),
)
@BRIEF
def test_the_gain_is_that_of_a_run_walked_through(
    sizes: tuple[int, int], left: float, speed: float, pause: float, known: float
) -> None:
    """The formula against a simulation, growing and giving back, within and beyond the horizon."""
    ends = [AS_OF + timedelta(hours=left)]
    seconds = (pause * HOUR,) * 3
    found = gain_of(sizes, ends, np.array([speed]), seconds, as_of=AS_OF, known_hours=known)
    earlier, held = run_through(sizes, left, speed, pause, known)
    assert found.earlier.central == pytest.approx(earlier, abs=0.02)
    assert found.board_hours.central == pytest.approx(held, abs=0.2)


def test_published_speeds_of_twice_the_boards_bring_a_known_run_its_known_end() -> None:
    """Ten equally likely speeds around a median of 1.84; ten hours at twice the speed are five."""
    assert list(DOUBLING) == sorted(DOUBLING)
    assert np.quantile(DOUBLING, 0.5) == pytest.approx(1.84, abs=0.02)
    ends = [AS_OF + timedelta(hours=10)]
    sure = gain_of((4, 8), ends, np.array([2.0]), (0.0,) * 3, as_of=AS_OF, known_hours=24.0)
    assert (sure.earlier.central, sure.board_hours.central) == (5.0, 0.0)
