"""When a running job is expected to end, and how much of its run is done."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import streamlit as st

from dashboard.web.page import plain
from data.records.jobs import Job, JobState, WorkloadKind
from forecasting.past_runs import past_run_seconds
from planner.problem.job_end import MIN_RUNS, expected_end, told_end

_SEEN_WITHIN = timedelta(hours=1)
"""A job that nothing was seen of for longer is not known to run."""


def run_end(job: Job, others: Sequence[Job], as_of: datetime) -> None:
    """Show the expected end of a running job; `others` are runs of the same job."""
    facts = job.scheduler
    if facts is None or facts.started_at is None or facts.state is not JobState.RUNNING:
        return
    if job.last_seen_at < as_of - _SEEN_WITHIN:
        return
    lengths = past_run_seconds((job, *others)).get(job.job_id, ())
    said = end_line(job, lengths, as_of)
    if said:
        st.subheader("End of this run")
        st.write(plain(said))


def end_line(job: Job, lengths: Sequence[float], as_of: datetime) -> str:
    """Return when a job ends by `lengths` of ended runs in s, '' of a service without a limit."""
    told, found = told_end(job, as_of), expected_end(job, lengths, as_of)
    limit = ""
    if told is not None:
        at_the_latest = f" Ended by {told[1]} at {_time(told[0])} at the latest."
        limit = at_the_latest if told[0] >= as_of else f" Its end by {told[1]} has passed."
    if found is not None:
        done = [round(100 * ratio) for ratio in (found.central_ratio, found.low_ratio)]
        return (
            f"Expected {_time(found.central)} (80 %: {_time(found.low)} to {_time(found.high)}), "
            f"by {found.runs} finished runs of the same job. Done: {done[0]} % of the run "
            f"(80 %: {done[1]} to {100 * found.high_ratio:.0f} %).{limit}"
        )
    if job.kind is WorkloadKind.INFERENCE and not limit:
        return ""
    known = f"{len(lengths)} finished run{'' if len(lengths) == 1 else 's'} of the same job known"
    return f"Unknown: {known}, {MIN_RUNS} are needed.{limit}"


def _time(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
