"""Rules for when a job that may wait begins, from what was known when it came; and an oracle.

A rule gives the number of hours by which the job begins later, 0 to the slack.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta

import numpy as np

from benchmarks._grid_series import HOUR, GridSeries, Values
from benchmarks._shifted_jobs import DrawnJob

Rule = Callable[[DrawnJob], int]
NIGHT, NIGHT_HOURS = 22, 8
QUANTILES = (0.1, 0.2, 0.3, 0.4, 0.5)
_WEEK = 7 * 24


def at_once(_job: DrawnJob) -> int:
    """Return no delay."""
    return 0


def window_rule(series: GridSeries, opens: int, slack: int) -> Rule:
    """Return a rule that waits for a window of the zone's day, if it opens in time."""

    def rule(job: DrawnJob) -> int:
        hour = (job.came_at.hour + series.ahead_of_utc) % 24
        if (hour - opens) % 24 < NIGHT_HOURS:
            return 0
        wait = (opens - hour) % 24
        return wait if wait <= slack else 0

    return rule


def threshold_rule(series: GridSeries, quantile: float, slack: int) -> Rule:
    """Return a rule that waits while the last known hour is above a quantile of the last week."""

    def rule(job: DrawnJob) -> int:
        came = series.at(job.came_at)
        for wait in range(slack):
            now = came + wait
            limit = np.quantile(series.actual[max(0, now - _WEEK) : now], quantile)
            if series.actual[now - 1] <= limit:
                return wait
        return slack

    return rule


def best_start_rule(
    curve: Callable[[DrawnJob], Values], slack: int, *, known: bool = False
) -> Rule:
    """Return a rule that begins where a curve from the job's coming on is lowest over its length.

    The length is the mean of earlier runs, or its own where it is known.
    """

    def rule(job: DrawnJob) -> int:
        hours = job.hours if known else float(np.mean(job.past_hours))
        run = replace(job, hours=hours)
        values = curve(job)
        return int(np.argmin([run.amount(wait, values) for wait in range(slack + 1)]))

    return rule


def oracle_rule(series: GridSeries, slack: int) -> Rule:
    """Return the rule that knows what comes and how long each job takes."""
    return best_start_rule(lambda job: series.actual[series.at(job.came_at) :], slack, known=True)


def yesterday_rule(series: GridSeries, slack: int) -> Rule:
    """Return the rule for which the last 24 hours come again and again."""

    def curve(job: DrawnJob) -> Values:
        came = series.at(job.came_at)
        return np.tile(series.actual[came - 24 : came], 4)

    return best_start_rule(curve, slack)


def forecast_rule(series: GridSeries, slack: int) -> Rule:
    """Return the rule that takes the newest issue at its word; beyond it, its mean."""

    def curve(job: DrawnJob) -> Values:
        now = job.came_at - timedelta(minutes=1)
        issued_at, told = series.known_at(now)
        left = told[(job.came_at - issued_at) // HOUR :]
        return np.concatenate([left, np.full(96, left.mean())])

    return best_start_rule(curve, slack)


def emitted(jobs: Sequence[DrawnJob], rule: Rule, series: GridSeries) -> float:
    """Return what the jobs emit or cost under a rule, in the series' unit times kWh."""
    return sum(job.amount(series.at(job.came_at) + rule(job), series.actual) for job in jobs)


def chosen_window(jobs: Sequence[DrawnJob], series: GridSeries, slack: int) -> int:
    """Return the hour at which the best window of the day opens for these jobs."""
    return min(
        range(24), key=lambda opens: emitted(jobs, window_rule(series, opens, slack), series)
    )


def chosen_quantile(jobs: Sequence[DrawnJob], series: GridSeries, slack: int) -> float:
    """Return the quantile of the threshold that is best for these jobs."""
    return min(QUANTILES, key=lambda q: emitted(jobs, threshold_rule(series, q, slack), series))
