"""Hours off of a job that rests at the same hours of each day, with the chance of being wrong."""

from dataclasses import replace
from datetime import timedelta

import numpy as np
import numpy.typing as npt
import pandas as pd
import pytest
from factories import make_job
from planning_cases import AS_OF, H100, boards, case, day_in_slots

from data.facts.columns import HISTORY, check_frame
from data.facts.job_history import job_histories
from data.facts.jobs import Platform, SchedulerFacts, WorkloadKind
from data.records.actions import Action
from planner.advise import advise
from planner.jobs.work_returns import HoursOff, hours_off, rests_of
from planner.plan import build_plan

Works = npt.NDArray[np.bool_]
JOB = make_job("lab/deployment/books", gpu_count=1, gpu_model=H100, platform=Platform.KUBERNETES,
               kind=WorkloadKind.INFERENCE,
               scheduler=SchedulerFacts(extra=(("gpus_per_pod", "1"),)))  # fmt: skip


def history_of(works: Works, *, end: pd.Timestamp | None = None) -> pd.DataFrame:
    """The history of an hour a slot, up to now."""
    times = pd.date_range(end=(end or AS_OF) - timedelta(hours=1), periods=len(works), freq="h")
    level = np.where(works, 0.6, 0.0)
    frame = pd.DataFrame(
        {
            "job_id": JOB.job_id,
            "slot_start": times.as_unit("us"),
            "effective_gpus": level,
            "utilization_ratio": level,
            "utilization_max_ratio": level,
            "allocated_gpus": 1.0,
            "memory_used_mib": 9_000.0,
            "power_watts": np.where(works, 450.0, 90.0),
            "sample_count": 5,
        }
    )
    return check_frame(frame, HISTORY)


def off_of(works: Works, *, end: pd.Timestamp | None = None) -> HoursOff | None:
    """The hours off of this history."""
    rows = job_histories(history_of(works, end=end))[JOB.job_id]
    return hours_off(rests_of(rows, slot_hours=1.0, idle_ratio=0.01))


def nights(days: int, *, begins: int, ends: int, now: int = 12) -> Works:
    """Work from `begins` to `ends` o'clock of every day, for days up to `now` o'clock."""
    hours = (np.arange(24 * days) + now) % 24
    return np.asarray((hours >= begins) & (hours < ends))


@pytest.mark.parametrize("now", [0, 3, 12, 21])
@pytest.mark.parametrize(("begins", "ends"), [(8, 20), (0, 9), (15, 24), (6, 7)])
def test_the_hours_in_which_it_never_worked_but_the_last_are_off(
    begins: int, ends: int, now: int
) -> None:
    """In clock hours, whatever time it is; the hour before work is for its start."""
    works = nights(28, begins=begins, ends=ends, now=now)
    found = off_of(works, end=AS_OF.replace(hour=now, minute=0))
    assert found is not None
    assert (found.start, found.end) == (ends % 24, (begins - 1) % 24)
    assert (found.days, found.chance) == (14, pytest.approx(0.5 / 15))


@pytest.mark.parametrize(
    "works",
    [
        np.zeros(24 * 28, dtype=bool),
        np.ones(24 * 28, dtype=bool),
        nights(1, begins=8, ends=20),
        nights(28, begins=4, ends=24),
    ],
)
def test_a_job_without_a_rest_of_its_own_hours_has_none_off(works: Works) -> None:
    """Never at work, always, for a day only, or at rest for too few hours."""
    assert off_of(works) is None


def test_the_stated_chance_comes_true() -> None:
    """Of drawn jobs with and without a pattern: that work falls into their hours off on a day."""
    draw = np.random.default_rng(52)
    stated, true = [], []
    for _number in range(400):
        by_hour = np.where(draw.random(24) < draw.uniform(0.2, 0.9), 0.0, draw.uniform(0.0, 0.8))
        by_hour = np.maximum(by_hour, draw.choice((0.0, 0.002, 0.01, 0.05)))
        now = AS_OF.hour
        hours = (np.arange(24 * int(draw.integers(10, 43))) + now) % 24
        found = off_of(draw.random(len(hours)) < by_hour[hours])
        if found is None:
            continue
        inside = np.arange(found.start, found.start + (found.end - found.start) % 24) % 24
        stated.append(found.chance)
        true.append(1 - np.prod(1 - by_hour[inside]))
    assert len(stated) > 100
    sure = np.array(stated) <= 0.1
    assert abs(np.mean(true) - np.mean(stated)) < 0.05
    assert np.mean(np.array(true)[sure]) < 0.1


@pytest.mark.parametrize(("max_chance", "is_offered"), [(0.1, True), (0.01, False)])
def test_a_service_at_rest_is_offered_its_hours_off(max_chance: float, is_offered: bool) -> None:
    """With the steps and the chance of being wrong, up to the chance that a site allows."""
    # It works in the mornings, and has rested for more than a day.
    works = nights(56, begins=8, ends=14, now=AS_OF.hour)
    works[-30:] = False
    planning = replace(day_in_slots(60), max_return_chance=max_chance)
    problem = case((JOB, 0.0, 9_000.0, 90.0), gpus=boards(H100, 8), planning=planning,
                   history=history_of(works))  # fmt: skip
    advice = advise(build_plan(problem, budget_seconds=0.1, created_at=AS_OF), problem)
    (row,) = [row for row in advice.recommendations if row.action is Action.SCALE_TO_ZERO]
    assert ("hours off: from 14:00 to 07:00 UTC" in row.why) == is_offered
    assert ('start "0 7 * * *", end "0 14 * * *"' in row.why) == is_offered
