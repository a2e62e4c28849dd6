"""What jobs report of their work is kept once a time, and read by job on both engines."""

from datetime import datetime, timedelta

import numpy as np
import pandas as pd
import pytest
from factories import NOW, make_collected, make_job, make_samples

from data.facts.columns import ALLOCATIONS, check_frame
from data.facts.jobs import Job, JobState, OwnNames, SchedulerFacts
from data.settings.all_settings import PlanningSettings, RetentionSettings
from data.store import Store
from data.store.handles.tenant_reader import OwnedReader
from planner.jobs.elasticity import lost_work_of

JOB = "ml/trainjob/w"
MINUTE = timedelta(minutes=1)


def told(label: str, *shares: float, until: datetime = NOW) -> pd.DataFrame:
    """A report a minute, the last at `until`."""
    times = pd.date_range(end=until, periods=len(shares), freq="1min").as_unit("us")
    return pd.DataFrame({"label_id": label, "reported_at": times, "done_ratio": shares})


def keep(store: Store, *frames: pd.DataFrame, name: str = "a", job: Job | None = None) -> None:
    """Keep reports, and that the job holds the pod ml/p."""
    held = {"job_id": JOB, "label_id": "ml/p", "node": "n1", "source": "k", "gpu_count": 1.0}
    times = {"started_at": [NOW - 90 * MINUTE], "seen_at": [NOW]}
    since = pd.DataFrame(times).apply(lambda column: column.dt.as_unit("us")).assign(**held)
    store.keep(
        make_collected(
            make_samples(),
            batch_id=name,
            jobs=(job or make_job(JOB, owner="lea"),),
            allocations=check_frame(since, ALLOCATIONS),
            progress=pd.concat(frames, ignore_index=True),
        )
    )


def read(store: Store) -> list[float]:
    """The shares of the job, by time."""
    return [report.done_ratio for report in store.reader.job_progress(JOB, end=NOW)]


def test_pods_and_the_job_itself_are_read_as_the_job(store: Store) -> None:
    """Of one time the furthest; told again, the latter; in what order they come is no matter."""
    keep(store, told("ml/p", 0.2, 0.3), told("other/p", 0.9))
    keep(store, told(JOB, 0.1, 0.25, 0.1, until=NOW - MINUTE), told("ml/p", 0.35), name="b")
    assert read(store) == [0.1, 0.25, 0.2, 0.35]
    assert [report.done_ratio for report in store.reader.job_progress("other/p", end=NOW)] == [0.9]


def test_a_plan_sees_the_reports_of_the_week_before_it(store: Store) -> None:
    """None of later, and none of a job that began a week before."""
    keep(store, told(JOB, 0.5), told(JOB, 0.6, until=NOW + MINUTE),
         told(JOB, 0.1, until=NOW - timedelta(days=8)))  # fmt: skip
    view = store.reader.planning_view(NOW, slot_seconds=900, history_days=1)
    assert [report.done_ratio for report in view.progress[JOB]] == [0.5]


def test_of_older_hours_the_last_report_is_read(store: Store) -> None:
    """All of the last six hours, and one an hour before them: also a step back stays."""
    old = (*np.linspace(0.1, 0.3, 180), *np.linspace(0.2, 0.4, 120))
    keep(store, told(JOB, *old, until=NOW - timedelta(hours=6, minutes=1)), told(JOB, 0.5, 0.6))
    found = store.reader.job_progress(JOB, end=NOW)
    assert [report.reported_at.minute for report in found] == [59] * 5 + [59, 0]
    assert read(store) == pytest.approx([old[59], old[119], old[179], old[239], old[299], 0.5, 0.6])


def saved(label: str, at: datetime, told_at: datetime = NOW) -> pd.DataFrame:
    """A report of a checkpoint, and of no progress."""
    times = pd.DataFrame({"reported_at": [told_at], "checkpoint_at": [at]})
    return times.apply(lambda column: column.dt.as_unit("us")).assign(
        label_id=label, done_ratio=float("nan")
    )


@pytest.mark.parametrize("marked", ["", "earlier", "later"])
def test_a_plan_counts_the_newest_checkpoint_that_is_told(store: Store, marked: str) -> None:
    """By a metric of any pod, or by the owner's mark; no report of a later time than the plan's."""
    mark = NOW - {"earlier": 40, "later": 5}.get(marked, 0) * MINUTE
    extra = (("checkpoint_at", mark.isoformat()),) if marked else ()
    facts = SchedulerFacts(
        state=JobState.RUNNING, started_at=NOW - timedelta(hours=9), extra=(("a", "b"), *extra)
    )
    keep(
        store,
        saved("ml/p", NOW - 20 * MINUTE),
        saved("ml/p", NOW - 30 * MINUTE, NOW - 10 * MINUTE),
        saved(JOB, NOW - 50 * MINUTE),
        saved("ml/p", NOW + MINUTE, NOW + 5 * MINUTE),
        job=make_job(JOB, owner="lea", scheduler=facts),
    )
    view = store.reader.planning_view(NOW, slot_seconds=900, history_days=1)
    assert read(store) == []
    (job,) = (entry for entry in view.known_jobs if entry.job_id == JOB)
    lost = lost_work_of(job, PlanningSettings())
    age = (job.last_seen_at - NOW).total_seconds() + (300.0 if marked == "later" else 1200.0)
    assert lost.seconds == (age,) * 3
    assert job.extra["a"] == "b"


def test_an_owner_reads_the_progress_of_their_jobs_alone(store: Store) -> None:
    """By the name of a job and by that of its pod."""
    keep(store, told(JOB, 0.5, until=NOW - MINUTE), told("ml/p", 0.6), told("other/p", 0.9))
    for owner, mine in (("lea", [0.5, 0.6]), ("x", [])):
        names = OwnNames(owners=frozenset((owner,)), users=frozenset())
        reader = OwnedReader(store.reader_for_pages(), names)
        found = reader.job_progress(JOB, end=NOW)
        assert [report.done_ratio for report in found] == mine
        assert reader.job_progress("other/p", end=NOW) == ()


def test_reports_are_forgotten_with_the_slots_of_five_minutes(store: Store) -> None:
    """And are not kept again when they come late."""
    keep(store, told(JOB, 0.4, 0.5))
    late = NOW + timedelta(days=RetentionSettings().five_minute_days + 1)
    assert store.forget(RetentionSettings(), late)["job_progress"] == 2
    keep(store, told(JOB, 0.5), name="late")
    assert read(store) == []
