"""Expected starts of waiting jobs and ends of all: nothing is saved of them before and after.

Its scheduler may tell: a time limit, a deadline, an end already known (a recording). Where it does
not, ended runs of the same job or the progress that it reports give a forecast with a spread.
Without any of them no end is known.

What a job reports is foreign: it may go back (a restart from a checkpoint), stand still (an
evaluation, a hang), come in whole per cent, and stop coming.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt
from scipy.special import stdtr, stdtrit  # type: ignore[import-untyped]

from data.facts.jobs import Job, JobState
from data.facts.progress import ProgressReport
from data.facts.queue_waits import QueueWait

Values = npt.NDArray[np.float64]

LEVELS = (np.arange(40) + 0.5) / 40
_MIN_WORK, _MIN_CHANGES, _MAX_WINDOWS = 0.02, 4, 12
_STEP_BACK = 0.01
"""A smaller one is rounding: two sources of one job may tell steps and whole per cent."""
_RECENT = 3
"""The last third of the windows is the recent pace."""
_CORRELATED = 3.0
"""Slow work stays slow for a while: a mean over windows varies more than if they were drawn."""
_DRIFT = 0.08
"""Share by which the pace of the rest differs from the past even of an even run, one deviation.
This and `_CORRELATED` are tuned on drawn runs (`benchmarks/_progress_runs.py`, seed 1)."""
_MAX_SPREAD, _MAX_RESTARTS = 1.5, 10.0
_LONGEST = 365 * 86_400.0


def ends_by_progress(reports: Sequence[ProgressReport], as_of: datetime) -> list[datetime]:
    """Return equally likely ends of a running job, ascending, none of them before `as_of`.

    `reports` are those of the present run, by time. Empty where they are too few (less than 2 % of
    the work or four changes since the last step back), where all work is done, and where the end
    that they tell is over.

    The work since the last step back is cut into at most twelve windows of equal work. The pace of
    the rest, s per unit of work, is their mean (that of their last third told drawn runs worse);
    its logarithm follows Student's t with the spread of the windows, of half the difference
    between the two, and of `_DRIFT`. What earlier steps back cost is lost again as likely as not.
    Between the newest report and `as_of` the job may have stood still for any part of the time.
    """
    past = [report for report in reports if report.reported_at <= as_of]
    if not past or past[-1].done_ratio >= 1:
        return []
    ratios = np.array([report.done_ratio for report in past])
    origin = past[0].reported_at
    times = np.array([(report.reported_at - origin).total_seconds() for report in past])
    back = np.flatnonzero(np.diff(ratios) <= -_STEP_BACK)
    first = int(back[-1]) + 1 if len(back) else 0
    ratios[first:] = np.maximum.accumulate(ratios[first:])
    rest = _rest(times[first:], ratios[first:])
    if rest is None:
        return []
    net = float(ratios[-1] - ratios[0])
    if len(back) and net > 0:
        slower = (times[-1] / net) / ((times[-1] - times[first]) / (ratios[-1] - ratios[first]))
        rest = rest * np.clip(slower, 1.0, _MAX_RESTARTS) ** LEVELS
    silent = (as_of - past[-1].reported_at).total_seconds()
    seconds = rest - silent + LEVELS * silent
    seconds = seconds[seconds > 0]
    if len(seconds) < len(LEVELS) // 4:
        return []
    seconds = np.minimum(np.quantile(seconds, LEVELS), _LONGEST)
    return [as_of + timedelta(seconds=float(rest)) for rest in seconds]


def _rest(times: Values, ratios: Values) -> Values | None:
    """Return equally likely s from the newest report to the end, None of too few reports."""
    changed = np.flatnonzero(np.diff(ratios) > 0) + 1
    # A first report may lie anywhere in its step: where there are steps, it begins no window.
    if len(changed) < _MIN_CHANGES or ratios[-1] - ratios[changed[0]] < _MIN_WORK:
        return None
    at, done = times[changed], ratios[changed]
    count = min(_MAX_WINDOWS, len(changed) - 1)
    window = (done[-1] - done[0]) / count
    levels = np.linspace(done[0], done[-1], count + 1)
    paces = np.diff(np.interp(levels, done, at)) / window
    pace, recent = float(paces.mean()), float(paces[-max(1, count // _RECENT) :].mean())
    work = 1 - float(done[-1])
    varies = _CORRELATED * float(paces.var(ddof=1)) * (1 / max(1.0, work / window) + 1 / count)
    spread = (varies + (pace - recent) ** 2 / 4) ** 0.5 / pace
    spread = min(_MAX_SPREAD, (spread**2 + _DRIFT**2) ** 0.5)
    factors = np.exp(spread * stdtrit(count - 1, LEVELS))
    # The next step has not come yet, so at least what lies behind it is still to do.
    stood, step = float(times[-1] - at[-1]), float(np.median(np.diff(done)))
    likely = pace * factors
    seconds = np.maximum(work * likely - stood, max(0.0, work - step) * likely)
    return np.asarray(np.sort(seconds), dtype=np.float64)


_RECORDED = "its recorded end"
PROGRESS = "the progress that it reports"
MIN_RUNS = 5
"""Fewer ended runs say too little of the end."""
_SPREAD = (0.1, 0.9)
_MIN_SPREAD, _MAX_SURVIVED = 0.05, 0.999
_LATER_WEIGHT = 0.6
"""Even (1) between two runs, every short run just ahead tells an end within hours, and on average
too many end: by the mean of 1/gap, which has no bound. At 0.5 the mean is right for lognormal,
gamma and two kinds of runs, at 1 ranks are: tuned between them on drawn runs, seed 7."""
_MAX_SECONDS = 365 * 86_400.0
"""Seconds after which it makes no difference when a job ends."""
_SHARES_OF_LIMIT = (0.1, 0.3, 0.5, 0.7, 0.9, 1.0, 1.0, 1.0, 1.0, 1.0)
"""Equally likely shares of the time left until a limit after which a job ends, where nothing else
is known: the time that users ask for is used evenly, with a peak at the limit (Mu'alem and
Feitelson, IEEE TPDS 2001). That half run into it is an assumption."""


def waits_for_start(job: Job) -> bool:
    """Return whether a job stands in its scheduler's queue: it has done no work and holds no board.

    Pods that are bound hold theirs, though Kubernetes calls them pending until their images are
    there and their first containers have run.
    """
    facts = job.scheduler
    return facts is not None and facts.state is JobState.PENDING and not facts.nodes


@dataclass(frozen=True, slots=True, kw_only=True)
class Remaining:
    """The share of each slot in which a job can be there, arrays [slots], 0..1.

    `low` and `high` are q10 and q90 of a forecast end, all three are the same where it is known,
    and 1 where nobody tells one. `likely` [ends, slots] are the shares of equally likely ends.
    At those of them that are `cut_off` a limit ends the job, whether its work is done or not.
    `why` names the end within the horizon, or the start of a job that waits, '' when there is none.
    """

    low: Values
    central: Values
    high: Values
    likely: Values
    cut_off: npt.NDArray[np.bool_]
    why: str = ""

    @property
    def unlimited(self) -> Values:
        """The share of each slot in which the job can be there and no limit is going to end it."""
        going_on = self.likely[~self.cut_off]
        return np.asarray(going_on.sum(axis=0) / len(self.likely), dtype=np.float64)

    def hours(self, slot_hours: float) -> float:
        """Return the expected hours of the horizon in which the job is there."""
        return float(self.central.sum()) * slot_hours


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedEnd:
    """The end of a running job: q10, median and q90; `by` is the source.

    The shares done are those of `as_of` in a run that ends so, `low_ratio` for the latest end.
    """

    low: datetime
    central: datetime
    high: datetime
    low_ratio: float
    central_ratio: float
    high_ratio: float
    by: str


def expected_end(
    job: Job, past_runs: Sequence[float], as_of: datetime, progress: Sequence[ProgressReport] = ()
) -> ExpectedEnd | None:
    """Return the end of a running job by itself; None without past runs and progress reports.

    `past_runs` are lengths of ended runs in s, five at least; `progress` is what it reported, by
    time. What its scheduler ends earlier ends then.
    """
    (ends, by), limit = (
        likely_ends(job, past_runs, progress, as_of, as_of),
        scheduled_end(job, as_of),
    )
    started_at = job.scheduling.started_at
    if not ends or started_at is None:
        return None
    ends = ends if limit is None else [min(end, max(limit[0], as_of)) for end in ends]
    seconds = [(end - started_at).total_seconds() for end in ends]
    lengths = [float(length) for length in np.quantile(seconds, (_SPREAD[0], 0.5, _SPREAD[1]))]
    low, central, high = (started_at + timedelta(seconds=length) for length in lengths)
    so_far = (as_of - started_at).total_seconds()
    ratios = [min(1.0, max(0.0, so_far / max(1.0, length))) for length in lengths]
    return ExpectedEnd(
        low=low,
        central=central,
        high=high,
        low_ratio=ratios[2],
        central_ratio=ratios[1],
        high_ratio=ratios[0],
        by=by,
    )


def scheduled_end(job: Job, as_of: datetime) -> tuple[datetime, str] | None:
    """Return the earliest end that a scheduler tells and its name, None where it tells none."""
    return min(_told_ends(job, as_of), default=None)


def reports_of_present_run(job: Job, progress: Iterable[ProgressReport]) -> list[ProgressReport]:
    """Return the reports of the present run of a job, none where it does not run."""
    facts = job.scheduler
    if facts is None or facts.started_at is None or facts.state is not JobState.RUNNING:
        return []
    return [report for report in progress if report.reported_at >= facts.started_at]


def remaining_of(
    job: Job,
    slot_starts: Sequence[datetime],
    slot: timedelta,
    *,
    as_of: datetime,
    past_runs: Sequence[float] = (),
    progress: Sequence[ProgressReport] = (),
    wait: QueueWait | None = None,
) -> Remaining:
    """Return the share of each slot in which a job still runs.

    `past_runs` are lengths of ended runs, s; `progress` is what it reported, by time; `wait` how
    long a job that waits for its start still does. Where nobody knows that, it is taken to start
    with the first slot, the most of the horizon that it can have.
    """
    if wait is not None and wait.known and waits_for_start(job):
        return _once_started(job, slot_starts, slot, as_of=as_of, past_runs=past_runs, wait=wait)
    latest = np.ones(len(slot_starts))
    why = ""
    limit = scheduled_end(job, as_of)
    if limit is not None:
        latest = _shares([limit[0]], slot_starts, slot)[0]
        why = f"{limit[1]} ends it by {limit[0]:%Y-%m-%d %H:%M} UTC" if latest[-1] < 1 else ""
    first = max(slot_starts[0], as_of)
    ends, by = likely_ends(job, past_runs, progress, as_of, first)
    if not ends and limit is not None and limit[1] != _RECORDED and limit[0] > as_of:
        ends = [as_of + share * (limit[0] - as_of) for share in _SHARES_OF_LIMIT]
    if not ends:
        return Remaining(
            low=latest,
            central=latest,
            high=latest,
            likely=latest[None, :],
            cut_off=np.zeros(1, dtype=np.bool_),
            why=why,
        )
    shares = np.minimum(_shares(ends, slot_starts, slot), latest)
    central = shares.mean(axis=0)
    low, high = np.quantile(shares, _SPREAD, axis=0)
    if by and (central < latest).any():
        middle = ends[len(ends) // 2]
        why = f"it is forecast to end around {middle:%Y-%m-%d %H:%M} UTC by {by}"
    limited = limit is not None and limit[1] != _RECORDED
    return Remaining(
        cut_off=np.array([bool(limited and limit and end >= limit[0]) for end in ends]),
        low=np.minimum(low, central),
        central=central,
        high=np.maximum(high, central),
        likely=shares,
        why=why,
    )


def _once_started(
    job: Job,
    slot_starts: Sequence[datetime],
    slot: timedelta,
    *,
    as_of: datetime,
    past_runs: Sequence[float],
    wait: QueueWait,
) -> Remaining:
    """Return the share of each slot of a job that starts after its wait, however long that is."""
    starts = [as_of + timedelta(seconds=seconds) for seconds in likely_waits(wait)]
    runs = [remaining_of(job, slot_starts, slot, as_of=at, past_runs=past_runs) for at in starts]
    before = _shares(starts, slot_starts, slot)
    rows = max(len(run.likely) for run in runs)
    likely = np.concatenate(
        [
            np.repeat(np.clip(run.likely - early, 0.0, 1.0), rows // len(run.likely), axis=0)
            for run, early in zip(runs, before, strict=True)
        ]
    )
    central = likely.mean(axis=0)
    low, high = np.quantile(likely, _SPREAD, axis=0)
    middle = as_of + timedelta(seconds=wait.median)
    return Remaining(
        low=np.minimum(low, central),
        central=central,
        high=np.maximum(high, central),
        likely=likely,
        cut_off=np.concatenate([np.repeat(run.cut_off, rows // len(run.cut_off)) for run in runs]),
        why=f"it is forecast to start around {middle:%Y-%m-%d %H:%M} UTC",
    )


def likely_waits(wait: QueueWait) -> Values:
    """Return ten equally likely waits, s: their mean is the forecast's where its band allows it."""
    levels = (np.arange(10) + 0.5) / 10
    waits = np.interp(levels, (_SPREAD[0], 0.5, _SPREAD[1]), (wait.low, wait.median, wait.high))
    waits[-1] = max(waits[-1], 10 * wait.mean - waits[:-1].sum())
    return np.asarray(waits, dtype=np.float64)


