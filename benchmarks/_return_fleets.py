"""Fleets of jobs that rest and work, drawn with the time at which each works for the last time.

A fleet draws how many of its jobs are of which kind and how many are given up; a job draws its
habits from its kind. Nothing is drawn as the estimator assumes it: turns are regular with jitter,
people keep office hours, sessions are lognormal, services follow day and week.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from benchmarks._return_sets import WorkSet

Values = npt.NDArray[np.float64]
Work = npt.NDArray[np.bool_]
DAYS_AFTER = 3
_KINDS = {
    **dict.fromkeys(("turns", "office", "sessions"), ("notebook",)),
    **{name: (name,) for name in ("training", "service")},
    "never": ("notebook", "training", "service"),
}
"""By habit the kinds of which a job may be: one that never works is of a kind of others."""
TURNS = (1.0, 2.0, 4.0, 6.0, 8.0, 12.0, 24.0, 168.0)
"""Hours from one start of work to the next of jobs that work in turns."""


def draw_return_fleet(seed: int) -> WorkSet:
    """Return a fleet of 20 to 60 jobs, seen for 3 to 42 days and for `DAYS_AFTER` after that."""
    rng = np.random.default_rng(seed)
    slot_hours = float(rng.choice((0.25, 0.5, 1.0)))
    seen_days = int(rng.choice((3, 7, 14, 28, 42)))
    count = round((seen_days + DAYS_AFTER) * 24 / slot_hours)
    # The hour of the week at which the fleet is first seen: what is now may be a weekend.
    hours = np.arange(count) * slot_hours + rng.uniform(0, 168)
    names = tuple(_HABITS)
    shares = rng.dirichlet(np.full(len(names), 0.7))
    given_up = rng.beta(1.0, 2.0)
    jobs: dict[str, tuple[int, Values]] = {}
    groups: dict[str, tuple[str, str]] = {}
    for number in range(int(rng.integers(20, 61))):
        name = str(rng.choice(names, p=shares))
        began = 0 if rng.random() < 0.6 else int(rng.integers(0, count))
        work = _HABITS[name](rng, hours)
        if rng.random() < given_up:
            # Given up at any time: what works no more is idle, and is the job to be found.
            work[int(rng.integers(0, count)) :] = False
        kind = str(rng.choice(_KINDS[name]))
        jobs[f"{name}-{number}"] = (began, work[began:].astype(np.float64))
        groups[f"{name}-{number}"] = (kind, f"{kind} of team {int(rng.integers(0, 4))}")
    now = round(seen_days * 24 / slot_hours)
    return WorkSet(slot_hours=slot_hours, jobs=jobs, groups=groups, moments=(now,))


def _turns(rng: np.random.Generator, hours: Values) -> Work:
    """Return work every so many hours, each start off by up to a fifth of the turn's rest."""
    turn = float(rng.choice(TURNS))
    busy = turn * rng.uniform(0.05, 0.5)
    jitter = rng.uniform(0.0, 0.2) * (turn - busy)
    starts = np.arange(hours[0] - turn, hours[-1] + turn, turn) + rng.uniform(0, turn)
    starts = starts + rng.uniform(-0.5, 0.5, len(starts)) * jitter
    return _between(hours, starts, starts + busy)


def _office(rng: np.random.Generator, hours: Values) -> Work:
    """Return sessions of people in the hours and on the days in which they work."""
    begins, ends = rng.uniform(7, 11), rng.uniform(15, 20)
    days = 7 if rng.random() < 0.2 else 5
    there = (hours % 24 >= begins) & (hours % 24 < ends) & (hours // 24 % 7 < days)
    present = rng.uniform(0.4, 1.0)
    at_work = rng.random(int(hours[-1] // 24) + 2) < present
    return (
        _sessions(rng, hours, rest=rng.uniform(0.3, 3.0)) & there & at_work[hours.astype(int) // 24]
    )


def _sessions(rng: np.random.Generator, hours: Values, rest: float = 0.0) -> Work:
    """Return sessions of exponential length with lognormal rests between them."""
    rest = rest or float(np.exp(rng.uniform(np.log(1.0), np.log(60.0))))
    busy, spread = rng.uniform(0.3, 4.0), rng.uniform(0.3, 1.5)
    count = int((hours[-1] - hours[0]) / (rest + busy) * 3) + 50
    rests = rest * np.exp(spread * rng.standard_normal(count))
    works = rng.exponential(busy, count)
    ends = hours[0] - rng.uniform(0, rest + busy) + np.cumsum(rests + works)
    return _between(hours, ends - works, ends)


def _training(rng: np.random.Generator, hours: Values) -> Work:
    """Return work with few breaks: a queue of runs, of which some wait for their maker."""
    busy, rest = rng.uniform(4, 40), rng.uniform(0.5, 20)
    count = int((hours[-1] - hours[0]) / (busy + rest) * 4) + 20
    works, rests = rng.exponential(busy, count), rng.exponential(rest, count)
    ends = hours[0] - rng.uniform(0, busy) + np.cumsum(rests + works)
    return _between(hours, ends - works, ends)


def _service(rng: np.random.Generator, hours: Values) -> Work:
    """Return the slots with requests, by a rate that follows the day and the week."""
    rate = float(np.exp(rng.uniform(np.log(0.01), np.log(5.0))))
    day = 1 + rng.uniform(0, 1) * np.cos((hours - rng.uniform(10, 18)) * 2 * np.pi / 24)
    week = np.where(hours // 24 % 7 < 5, 1.0, rng.uniform(0.0, 1.0))
    step = hours[1] - hours[0]
    return np.asarray(rng.random(len(hours)) < 1 - np.exp(-rate * day * week * step))


def _never(_rng: np.random.Generator, hours: Values) -> Work:
    """Return no work at all: GPUs that are held in case they are needed."""
    return np.zeros(len(hours), dtype=np.bool_)


def _between(hours: Values, starts: Values, ends: Values) -> Work:
    edges = np.zeros(len(hours) + 1)
    np.add.at(edges, np.searchsorted(hours, starts), 1)
    np.add.at(edges, np.searchsorted(hours, ends), -1)
    return np.asarray(np.cumsum(edges)[:-1] > 0)


_HABITS: dict[str, Callable[[np.random.Generator, Values], Work]] = {
    "turns": _turns,
    "office": _office,
    "sessions": _sessions,
    "training": _training,
    "service": _service,
    "never": _never,
}
