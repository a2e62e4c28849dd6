"""Slurm uses job numbers again: what an earlier job did is no evidence against a later one."""

from dataclasses import replace
from datetime import timedelta

import pytest
from factories import NOW, make_collected, make_job, make_samples

from data.facts.jobs import Platform, SchedulerFacts
from data.store import Store


@pytest.mark.parametrize(
    ("platform", "restarts", "submitted_hours_ago", "kept_hours"),
    [
        (Platform.SLURM, "", 1.0, 1.0),
        (Platform.SLURM, "0", 2.4, 2.4),
        (Platform.SLURM, "", 20.0, 10.0),
        (Platform.SLURM, "1", 1.0, 10.0),
        (Platform.SLURM, "", None, 10.0),
        (Platform.KUBERNETES, "", 1.0, 10.0),
    ],
)
def test_history_begins_with_the_submission_of_this_job(
    store: Store,
    platform: Platform,
    restarts: str,
    submitted_hours_ago: float | None,
    kept_hours: float,
) -> None:
    """A requeue gives another submit time and the same job; a name on Kubernetes stays a name.

    In slots of every length.
    """
    submitted = None
    if submitted_hours_ago is not None:
        submitted = NOW - timedelta(hours=submitted_hours_ago)
    facts = SchedulerFacts(submitted_at=submitted, extra=(("restarts", restarts),))
    job = replace(make_job("slurm:5"), platform=platform, scheduler=facts)
    store.keep(make_collected(make_samples(minutes=600, job_id="slurm:5"), jobs=(job,)))
    begins = NOW - timedelta(hours=kept_hours)
    for slot_minutes in (5, 15, 30, 60):
        view = store.reader.planning_view(NOW, slot_seconds=60 * slot_minutes, history_days=2)
        first = view.history["slot_start"].min()
        slot = timedelta(minutes=slot_minutes)
        assert begins - slot <= first <= begins + slot
        assert [entry.job_id for entry in view.jobs] == ["slurm:5"]