def _told_ends(job: Job, as_of: datetime) -> Iterator[tuple[datetime, str]]:
    """Yield the ends that a scheduler tells, each with its name.

    The limit of a job that waits counts from its start, at the earliest now; while a job is
    suspended, its limit stands still for nobody knows how long.
    """
    facts = job.scheduler
    if facts is None:
        return
    if facts.ended_at is not None:
        yield facts.ended_at, _RECORDED
    if facts.time_limit_seconds is not None and facts.state is not JobState.SUSPENDED:
        limit = timedelta(seconds=facts.time_limit_seconds)
        yield (facts.started_at or as_of) + limit, "its time limit"
    deadline = dict(facts.extra).get("deadline_at")
    if deadline:
        yield datetime.fromisoformat(deadline), "its deadline"


def likely_ends(
    job: Job,
    past_runs: Sequence[float],
    progress: Sequence[ProgressReport],
    as_of: datetime,
    first_slot: datetime,
) -> tuple[list[datetime], str]:
    """Return equally likely ends of a job and by what they are told, ([], '') where by nothing.

    Of runs and progress the one with the narrower 80 % tells. Where the two have nothing in
    common, one of them misleads (a job that stops when it is good enough, other data than before):
    both count alike.
    """
    by_runs = _forecast_ends(job, past_runs, as_of, first_slot)
    runs = f"{len(past_runs)} finished runs of the same job"
    by_progress = ends_by_progress(reports_of_present_run(job, progress), as_of)
    if not by_progress:
        return by_runs, runs if by_runs else ""
    if not by_runs:
        return by_progress, PROGRESS
    seconds = np.array(
        [[(end - as_of).total_seconds() for end in ends] for ends in (by_runs, by_progress)]
    )
    low, high = np.quantile(seconds, _SPREAD, axis=1)
    if low.max() > high.min():
        both = np.quantile(seconds, LEVELS)
        return [as_of + timedelta(seconds=float(end)) for end in both], f"{PROGRESS} and {runs}"
    nearer = int(np.argmin(high - low))
    return (by_runs, by_progress)[nearer], (runs, PROGRESS)[nearer]


