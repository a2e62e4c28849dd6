"""The end of a running job as its page tells it: by runs of the same job, by its limit, or not."""

from datetime import datetime, timedelta

import numpy as np
import pytest
from factories import NOW, make_job

from collectors.kubernetes.api import Document
from collectors.kubernetes.client import Inventory
from collectors.kubernetes.jobs import KubernetesCollector
from collectors.shared.collector import Window
from dashboard.web.jobs.job_sections import end_line
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from data.facts.jobs import Job, JobState, SchedulerFacts, WorkloadKind
from data.facts.progress import ProgressReport
from data.store import Store
from planner.jobs.job_end import expected_end, remaining_of

HOUR = 3_600.0
CONTAINER = {"resources": {"limits": {"nvidia.com/gpu": "1"}}}


class ReadAlready:
    """A cluster that was read already."""

    name = "bed"

    def __init__(self, **objects: list[Document]) -> None:
        self.found = Inventory(objects=objects)

    def inventory(self) -> Inventory:
        """Return it."""
        return self.found


def running(hours: float, limit_hours: float | None = None, **changes: object) -> Job:
    """A training job that has run for so many hours."""
    facts = SchedulerFacts(
        state=JobState.RUNNING,
        started_at=NOW - timedelta(hours=hours),
        time_limit_seconds=None if limit_hours is None else limit_hours * HOUR,
    )
    values = {"kind": WorkloadKind.TRAINING, "scheduler": facts} | changes
    return make_job("a/job/x", **values)


def test_runs_of_the_same_job_tell_end_and_share_done() -> None:
    """Ten runs of ten hours: one that has run for five is half done and ends in five hours."""
    said = end_line(running(5), [10 * HOUR] * 10, NOW)
    assert said.startswith(f"Expected {NOW + timedelta(hours=5):%Y-%m-%d}")
    assert "by 10 finished runs of the same job" in said
    found = expected_end(running(5), [10 * HOUR] * 10, NOW)
    assert found is not None
    assert found.central_ratio == pytest.approx(0.5, abs=0.02)
    assert found.low_ratio < found.central_ratio < found.high_ratio


@pytest.mark.parametrize("so_far", [0.0, 3.0, 9.0, 30.0, 200.0])
@pytest.mark.parametrize("limit", [None, 12.0, 31.0])
def test_the_page_tells_the_end_that_plans_count_with(so_far: float, limit: float | None) -> None:
    """The interval of the page is that of the hours left in a plan, whatever was survived."""
    lengths = [float(length) * HOUR for length in np.random.default_rng(5).gamma(4.0, 3.0, 9)]
    job = running(so_far, limit)
    found = expected_end(job, lengths, NOW)
    assert found is not None
    assert NOW <= found.low <= found.central <= found.high
    if limit is not None:
        assert found.high <= max(NOW, NOW + timedelta(hours=limit - so_far))
    slots = [NOW + timedelta(hours=number) for number in range(9_000)]
    left = remaining_of(job, slots, timedelta(hours=1), as_of=NOW, past_runs=lengths)
    hours = np.quantile(left.likely.sum(axis=1), [0.1, 0.5, 0.9])
    shown = [(at - NOW) / timedelta(hours=1) for at in (found.low, found.central, found.high)]
    assert np.minimum(shown, 9_000.0) == pytest.approx(hours, rel=1e-3, abs=1e-3)


def test_a_run_that_outlasts_all_before_it_ends_nobody_knows_when() -> None:
    """It is not told to end at this very moment: as long again is as likely as not."""
    for so_far in (20.0, 60.0, 300.0):
        found = expected_end(running(so_far), [hours * HOUR for hours in (5, 5.5, 6, 6, 7, 7)], NOW)
        assert found is not None
        assert found.low > NOW
        assert (found.central - NOW) / timedelta(hours=1) == pytest.approx(so_far, rel=0.1)
        assert found.central_ratio == pytest.approx(0.5, abs=0.03)


