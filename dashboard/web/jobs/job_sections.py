"""Sections of a job: boards, expected end, scheduler, similar runs, memory and slow work."""

from collections.abc import Sequence
from datetime import datetime, timedelta

import pandas as pd
import streamlit as st

from dashboard.common.escaping import markdown
from dashboard.web.access.identity import current_role, current_world
from dashboard.web.frame.page import opener_of_rows, table
from data.base.clock import floor_to_slot
from data.base.errors import sentence
from data.base.units import SECONDS_PER_HOUR
from data.facts.jobs import Job, JobState, WorkloadKind
from data.facts.progress import ProgressReport
from data.records.memory import MemoryOutlook
from data.records.slow_work import SlowCause
from data.store.handles.cached_reader import CachedReader
from forecasting.series.job_keys import job_key
from forecasting.series.past_runs import past_run_seconds
from planner.jobs.job_end import MIN_RUNS, expected_end, reports_of_present_run, scheduled_end

_RUNNING_WITHIN = timedelta(hours=1)
"""A job that nothing was seen of for longer is not known to run."""
_HOUR = timedelta(hours=1)
_STALE_AFTER = timedelta(minutes=30)
"""Six slots of the store: trainers report every few seconds to minutes."""
_BOARDS = 100
_MAX_LOOKED_AT = 400
_MAX_ROWS = 20
_RUN_DAYS = 30
_UNKNOWN_CAUSE = (
    "Unknown: no source tells what keeps its GPUs at work. DCGM's profiling metrics would "
    "(SM, tensor and engine activity, PCIe and NVLink)."
)


def run_end(
    job: Job, others: Sequence[Job], progress: Sequence[ProgressReport], as_of: datetime
) -> None:
    """Show the expected end of a running job by `others` of the same job and what it reported."""
    facts = job.scheduler
    if facts is None or facts.started_at is None or facts.state is not JobState.RUNNING:
        return
    if job.last_seen_at < as_of - _RUNNING_WITHIN:
        return
    lengths = past_run_seconds((job, *others)).get(job.job_id, ())
    line = end_line(job, lengths, as_of, progress)
    if line:
        st.header("End of this run")
        st.write(markdown(line))


def end_line(
    job: Job, lengths: Sequence[float], as_of: datetime, progress: Sequence[ProgressReport] = ()
) -> str:
    """Return when a job ends by `lengths` of ended runs in s and by what it reported, by time.

    It is '' of a service without a limit that reports nothing.
    """
    limit, end = scheduled_end(job, as_of), expected_end(job, lengths, as_of, progress)
    rest = _reported(job, progress, as_of)
    if limit is not None:
        at_the_latest = f" Ended by {limit[1]} at {_time(limit[0])} at the latest."
        rest += at_the_latest if limit[0] >= as_of else f" Its end by {limit[1]} has passed."
    if end is not None:
        done = [round(100 * ratio) for ratio in (end.central_ratio, end.low_ratio)]
        return (
            f"Expected {_time(end.central)} (80 %: {_time(end.low)} to {_time(end.high)}), "
            f"by {end.by}. Done: {done[0]} % of the run "
            f"(80 %: {done[1]} to {100 * end.high_ratio:.0f} %).{rest}"
        )
    if job.kind is WorkloadKind.INFERENCE and not rest:
        return ""
    history = f"{len(lengths)} finished run{'' if len(lengths) == 1 else 's'} of the same job known"
    return f"Unknown: {history}, {MIN_RUNS} are needed.{rest}"


def _reported(job: Job, progress: Sequence[ProgressReport], as_of: datetime) -> str:
    """Return the newest report of the present run as a sentence, '' without one."""
    mine = [
        report for report in reports_of_present_run(job, progress) if report.reported_at <= as_of
    ]
    if not mine:
        return ""
    newest, silent = mine[-1], as_of - mine[-1].reported_at
    if newest.done_ratio >= 1:
        return f" It reported all its work as done at {_time(newest.reported_at)} and still runs."
    text = f" It reported {100 * newest.done_ratio:.0f} % of its work as done"
    if silent <= _STALE_AFTER:
        return f"{text}."
    return f"{text} at {_time(newest.reported_at)}, and nothing for {silent / _HOUR:.1f} h."


def _time(at: datetime | None) -> str:
    return "" if at is None else f"{at:%Y-%m-%d %H:%M} UTC"


def show_boards(reader: CachedReader, job: Job, end: datetime) -> None:
    """Show the boards that the job holds; a click on one opens it on Fleet."""
    if current_role() == "owner":  # the page Fleet is not theirs
        return
    boards = [
        gpu
        for gpu in reader.gpus(start=end - timedelta(hours=1), end=end)
        if job.job_id in gpu.holders
    ]
    if not boards:
        return
    st.header("GPUs")
    rows = pd.DataFrame(
        {
            "node": gpu.node,
            "gpu_uuid": gpu.gpu_uuid,
            "gpu_model": f"{gpu.gpu_model} {gpu.mig_profile}".rstrip(),
        }
        for gpu in boards[:_BOARDS]
    )
    places = [{"q": gpu.node, "gpu": gpu.gpu_uuid} for gpu in boards]
    table(rows, "held-boards", exported=False, opens=opener_of_rows("fleet", places))
    if len(boards) > _BOARDS:
        st.caption(f"{_BOARDS} of {len(boards):,} GPUs are listed.")


