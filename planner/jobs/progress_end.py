"""The end of a running job by the progress that it reports: shares of its work, 0..1.

What a job reports is foreign: it may go back (a restart from a checkpoint), stand still (an
evaluation, a hang), come in whole per cent, and stop coming.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta

import numpy as np
import numpy.typing as npt
from scipy.special import stdtrit  # type: ignore[import-untyped]

from data.facts.progress import ProgressReport

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
