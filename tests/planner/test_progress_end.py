"""The end of a running job by the progress that it reports, whatever it reports."""

from collections.abc import Sequence
from datetime import timedelta

import numpy as np
import pytest
from factories import NOW, make_job
from hypothesis import given
from hypothesis import strategies as st

from data.facts.jobs import Job, JobState, SchedulerFacts, WorkloadKind
from data.facts.progress import ProgressReport
from planner.jobs.job_end import ends_by_progress, expected_end, remaining_of

HOUR = timedelta(hours=1)
SLOT = timedelta(minutes=5)


def reports(ratios: Sequence[float], *, until: timedelta = timedelta(0)) -> list[ProgressReport]:
    """A report every five minutes, the last so long before NOW."""
    first = NOW - until - (len(ratios) - 1) * SLOT
    return [
        ProgressReport(reported_at=first + number * SLOT, done_ratio=ratio)
        for number, ratio in enumerate(ratios)
    ]


def running(hours: float = 10.0, state: JobState = JobState.RUNNING) -> Job:
    """A training job that began so many hours ago."""
    facts = SchedulerFacts(state=state, started_at=NOW - hours * HOUR)
    return make_job("a/trainjob/x", kind=WorkloadKind.TRAINING, scheduler=facts)


def span(ends: Sequence[object]) -> tuple[float, float, float]:
    """q10, median and q90 in hours from NOW."""
    hours = [(end - NOW) / HOUR for end in ends]  # type: ignore[operator]
    low, central, high = np.quantile(hours, (0.1, 0.5, 0.9))
    return float(low), float(central), float(high)


EVEN = list(np.linspace(0.0, 0.5, 61))
"""Half of the work in five hours."""


def test_an_even_run_ends_when_the_rest_takes_as_long() -> None:
    """Half done in five hours: five more; told in whole per cent as in steps."""
    for ratios in (EVEN, np.floor(100 * np.array(EVEN)) / 100):
        low, central, high = span(ends_by_progress(reports(ratios), NOW))
        assert central == pytest.approx(5.0, abs=0.2)
        assert 0 < high - low < 1.5


def test_two_sources_that_round_differently_tell_no_steps_back() -> None:
    """Steps through Prometheus and whole per cent of the same TrainJob, in turns for 25 hours."""
    exact = np.linspace(0.0, 0.5, 301)
    mixed = np.where(np.arange(301) % 2, exact, np.floor(100 * exact) / 100)
    low, central, high = span(ends_by_progress(reports(list(mixed)), NOW))
    assert central == pytest.approx(25.0, abs=0.5)
    assert high - low < 7.5


@given(st.lists(st.floats(0.0, 1.0), max_size=80), st.integers(0, 10_000))
def test_whatever_is_reported_no_end_lies_before_now(ratios: list[float], minutes: int) -> None:
    """Ends are in order and later than now, also of reports that jump, stand still and are old."""
    ends = ends_by_progress(reports(ratios, until=timedelta(minutes=minutes)), NOW)
    assert len(ends) in (0, 40)
    assert ends == sorted(ends)
    assert all(end > NOW for end in ends)


@given(st.lists(st.floats(0.001, 1.0), min_size=12, max_size=80), st.floats(0.05, 0.9))
def test_the_less_is_done_the_later_is_the_end(steps: list[float], done: float) -> None:
    """The same steps in the same times, of a job with more to do: no quantile is earlier."""
    shares = np.cumsum(steps) / np.sum(steps)
    found = [
        span(ends)
        for share in (done, done / 2)
        if (ends := ends_by_progress(reports(shares * share), NOW))
    ]
    assert len(found) < 2 or all(more >= less for less, more in zip(*found, strict=True))


@given(st.integers(0, 25), st.integers(1, 20))
def test_silence_widens_the_interval(before: int, more: int) -> None:
    """Of reports that stopped longer ago the end is told less surely, until it may be over."""
    widths = []
    for slots in (before, before + more):
        low, _central, high = span(ends_by_progress(reports(EVEN), NOW + slots * SLOT))
        widths.append(high - low)
    assert widths[1] > widths[0]


def test_an_end_that_is_long_over_is_not_told() -> None:
    """Half done in five hours, and nothing since then for a day: nobody knows."""
    assert ends_by_progress(reports(EVEN, until=24 * HOUR), NOW) == []


def test_a_job_that_stands_still_ends_later_with_every_report() -> None:
    """A hang: the same share is reported for ten hours more, and the end moves as far."""
    stuck = reports([*EVEN, *[0.5] * 120])
    assert span(ends_by_progress(stuck, NOW))[1] == pytest.approx(5.0, abs=0.3)


def test_after_a_restart_the_work_is_counted_from_the_checkpoint() -> None:
    """Steps back are no progress, and what they cost may be lost again."""
    whole = span(ends_by_progress(reports(EVEN), NOW))
    again = [*np.linspace(0.0, 0.4, 49), *np.linspace(0.2, 0.5, 37)]
    back = span(ends_by_progress(reports(again), NOW))
    assert back[1] > whole[1]
    assert back[2] - back[0] > whole[2] - whole[0]


@pytest.mark.parametrize(
    "ratios", [[], [0.5], [0.1, 0.2, 0.3], [0.5] * 50, list(np.linspace(0, 1, 60)),
               [0.3, 0.2, 0.1] * 9, list(np.linspace(0.5, 0.51, 60))]
)  # fmt: skip
def test_too_little_progress_tells_no_end(ratios: list[float]) -> None:
    """Nothing, no change, less than 2 % of the work, and all of it."""
    assert ends_by_progress(reports(ratios), NOW) == []


def test_the_narrower_of_runs_and_progress_tells_the_end() -> None:
    """Runs of one length are surer than progress, runs of any length are not."""
    equal = expected_end(running(5), [10 * 3600.0] * 40, NOW, reports(EVEN))
    spread = [float(hours) * 3600 for hours in np.linspace(5, 20, 12)]
    wide = expected_end(running(5), spread, NOW, reports(EVEN))
    assert equal is not None
    assert equal.by == "40 finished runs of the same job"
    assert wide is not None
    assert wide.by == "the progress that it reports"
    assert wide.high - wide.low < 2 * HOUR


def test_where_runs_and_progress_contradict_both_count() -> None:
    """Earlier runs ended in six hours, progress tells of ten: the interval holds both."""
    found = expected_end(running(5), [6 * 3600.0] * 40, NOW, reports(EVEN))
    assert found is not None
    assert "reports and 40 finished runs" in found.by
    assert found.low < NOW + 1.5 * HOUR
    assert found.high > NOW + 4.5 * HOUR


def test_plans_count_with_the_end_that_progress_tells() -> None:
    """Of a job that reports nothing they count with what they did before."""
    slots = [NOW + number * HOUR for number in range(24)]
    told = remaining_of(running(), slots, HOUR, as_of=NOW, progress=reports(EVEN))
    assert told.hours(1.0) == pytest.approx(5.0, abs=0.3)
    assert "by the progress that it reports" in told.why
    silent = remaining_of(running(), slots, HOUR, as_of=NOW)
    assert silent.hours(1.0) == 24.0
    assert silent.why == ""


@pytest.mark.parametrize(
    "job", [running(1.0), running(state=JobState.PENDING), make_job("a/x", scheduler=None)]
)
def test_reports_of_another_run_tell_nothing(job: Job) -> None:
    """Those from before its start, of a job that waits, and of one without a known start."""
    early = reports(EVEN, until=2 * HOUR)
    assert expected_end(job, [], NOW, early) is None