def test_a_limit_that_has_passed_is_told_as_passed() -> None:
    """Grace times and late samples."""
    assert end_line(running(9, 8), [], NOW).endswith("Its end by its time limit has passed.")


def test_too_few_runs_leave_the_end_unknown_and_a_limit_stands() -> None:
    """Four runs tell no end; what the scheduler enforces is said."""
    assert end_line(running(1), [HOUR] * 4, NOW).startswith("Unknown: 4 finished runs")
    limited = end_line(running(1, 8), [], NOW)
    assert "0 finished runs" in limited
    assert f"its time limit at {NOW + timedelta(hours=7):%Y-%m-%d %H:%M} UTC" in limited


def reported(*shares: float, minutes_ago: int = 5) -> list[ProgressReport]:
    """A report every ten minutes, the last so long ago."""
    last = NOW - timedelta(minutes=minutes_ago)
    return [
        ProgressReport(reported_at=last - number * timedelta(minutes=10), done_ratio=share)
        for number, share in enumerate(reversed(shares))
    ][::-1]


def test_reported_progress_tells_the_end_without_earlier_runs() -> None:
    """The page names what tells it and what was reported."""
    said = end_line(running(5), [], NOW, reported(*np.linspace(0.0, 0.5, 30)))
    assert said.startswith("Expected ")
    assert "by the progress that it reports." in said
    assert said.endswith("It reported 50 % of its work as done.")


def test_a_train_job_that_is_instrumented_has_an_end_on_its_page(store: Store) -> None:
    """From what the cluster shows every half hour through the store to the page and the plan."""
    seen = [NOW - timedelta(minutes=30 * number) for number in range(10)][::-1]
    for number, at in enumerate(seen):
        status = {"progressPercentage": 10 + 5 * number, "lastUpdatedTime": at.isoformat()}
        job = {"metadata": {"name": "w", "namespace": "ml"}, "status": {"trainerStatus": status}}
        owner = {"kind": "TrainJob", "name": "w", "controller": True}
        pod = {
            "metadata": {"name": "p", "namespace": "ml", "uid": "u", "ownerReferences": [owner]},
            "spec": {"nodeName": "n1", "containers": [CONTAINER]},
            "status": {
                "phase": "Running", "startTime": (seen[0] - timedelta(hours=1)).isoformat()
            },
        }  # fmt: skip
        store.keep(
            KubernetesCollector(ReadAlready(TrainJob=[job], Pod=[pod]), load_gpu_catalogue())
            .collect(Window(start=at - timedelta(minutes=30), end=at))
        )  # fmt: skip
    known = store.reader.job("ml/trainjob/w")
    assert known is not None
    said = end_line(known, [], NOW, store.reader.job_progress(known.job_id, end=NOW))
    # Five per cent each half hour: the 45 % that are left take four and a half hours.
    found = datetime.fromisoformat(said[9:25]).replace(tzinfo=NOW.tzinfo)
    assert abs(found - NOW - timedelta(hours=4.5)) < timedelta(minutes=20)
    assert said.endswith("It reported 55 % of its work as done.")
    view = store.reader.planning_view(NOW, slot_seconds=900, history_days=1)
    assert len(view.progress[known.job_id]) == 10


def test_old_reports_are_told_as_old_and_all_done_as_such() -> None:
    """A job that stopped to report, and one that goes on after its last step."""
    old = end_line(running(9), [], NOW, reported(*np.linspace(0.0, 0.5, 30), minutes_ago=90))
    at = NOW - timedelta(minutes=90)
    assert old.endswith(f"done at {at:%Y-%m-%d %H:%M} UTC, and nothing for 1.5 h.")
    done = end_line(running(9), [], NOW, reported(0.9, 1.0))
    assert done.startswith("Unknown: 0 finished runs")
    assert "all its work as done" in done
    assert end_line(running(1), [], NOW, reported(0.5, minutes_ago=90)) == end_line(
        running(1), [], NOW
    )


def test_a_service_has_no_end() -> None:
    """A deployment that serves ends by nobody's clock."""
    assert end_line(running(1, kind=WorkloadKind.INFERENCE), [], NOW) == ""
