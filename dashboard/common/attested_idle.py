"""Attested idleness of running jobs, for whoever stops idle work: what is unknown is active."""

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from data.base.counts import count_text
from data.base.units import IDLE_RATIO, SAME_BOARDS, SLOT_SECONDS
from data.facts.jobs import ENDED_STATES, Job, JobState
from data.records.feasible_changes import UNREAD_COUNT
from data.store import StoreReader

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from data.facts.job_history import JobHistory

    Flags = npt.NDArray[np.bool_]
    Seconds = npt.NDArray[np.int64]
    """Of the epoch, a slot each."""

LOOK_BACK = timedelta(days=1)
MAX_AGE = timedelta(minutes=30)
"""Two cycles: readings that are older say nothing of now."""
_SLOT, _MINUTE = timedelta(seconds=SLOT_SECONDS), timedelta(minutes=1)
_GAP = 3 * _SLOT
"""Time between the slots of one rest: what was not read for longer may have been work."""
_SHORTEST_REST = 3 * _SLOT
"""A rest of less is none: a counter is known to be stuck after three slots."""
_MEANS, _MOMENTS = ("sm_active", "gr_engine_active"), 60
"""Signals that are means over the time between two readings; any other is of a moment, and so many
of a board without work leave work of 5 % of the time a chance of 5 %.
"""
_RUNNING_WITHIN = timedelta(hours=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class AttestedJob:
    """A running job that holds GPUs, and whether it is certain that they do nothing.

    `state` is idle or active. `idle_since` is None of an active job, and of one that has been idle
    for a day or more the start of that day. `read_until` is the end of the newest slot with
    readings, None where none has any. `evidence` tells what was read, or why it counts as active.
    """

    job_id: str
    namespace: str
    gpus: int
    state: str
    idle_since: datetime | None
    idle_minutes: float
    read_until: datetime | None
    evidence: str


def attested_jobs(reader: StoreReader, *, now: datetime) -> list[AttestedJob]:
    """Return a row for each job that runs; a recording is judged at its newest reading."""
    newest = reader.latest_sample_at(until=now)
    if newest is None:
        return []
    from data.facts.job_history import NO_HISTORY, job_histories  # with pandas

    at = newest if reader.recording() is not None else now
    start = newest - LOOK_BACK
    history = reader.job_history(
        "", start=start, end=newest, slot_seconds=SLOT_SECONDS, seen_since=start
    )
    past = job_histories(history)
    doubtful = reader.contradicted_jobs(end=newest)
    signals = reader.signals(start=start, end=newest, seen_since=start)
    rows = []
    for job in reader.jobs(seen_since=newest - _RUNNING_WITHIN):
        if not job.gpu_count or job.scheduling.state in (JobState.PENDING, *ENDED_STATES):
            continue
        counters = {counter.counter for counter in doubtful.get(job.job_id, ())}
        history_of = past.get(job.job_id, NO_HISTORY)
        rows.append(_row(job, history_of, at, sorted(counters), signals.get(job.job_id, "")))
    return rows


def _row(
    job: Job, past: "JobHistory", at: datetime, counters: list[str], signal: str
) -> AttestedJob:
    starts = past.slot_start.astype("datetime64[s]").astype("int64")
    until = min(at, _time(starts[-1]) + _SLOT) if len(starts) else None
    rests = _rests(past, job.gpu_count)
    first = _first_of_rest(starts, rests)
    since = None if first == len(starts) else _time(starts[first])
    rest = timedelta(0) if until is None or since is None else until - since
    doubt = _doubt(job, at, until, counters)
    if not doubt and rest < _SHORTEST_REST:
        doubt = _last_work(past, starts, rests)
    readings = past.sample_count[first:].sum() / job.gpu_count
    if not doubt and signal not in _MEANS and readings < _MOMENTS:
        doubt = (
            f"at rest, by {readings:.0f} readings of {signal or 'utilization'}, which tells of "
            f"moments: {_MOMENTS} are needed"
        )
    evidence = doubt or (
        f"{signal or 'utilization'} of {count_text(job.gpu_count, 'GPU')} at most "
        f"{100 * IDLE_RATIO:g} % in each reading since then; no counter contradicts it"
    )
    return AttestedJob(
        job_id=job.job_id,
        namespace=job.namespace,
        gpus=job.gpu_count,
        state="active" if doubt else "idle",
        idle_since=None if doubt else since,
        idle_minutes=0.0 if doubt else rest / _MINUTE,
        read_until=until,
        evidence=evidence,
    )


def _doubt(job: Job, at: datetime, until: datetime | None, counters: list[str]) -> str:
    """Return the reason that readings say nothing of the job now, '' where they do."""
    if job.scheduling.state is JobState.SUSPENDED:
        return "it is suspended"
    if UNREAD_COUNT in job.extra:
        return f"its number of GPUs, {job.extra[UNREAD_COUNT]!r}, is not understood"
    if until is None:
        return "it was not read in the last day"
    if at - until > MAX_AGE:
        return f"its newest reading is {(at - until) / _MINUTE:.0f} min old; see `trimtab doctor`"
    if counters:
        return f"other counters of its boards contradict {', '.join(counters)}"
    return ""


def _rests(past: "JobHistory", count: int) -> "Flags":
    """Return the mask of slots in which all GPUs were read and none showed work; NaN is unknown."""
    complete = past.allocated_gpus >= count - SAME_BOARDS
    flags: Flags = complete & (past.utilization_max_ratio <= IDLE_RATIO)
    return flags


def _first_of_rest(starts: "Seconds", rests: "Flags") -> int:
    """Return the place of the first slot of the rest at the end, their number where it is none."""
    first = len(starts)
    while first and rests[first - 1]:
        if first < len(starts) and starts[first] - starts[first - 1] > _GAP.total_seconds():
            break
        first -= 1
    return first


def _last_work(past: "JobHistory", starts: "Seconds", rests: "Flags") -> str:
    """Return the reason that a job with readings of now is not at rest for long enough."""
    work = [place for place, is_rest in enumerate(rests) if not is_rest]
    if not work or starts[work[-1]] < starts[-1] - _SHORTEST_REST.total_seconds():
        return f"it was read for less than {_SHORTEST_REST / _MINUTE:g} min"
    ratio, when = past.utilization_max_ratio[work[-1]], f"{_time(starts[work[-1]]):%H:%M} UTC"
    if ratio > IDLE_RATIO:
        return f"at work from {when} on: {100 * ratio:.0f} %"
    return f"not all of its GPUs were read in the 5 min from {when} on"


def _time(second: "np.int64") -> datetime:
    return datetime.fromtimestamp(int(second), UTC)