def _forecast_ends(
    job: Job, past_runs: Sequence[float], as_of: datetime, first_slot: datetime
) -> list[datetime]:
    """Return equally likely ends of a job by its ended runs, empty where they are too few.

    Of the runs that took longer than it has so far, it is as likely between any two neighbours, and
    below the first or beyond the last, whatever their law: all have the same. Ends at the runs
    themselves would be told too surely: of six, the present one is outside in two of seven. A job
    that waits is taken to begin with the first slot.
    """
    facts = job.scheduler
    started_at = None if facts is None else facts.started_at
    if waits_for_start(job):
        started_at = as_of = first_slot
    if started_at is None or len(past_runs) < MIN_RUNS:
        return []
    so_far = max(1.0, (as_of - started_at).total_seconds())
    bounds = [so_far, *sorted(seconds for seconds in past_runs if seconds > so_far), np.inf]
    lengths = np.minimum(_runs_between(bounds, past_runs), so_far + _MAX_SECONDS)
    return [started_at + timedelta(seconds=float(seconds)) for seconds in lengths]


def _runs_between(bounds: Sequence[float], past_runs: Sequence[float]) -> Values:
    """Return equally likely lengths in s of a run that is as likely between any two bounds.

    Between two of them lengths are taken as lognormal, by `_LATER_WEIGHT` nearer to the later one.
    Mean and spread of so few runs are unsure themselves, so that logs of the next follow Student's
    t. A run that outlasts all that this allows is of unknown scale: as long again is as likely as
    not.
    """
    logs = np.log(past_runs)
    spread = max(_MIN_SPREAD, float(logs.std(ddof=1)) * (1 + 1 / len(logs)) ** 0.5)
    mean, degrees = float(logs.mean()), len(logs) - 1
    below = stdtr(degrees, (np.log(bounds) - mean) / spread)
    if below[0] > _MAX_SURVIVED:
        return np.asarray(bounds[0] / (1 - LEVELS), dtype=np.float64)
    below[:-1] = np.minimum(below[:-1], _MAX_SURVIVED)
    places = LEVELS * (len(bounds) - 1)
    between = places.astype(np.int64)
    within = places - between
    within = np.where(between < len(bounds) - 2, within**_LATER_WEIGHT, within)
    chances = np.interp(between + within, np.arange(len(bounds)), below)
    lengths = np.exp(mean + spread * stdtrit(degrees, chances))
    least, most = np.take(bounds, between), np.take(bounds, between + 1)
    return np.asarray(np.clip(lengths, least, most), dtype=np.float64)


def _shares(ends: Sequence[datetime], slot_starts: Sequence[datetime], slot: timedelta) -> Values:
    """Return the share of each slot before each end, array [ends, slots]."""
    starts = np.array([at.timestamp() for at in slot_starts])
    seconds = np.array([end.timestamp() for end in ends])[:, None] - starts
    return np.asarray(np.clip(seconds / slot.total_seconds(), 0.0, 1.0), dtype=np.float64)
