"""The chance that the work of a job at rest returns, from its own rests and those of similar jobs.

A rest is a run of slots in which a job was seen to do nothing. The hazard with which one of t hours
ends is taken as alpha / t, constant in the logarithm of time (Pareto's law; Lomax 1954): the longer
a rest has lasted, the longer it goes on. With alpha ~ Gamma(k, b), conjugate to d ends in an
exposure E = sum of ln(hours / SHORTEST_REST_HOURS), a rest of `a` hours ends within the next `H`
with

    k = B alpha' + d + s,   b = B + E,   P = 1 - (b / (b + ln((a + H) / a)))^k           (1)

where alpha' is the mean of similar jobs, in the same way from that of all of the kind, and this
from `_PRIOR`; s is `_STARTED` if any work was seen. A rest that nobody saw end adds exposure alone.
Rests of other jobs count by state: those after work for a job that was seen to work, those before
any work for one that was not, and both only from a share of its own rest on (`_REST_SHARES`). That
most jobs soon begin to work says little of a board that is held in case.

While the job has rested for as long before, what it did then counts on top, as a beta-binomial: n
rests of `a` hours and more, of which x ended within H, and n windows of H hours that began at rest
at this hour, whole days or weeks ago, of which x had work:

    chance = (M P + sum of w x) / (M + sum of w n)                                    (2)

All rests of a job that was seen for less than a day are of that day: many of them say no more of a
night that it was not seen in than one does. Of a job that was seen to work, for D hours in all,

    chance' = (1 - u) chance + u Q,   u = 1 / (1 + (D / C)^4)                          (3)

where Q is P of (1) with the k and b of `_UNSEEN`, and u is 0.16 after a day and 0.01 after two.

Hours off are those of the day in which it did nothing on all of the earlier half of its days; the
chance that a day has work in them is (x + 0.5) / (n + 1), of the x of n later days that had
(`hours_off`): days that chose the hours would flatter them.

Constants were fitted on drawn fleets and half of one recording (`benchmarks/returns.py`).
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pandas as pd

from data.facts.job_history import JobHistory

Values = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Indices = npt.NDArray[np.intp]
SHORTEST_REST_HOURS = 1.0
"""Hours from which a rest counts: shorter ones are pauses of work under way."""
REST_AGES = SHORTEST_REST_HOURS * 2.0 ** np.arange(11)
_REST_SHARES = (0.5, 0.25)
"""The share of a rest, before and after work, from which on the rests of other jobs count for it.
It is rounded down to one of `REST_AGES`."""
_PRIOR = 0.2
_WEIGHTS = (1.0, 8.0, 8.0)
"""B of `_PRIOR` for the kind, of the kind for similar jobs, of these for the job: exposures."""
_STARTED = 2.0
"""Ends of rests that a job stands for which was seen to work at all: most work is begun again."""
_OWN, _REST, _DAY, _WEEK = 1.5, 0.3, 0.6, 1.25
"""M, and w of an earlier rest and of a window some days or weeks ago, which tell the same twice."""
_HOURS_PER_DAY, _DAYS_PER_WEEK = 24.0, 7
_MAX_EXPOSURE = 10.0
"""Exposure of a job's earlier rests that counts at most: none speaks for all, nor many short
ones for a long one."""
_LEAST_HOURS_OFF = 4
_UNSEEN, _CYCLE_HOURS = (0.5, 0.6), 16.0
"""k and b of (1) for hours of the day in which a job was not seen, and C of (3)."""
_FLOOR = 0.01
"""No chance is stated lower, nor higher than what it leaves: a few weeks show no certainty."""


Evidence = npt.NDArray[np.float64]
"""Ends of rests in work, and the exposure in which they came: [before any work was seen or after
it, from each of `REST_AGES` on, which of both]."""


def evidence_of(hours: Values, returned: Flags, states: Indices, jobs: int = 1) -> Evidence:
    """Return the evidence of rests by job: `states` are twice its number, and 1 after work."""
    beyond = np.log(np.maximum(hours / REST_AGES[:, None], 1.0))
    cells = (states * len(REST_AGES) + np.arange(len(REST_AGES))[:, None]).ravel()
    sums = [
        np.bincount(cells, weights=values.ravel(), minlength=2 * len(REST_AGES) * jobs)
        for values in (1.0 * (returned & (beyond > 0)), beyond)
    ]
    return np.stack(sums, axis=-1).reshape(jobs, 2, len(REST_AGES), 2).astype(np.float64)


def _at_most(evidence: Values, exposure: float) -> Values:
    """Return the evidence of a job scaled down from this exposure to what counts at most."""
    return evidence * (_MAX_EXPOSURE / max(_MAX_EXPOSURE, exposure))


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Rests:
    """The rests of a job in hours: those that ended in work, and those whose end was not seen.

    `present` is how long it has rested up to its newest slot, 0 while it works; it is one of the
    `unended`. `observed` and `worked` are the ages of the starts of slots with known activity, and
    with work: h before the end of that slot, ascending. That end is `clock` hours into a day, UTC.
    `evidence` is that of its rests on the hazard with which they end. `never_worked`: all that was
    read of it is known, and at rest.
    """

    returned: Values
    unended: Values
    present: float
    observed: Values
    worked: Values
    evidence: Evidence
    never_worked: bool = False
    clock: float = 0.0

    @property
    def slot_hours(self) -> float:
        """The length of a slot; 0 where nothing is known."""
        return float(self.observed[0]) if len(self.observed) else 0.0


def rests_of(
    rows: JobHistory, *, slot_hours: float, idle_ratio: float, restart_slots: int = 0
) -> Rests:
    """Return the rests of a job; a slot that is missing or unknown ends a rest without its end.

    Work of at most `restart_slots` in a row is a restart, and part of a rest, but for `present`.
    """
    none = np.empty(0)
    if not len(rows):
        return Rests(returned=none, unended=none, present=0.0, observed=none, worked=none,
                     evidence=np.zeros((2, len(REST_AGES), 2)))  # fmt: skip
    apart = np.diff(rows.slot_start) != np.timedelta64(round(slot_hours * 3600), "s")
    first, _last = _runs(rows.utilization_max_ratio <= idle_ratio, apart)
    is_idle = rows.utilization_max_ratio[-1] <= idle_ratio
    present = (len(rows) - first[-1]) * slot_hours if is_idle else 0.0
    busy, idle = _activity(rows.utilization_max_ratio, apart, idle_ratio, restart_slots)
    first, last = _runs(idle, apart)
    hours = (last - first + 1).astype(np.float64) * slot_hours
    returned = np.concatenate([busy[1:] & ~apart, [False]])[last]
    worked = np.logical_or.accumulate(busy | np.isnan(rows.utilization_max_ratio))
    ages = (rows.slot_start[-1] - rows.slot_start) / np.timedelta64(3600, "s") + slot_hours
    return Rests(
        returned=hours[returned],
        unended=hours[~returned],
        present=float(present),
        observed=ages[idle | busy][::-1],
        worked=ages[busy][::-1],
        evidence=evidence_of(hours, returned, worked[first].astype(np.intp))[0],
        never_worked=not worked[-1],
        clock=float(
            (rows.slot_start[-1] - rows.slot_start[-1].astype("datetime64[D]"))
            / np.timedelta64(3600, "s")
            + slot_hours
        ),
    )


def evidence_of_many(
    rows: pd.DataFrame, *, slot_hours: float, idle_ratio: float, restart_slots: Mapping[str, int]
) -> Mapping[str, Evidence]:
    """Return the evidence of the rests of many jobs at once, each as that of its `rests_of`.

    `rows` has the columns job_id, slot_start and utilization_max_ratio, by job and time.
    """
    if rows.empty:
        return {}
    jobs, names = pd.factorize(rows["job_id"])
    at = rows["slot_start"].to_numpy(dtype="datetime64[us]")
    ratio = rows["utilization_max_ratio"].to_numpy(dtype=np.float64)
    step = np.timedelta64(round(slot_hours * 3600), "s")
    apart = (np.diff(at) != step) | (np.diff(jobs) != 0)
    most = np.array([restart_slots[str(name)] for name in names])[jobs]
    busy, idle = _activity(ratio, apart, idle_ratio, most)
    first, last = _runs(idle, apart)
    hours = (last - first + 1).astype(np.float64) * slot_hours
    returned = np.concatenate([busy[1:] & ~apart, [False]])[last]
    # How many slots of work came before a rest, less those of the jobs before this one.
    maybe = busy | np.isnan(ratio)
    count = np.cumsum(maybe)
    worked = count[first] > (count - maybe)[np.searchsorted(jobs, jobs[first])]
    evidence = evidence_of(hours, returned, 2 * jobs[first] + worked, len(names))
    return {str(name): entry for name, entry in zip(names, evidence, strict=True)}


def _activity(
    ratio: Values, apart: Flags, idle_ratio: float, restart_slots: int | npt.NDArray[np.int_]
) -> tuple[Flags, Flags]:
    """Return which slots had work, and which are part of a rest: idle, or a restart."""
    worked = ratio > idle_ratio
    run = np.concatenate([[0], np.cumsum((worked[1:] != worked[:-1]) | apart)])
    busy = worked & (np.bincount(run)[run] > restart_slots)
    return busy, (ratio <= idle_ratio) | worked & ~busy


def _runs(idle: Flags, apart: Flags) -> tuple[Indices, Indices]:
    """Return the first and the last slot of each run of idle slots without a gap."""
    first = idle & np.concatenate([[True], ~idle[:-1] | apart])
    last = idle & np.concatenate([~idle[1:] | apart, [True]])
    return np.flatnonzero(first), np.flatnonzero(last)


def similar_rests(
    rests: Mapping[str, Rests],
    groups: Mapping[str, Sequence[Hashable]],
    ended: Iterable[tuple[Sequence[Hashable], Evidence]] = (),
) -> Mapping[str, tuple[Values, ...]]:
    """Return by job the ends and the exposure of the rests of others, by group, the widest first.

    For a job that was seen to work those after work, for another those before any, as far as they
    lasted about as long as its own. `ended` are the groups and the evidence of jobs that are over.
    """
    shares = {job_id: _share(entry.evidence) for job_id, entry in rests.items()}
    sums: dict[Hashable, Evidence] = {}
    for names, share in (
        *((names, _share(evidence)) for names, evidence in ended),
        *((groups[job_id], share) for job_id, share in shares.items()),
    ):
        for group in names:
            sums[group] = sums.get(group, 0.0) + share
    places = {}
    for job_id, entry in rests.items():
        state = int(not entry.never_worked)
        as_long = int(np.searchsorted(REST_AGES[1:], _REST_SHARES[state] * entry.present, "right"))
        places[job_id] = (state, as_long)
    return {
        job_id: tuple(
            np.maximum(sums[group][place] - shares[job_id][place], 0.0) for group in groups[job_id]
        )
        for job_id, place in places.items()
    }


def _share(evidence: Evidence) -> Evidence:
    return _at_most(evidence, float(evidence[:, 0, 1].sum()))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkReturn:
    """The chance that work returns within `ahead_hours` after a rest of `present` hours.

    `earlier` rests of the job lasted as long and ended in work, `back` of them within
    `ahead_hours` from there; the longest that ended in work had `longest` hours. `events` are the
    ends of rests of similar jobs that it rests on, `off` its hours off, None where it has none.
    """

    chance: float
    ahead_hours: float
    present: float
    earlier: int
    back: int
    longest: float
    events: float
    off: "HoursOff | None" = None

    def may_stop(self, max_chance: float) -> bool:
        """Return whether the job may be stopped: for good, so not in a rest as it had before."""
        return not self.earlier and self.chance <= max_chance

    def describe(self) -> str:
        """Return the chance and what it rests on, in words."""
        rest, ahead = f"{self.present:.3g} h", f"{self.ahead_hours:.3g} h"
        if self.earlier:
            why = (
                f"its work returned after {rest} of rest in {self.earlier} of {self.earlier} "
                f"earlier gaps, {self.back} times within {ahead} and after "
                f"{self.longest:.3g} h at most"
            )
        elif self.longest:
            why = (
                f"it has rested for {rest}, and its work never returned after {self.longest:.3g} h"
            )
        else:
            why = f"it has rested for {rest}, and was never seen to return to work"
        others = f"{self.events:.3g} gaps of similar jobs that ended" if self.events else ""
        chance = f"{100 * self.chance:.0f} % within {ahead}"
        return f"{why}; the chance that it returns is {chance}" + f" (with {others})" * bool(others)


@dataclass(frozen=True, slots=True, kw_only=True)
class HoursOff:
    """Hours of the day, UTC, from `start` to `end` on the next day or the same, without work.

    `chance` is that of a day to have work in them, by the `days` that did not choose them.
    """

    start: int
    end: int
    days: int
    chance: float


def hours_off(rests: Rests) -> HoursOff | None:
    """Return the longest hours off of a job, None where they are few or it was never at work.

    The last hour before work is not among them: a cold start is over before it.
    """
    if not 0 < rests.slot_hours <= 1 or not len(rests.worked):
        return None
    half = int(rests.observed[-1] / _HOURS_PER_DAY) // 2
    observed, busy = (
        _by_hour(ages, rests.clock, 2 * half) for ages in (rests.observed, rests.worked)
    )
    quiet: Flags = np.asarray((observed & ~busy)[half:].all(axis=0))
    # Each hour's length of quiet from there on, over midnight.
    lengths = [
        int(np.argmin(np.append(np.roll(quiet, -hour), False))) for hour in range(len(quiet))
    ]
    start = int(np.argmax(lengths))
    length = lengths[start] - 1
    if not half or length < _LEAST_HOURS_OFF or quiet.all():
        return None
    hours = np.arange(start, start + length) % len(quiet)
    days: Flags = np.asarray(observed[:half, hours].all(axis=1))
    worked: Flags = np.asarray(busy[:half, hours].any(axis=1))
    chance = (int((worked & days).sum()) + 0.5) / (int(days.sum()) + 1)
    end = (start + length) % len(quiet)
    return HoursOff(start=start, end=end, days=int(days.sum()), chance=chance)


def _by_hour(ages: Values, clock: float, days: int) -> Flags:
    """Return in which hours of the day (columns) of the last days (rows, the newest first).

    A day is counted back from the end of the newest slot.
    """
    table = np.zeros((days, int(_HOURS_PER_DAY)), dtype=bool)
    ages = ages[ages <= days * _HOURS_PER_DAY]
    day = np.ceil(ages / _HOURS_PER_DAY).astype(int) - 1
    table[day, np.floor((clock - ages) % _HOURS_PER_DAY + 1e-9).astype(int) % table.shape[1]] = True
    return table


def return_of(rests: Rests, similar: Sequence[Values], ahead_hours: float) -> WorkReturn:
    """Return the chance by equations (1) to (3); `similar` is that of `similar_rests`."""
    mean, weight, age = _PRIOR, _WEIGHTS[-1], max(rests.present, SHORTEST_REST_HOURS)
    present = np.array([0.0, np.log(age / SHORTEST_REST_HOURS)])
    earlier_rests = rests.evidence[:, 0].sum(axis=0) - present
    ends, exposure = _at_most(earlier_rests, earlier_rests[1]) + present
    for before, evidence in zip(_WEIGHTS, similar, strict=False):
        mean = (mean * before + evidence[0]) / (before + evidence[1])
    shape = mean * weight + ends + _STARTED * (not rests.never_worked)
    rate = weight + exposure
    log_time = float(np.log((age + ahead_hours) / age))
    reached = rests.returned[rests.returned >= age]
    # A rest shows up to a slot shorter than it was, and the present one up to a slot longer.
    earlier = rests.returned[rests.returned >= age - 2 * rests.slot_hours]
    worked = _OWN * (1.0 - (rate / (rate + log_time)) ** shape)
    total = _OWN
    if len(reached):
        worked += _REST * int((reached <= age + ahead_hours).sum())
        total += _REST * len(reached)
        for weight, with_work in _windows(rests, ahead_hours):
            worked, total = worked + weight * with_work, total + weight
    chance = worked / total
    if not rests.never_worked:
        cycles = float(rests.observed.max(initial=0.0)) / _CYCLE_HOURS
        shape, rate = _UNSEEN
        prior = 1.0 - (rate / (rate + log_time)) ** shape
        chance += (prior - chance) / (1.0 + cycles**4)
    return WorkReturn(
        chance=min(max(chance, _FLOOR), 1.0 - _FLOOR),
        ahead_hours=ahead_hours,
        present=rests.present,
        earlier=len(earlier),
        back=int((earlier <= age + ahead_hours).sum()),
        longest=float(rests.returned.max(initial=0.0)),
        events=float(similar[0][0]) if similar else 0.0,
        off=hours_off(rests),
    )


def _windows(rests: Rests, ahead_hours: float) -> list[tuple[float, bool]]:
    """Return the weights of the windows that began one to six days or whole weeks ago, at rest.

    Each with whether there was work in it. One in which nothing is known of the job does not count,
    nor one that began at work: that it went on says nothing of rests.
    """
    days = np.arange(1, int(rests.observed[-1] / _HOURS_PER_DAY) + 1)
    days = days[(days < _DAYS_PER_WEEK) | (days % _DAYS_PER_WEEK == 0)]
    begins = days * _HOURS_PER_DAY
    slot = rests.slot_hours

    def any_between(ages: Values, low: Values, high: Values) -> Flags:
        return np.asarray(
            np.searchsorted(ages, high, "right") > np.searchsorted(ages, low, "right")
        )

    at_rest = any_between(rests.observed, begins, begins + slot)
    at_rest &= ~any_between(rests.worked, begins, begins + slot)
    counts = at_rest & any_between(rests.observed, begins - slot, begins)
    worked = any_between(rests.worked, np.maximum(begins - ahead_hours, 0.0), begins)
    weights = np.where(days < _DAYS_PER_WEEK, _DAY, _WEEK)
    return list(zip(weights[counts].tolist(), worked[counts].tolist(), strict=True))