def scheduler_facts(job: Job) -> None:
    """Show state, reason, user, nodes and times of a job. Text is the cluster's own: untrusted."""
    facts = job.scheduler
    if facts is None:
        return
    st.header("Scheduler")
    limit = facts.time_limit_seconds
    rows = {
        "state": str(facts.state),
        "reason": facts.reason,
        "workload": facts.workload,
        "user": facts.user,
        "account": facts.account,
        "QOS": facts.qos,
        "nodes": ", ".join(facts.nodes),
        "submitted": _time(facts.submitted_at),
        "started": _time(facts.started_at),
        "ended": _time(facts.ended_at),
        "time limit": "" if limit is None else f"{limit / 3600:.2f} h",
        "managed by": ", ".join(facts.managed_by),
        **dict(facts.extra),
    }
    texts = {name: value for name, value in rows.items() if value}
    table(pd.DataFrame({"fact": list(texts), "value": list(texts.values())}), "scheduler")


def runs_of(reader: CachedReader, job: Job) -> list[Job]:
    """Return the other runs of a recurring job, the latest first."""
    similar = reader.similar_jobs(job, most=_MAX_LOOKED_AT)
    return [entry for entry in similar if job_key(entry) == job_key(job)]


def similar_runs(reader: CachedReader, job: Job, others: Sequence[Job]) -> None:
    """Show the latest `others` of the same job beside this one, or say that there are none."""
    st.header("Runs of the same job")
    others = others[:_MAX_ROWS]
    if not others:
        st.write("None is known: no other job has this name, owner, kind and GPU model.")
        return
    runs = [job, *others]
    start = max(
        job.last_seen_at - timedelta(days=_RUN_DAYS), min(run.first_seen_at for run in runs)
    )
    hours = reader.job_hours(
        tuple(run.job_id for run in runs), start=floor_to_slot(start, SECONDS_PER_HOUR)
    )
    table(pd.DataFrame([_run_row(run, hours) for run in runs]), "runs")
    st.caption(f"Of the last {_RUN_DAYS} d; the first is this one.")


def _run_row(job: Job, hours: pd.DataFrame) -> dict[str, object]:
    mine = hours[hours["job_id"] == job.job_id]
    gpu_hours = _sum_of(mine, "gpu_hours")
    used = _sum_of(mine, "used_gpu_hours")
    return {
        "job": job.job_id,
        "state": str(job.scheduler.state) if job.scheduler else "",
        "first seen": job.first_seen_at,
        "hours": (job.last_seen_at - job.first_seen_at) / timedelta(hours=1),
        "GPUs": job.gpu_count,
        "GPU-hours": gpu_hours,
        "idle GPU-hours": _sum_of(mine, "idle_gpu_hours"),
        "in use (%)": None if not gpu_hours or used is None else 100 * used / gpu_hours,
        "kWh": _sum_of(mine, "energy_kwh"),
    }


def _sum_of(rows: pd.DataFrame, column: str) -> float | None:
    values = rows[column].dropna()
    return None if values.empty else float(values.sum())


def slow_work_line(job_id: str) -> None:
    """Show the cause of a slow job, how sure it is, what it loses and what to try."""
    st.header("What limits its speed")
    mine = [entry for entry in current_world().reader.slow_work() if entry.job_id == job_id]
    if not mine:
        st.write(_UNKNOWN_CAUSE)
        return
    (slow_work,) = mine
    words = slow_work.describe()
    text = markdown(words[:1].upper() + words[1:])
    if not slow_work.cause.is_slow:
        st.write(f"Not slow: {markdown(words)}" if slow_work.cause is SlowCause.BUSY else text)
        return
    (st.info if slow_work.confidence == "weak" else st.warning)(text)
    lost = slow_work.lost_ratio
    st.write(
        "What it costs is unknown: GPUs do not tell how much slower they work."
        if lost is None
        else f"It takes {100 * lost.central:.0f} % ({100 * lost.low:.0f}–{100 * lost.high:.0f} %) "
        "of the time of its GPUs."
    )
    st.markdown(f"- To try: {markdown(slow_work.remedy)}")
    st.caption(markdown(", ".join(f"{name} {value:.2f}" for name, value in slow_work.signals)))


def memory_line(job_id: str) -> None:
    """Say below a job's memory what will run out, with what can be done, or where room is."""
    for finding in current_world().reader.memory_outlook() or ():
        if finding.job_id != job_id:
            continue
        alarm = finding.outlook is MemoryOutlook.RUNS_OUT
        (st.warning if alarm else st.info)(markdown(sentence(finding.why)))
        for advice in finding.advice:
            mark = {True: " — fits", False: " — not enough alone", None: ""}[advice.fits]
            st.markdown(f"- {markdown(advice.text + mark)}")
        st.caption(markdown("; ".join(finding.evidence)))
