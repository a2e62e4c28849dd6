"""The capacity of a service's replica, learnt from its readings, and the replicas it needs.

All of it is of one service. Rates are requests per second, times s since the epoch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt

from data.base.compiled import outer
from data.base.errors import ImpossibleProblemError
from data.base.units import SLOT_SECONDS
from data.records.recommendations import Range
from data.records.serving import ServiceOutlook
from planner.serving.queueing import ServiceLoad, WaitObjective, fewest, queue_of

Floats = npt.NDArray[np.float64]
Times = npt.NDArray[np.int64]
_LATELY_SECONDS = 86_400
_MIN_BUSY_SLOTS = 12
"""With requests, of the last day: fewer, and what was read before is learnt from as well."""
_MIN_FULL_SLOTS = 3
_MIN_CACHE_RATIO = 0.02
"""The KV-cache from which it tells the size of a request; below, rounding would."""
_CACHE_TAKEN = 0.9
"""The share of the KV-cache that requests are taken to fill."""
_MAX_UNSEEN, _ANY_BATCH = 2.0, 8.0
"""Of what one replica was seen to work on, a multiple, and a number of requests: the larger of both
is the most that a replica is taken to work on, if its KV-cache holds them."""
_MAX_UNPROVEN = 1.25
"""The highest rate that replicas are taken to carry, of the highest that they were seen to."""
_ENDLESS_SECONDS, _SHORTEST_SECONDS = 1e9, 1e-9
"""Of waits: what has no end, and what is none, as far as they are counted with."""
_MIN_CHANGES = 12
MAX_LEARNT_SCV = 4.0
"""Up to it the formula is right within one replica; what varies more slowly is forecast."""
MAX_LEARNT_SLOTS = 50_000
"""Busy slots of one service up to which a cycle sizes it: the formula counts them one by one."""
_ENGINES_WITHOUT_WAIT = frozenset({"kserve", "ray_serve"})
"""Engines whose time of a request is without its wait."""
_PARTS = 100
"""Rates are rounded up to this part of what a full replica finishes."""
_fewest = outer(fewest)


@dataclass(frozen=True, kw_only=True)
class ServiceReadings:
    """One service by slots of SLOT_SECONDS, ascending; NaN is unknown.

    `fullest` are the requests at work of the replica that had most, `full` of those that let
    requests wait; `timed_seconds` of `timed` requests add up, and their waits likewise. `prompt`
    and `generated` are tokens. `replicas` are those read, `cache` the fullest KV-cache, 0..1.
    """

    engine: str
    starts: Times
    running: Floats
    waiting: Floats
    finished: Floats
    fullest: Floats
    full: Floats
    timed_seconds: Floats
    timed: Floats
    waited_seconds: Floats
    waited: Floats
    prompt: Floats
    generated: Floats
    replicas: Floats
    cache: Floats

    @cached_property
    def arrivals(self) -> Floats:
        """Requests that came by slot: those that ended, and what the queue grew by.

        A service that drowns ends fewer than come. Where the queue is unknown, those that ended.
        """
        inside = self.running + self.waiting
        grown = np.diff(inside, prepend=np.nan)
        next_to = np.diff(self.starts, prepend=0) == SLOT_SECONDS
        valid = next_to & np.isfinite(grown)
        return np.maximum(self.finished + np.where(valid, grown, 0.0), 0.0)

    @cached_property
    def mean_waits(self) -> Floats:
        """Mean wait by slot, s; infinite where requests wait and none ends.

        As the engine timed it, else by Little's law from those that wait and those that came.
        """
        arrivals = self.arrivals
        rates = np.where(arrivals > 0, arrivals, np.nan) / SLOT_SECONDS
        by_law = np.where(self.waiting > 0, self.waiting / rates, self.waiting)
        by_law = np.where((self.waiting > 0) & (arrivals == 0), np.inf, by_law)
        timed = self.waited_seconds / np.where(self.waited > 0, self.waited, np.nan)
        return np.where(np.isfinite(timed), timed, by_law)

    @cached_property
    def served(self) -> tuple[Floats, Floats]:
        """By slot learnt from the seconds from admission to the last token, of how many.

        Engines that time no requests: by Little's law, requests at work per request that ended.
        """
        sums, counts = self.timed_seconds[self.lately], self.timed[self.lately]
        if self.engine not in _ENGINES_WITHOUT_WAIT:
            waited = self.waited[self.lately]
            waits = self.waited_seconds[self.lately] / np.where(waited > 0, waited, np.nan)
            sums = sums - np.nan_to_num(waits) * counts
        if not np.nansum(counts):
            sums, counts = self.running[self.lately] * SLOT_SECONDS, self.finished[self.lately]
        return sums, counts

    def where(self, mask: npt.NDArray[np.bool_]) -> "ServiceReadings":
        """Return the readings of the chosen slots alone."""
        if mask.all():
            return self
        parts = {
            field.name: getattr(self, field.name)[mask]
            for field in fields(self)
            if field.name != "engine"
        }
        return replace(self, **parts)

    @property
    def of_last_day(self) -> npt.NDArray[np.bool_]:
        """A mask of the slots of the last day."""
        return np.asarray(self.starts > self.starts[-1] - _LATELY_SECONDS)

    @cached_property
    def lately(self) -> npt.NDArray[np.bool_]:
        """A mask of the slots to learn from: the last day's.

        Where few of them had requests, as after a weekend, those since a day before the newest
        slots that had.
        """
        busy = (self.finished > 0) | (self.timed > 0)
        if np.count_nonzero(busy & self.of_last_day) >= _MIN_BUSY_SLOTS or not busy.any():
            return self.of_last_day
        first = self.starts[busy][-_MIN_BUSY_SLOTS:][0]
        return np.asarray(self.starts > first - _LATELY_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaCarries:
    """The capacity of one replica. Not `seen_full`: it may work on more than `slots` at once."""

    slots: int
    seen_full: bool
    service_seconds: Range
    arrival_scv: float

    def load(self, requests_per_second: float) -> ServiceLoad:
        """Return the load of a rate; services vary as exponential ones do, which is not learnt."""
        return ServiceLoad(
            requests_per_second=requests_per_second,
            service_seconds=self.service_seconds.central,
            slots_per_replica=self.slots,
            arrival_scv=self.arrival_scv,
        )


def carries_of(outlook: ServiceOutlook) -> ReplicaCarries | None:
    """Return the capacity of a replica as it was learnt, None where it was not."""
    seconds, slots, scv = outlook.service_seconds, outlook.slots_per_replica, outlook.arrival_scv
    if seconds is None or slots is None or scv is None:
        return None
    return ReplicaCarries(
        slots=slots, seen_full=outlook.seen_full, service_seconds=seconds, arrival_scv=scv
    )


def learnt(readings: ServiceReadings) -> ReplicaCarries | None:
    """Return the capacity of a replica; None when too little is known.

    Requests at once are those of full replicas, lately or else of all that was read: the
    more replicas there are, the less each is seen to do.
    """
    lately = readings.lately
    seconds = _service_seconds(readings)
    finite = np.isfinite(readings.full)
    full = readings.full[finite & lately]
    full = full if len(full) >= _MIN_FULL_SLOTS else readings.full[finite]
    seen_full = len(full) >= _MIN_FULL_SLOTS
    most = float(np.median(full)) if seen_full else _most_at_once(readings)
    if seconds is None or not np.isfinite(readings.fullest).any():
        return None
    return ReplicaCarries(
        slots=max(1, round(most)),
        seen_full=seen_full,
        service_seconds=seconds,
        arrival_scv=arrival_scv(readings),
    )


def most_seen(readings: ServiceReadings) -> int:
    """Return the most requests at once that a replica was seen to work on, at least 1."""
    return max(1, round(_fullest(readings)))


def _fullest(readings: ServiceReadings) -> float:
    return float(np.nanmax(readings.fullest, initial=0.0))


def _most_at_once(readings: ServiceReadings) -> float:
    """Return the requests at once of a replica that was never full: as its KV-cache tells."""
    largest = _fullest(readings)
    filled = np.isfinite(readings.fullest) & (readings.cache >= _MIN_CACHE_RATIO)
    if not filled.any():
        return largest
    per_cache = float(np.median(readings.fullest[filled] / readings.cache[filled]))
    return max(largest, min(_CACHE_TAKEN * per_cache, max(_MAX_UNSEEN * largest, _ANY_BATCH)))


def proven_replicas(
    readings: ServiceReadings,
    came: Floats,
    rates: Sequence[float],
    carries: ReplicaCarries,
    objective: WaitObjective,
) -> tuple[float, ...]:
    """Return for each rate the fewest replicas that carried as much and kept the promise.

    `came` is the rate by slot. The replicas that carried the highest rate are taken to carry a
    quarter more; above that the number grows in proportion. Infinity where nothing is proven.
    """
    carried, there = _promises_kept(readings, came, carries, objective)
    if not len(carried):
        return (math.inf,) * len(rates)
    most = np.full(there.max() + 1, -np.inf)  # that so many replicas carried, or fewer
    np.maximum.at(most, there, carried)
    most = np.maximum.accumulate(most)
    required = np.asarray(rates, dtype=np.float64)
    beyond = np.maximum(1.0, required / (most[-1] * _MAX_UNPROVEN))
    of_more = np.ceil(np.searchsorted(most, most[-1]) * beyond)
    return tuple(np.where(required <= most[-1], np.searchsorted(most, required), of_more).tolist())


def _promises_kept(
    readings: ServiceReadings, came: Floats, carries: ReplicaCarries, objective: WaitObjective
) -> tuple[Floats, Times]:
    """Return the rates at which the promise was kept, and by how many replicas.

    Few requests prove nothing: slots of as many replicas are put together, those of the highest
    rates first, until one late request more would not break the promise.
    """
    waits = readings.mean_waits
    usable = (came > 0) & ~np.isnan(waits) & (readings.replicas > 0)
    rates, there = came[usable], readings.replicas[usable].astype(np.int64)
    waits = np.minimum(waits[usable], _ENDLESS_SECONDS)
    enough = 1 / (1 - objective.share)
    if (rates * SLOT_SECONDS < enough).any():
        rates, there, waits = _together(rates, there, waits, enough)
    in_time = _late_ratio(rates, there, waits, carries, objective) <= 1 - objective.share
    return rates[in_time], there[in_time]


def _together(
    rates: Floats, there: Times, waits: Floats, enough: float
) -> tuple[Floats, Times, Floats]:
    """Return mean rates, replicas and mean waits of slots put together to `enough` requests."""
    order = np.lexsort((-rates, there))
    rates, there, waits = rates[order], there[order], waits[order]
    requests = rates * SLOT_SECONDS
    before = np.cumsum(requests) - requests
    group = (before - before[np.searchsorted(there, there)]) // enough
    begins = np.flatnonzero(np.diff(group, prepend=-1) + np.diff(there, prepend=0))
    came = np.add.reduceat(requests, begins)
    waited = np.add.reduceat(requests * waits, begins)
    enough_requests = came >= enough
    slots = np.diff(begins, append=len(rates))
    return (
        (came / slots / SLOT_SECONDS)[enough_requests],
        there[begins][enough_requests],
        (waited / came)[enough_requests],
    )


def _late_ratio(
    rates: Floats, there: Times, waits: Floats, carries: ReplicaCarries, objective: WaitObjective
) -> Floats:
    """Return the share of requests that was late, of mean waits: as the formula spreads them.

    Who waits, waits w on average, exponentially: the mean wait over w do, and no more than all. A
    replica that was never full may have more places, so that w is shorter: the w is taken up to
    the formula's that makes most of them late.
    """
    limit, seconds = objective.wait_seconds, carries.service_seconds.central
    free = there * carries.slots - rates * seconds
    variation = (carries.arrival_scv + 1) / 2
    by_formula = variation * seconds / np.where(free > 0, free, np.nan)
    wait_if_any = np.where(free > 0, by_formula, limit)
    if limit:
        wait_if_any = np.minimum(wait_if_any, limit)
    wait_if_any = np.maximum(np.maximum(wait_if_any, waits), _SHORTEST_SECONDS)
    return np.asarray(waits / wait_if_any * np.exp(-limit / wait_if_any))


def _service_seconds(readings: ServiceReadings) -> Range | None:
    """Return the mean seconds of service, and the span of 80 % of the slots' means."""
    sums, counts = readings.served
    usable = np.isfinite(sums) & (counts > 0) & (sums > 0)
    if not usable.any():
        return None
    sums, counts = sums[usable], counts[usable]
    low, high = _deciles(sums / counts)
    central = float(sums.sum() / counts.sum())
    return Range(
        low=min(float(low), central), central=central, high=max(float(high), central), unit="s"
    )


def _deciles(values: Floats) -> list[float]:
    """Return both deciles as np.quantile does, whose checks take most of its time."""
    ordered, last = np.sort(values).tolist(), len(values) - 1
    places = ((share * last, int(share * last)) for share in (0.1, 0.9))
    following = [*ordered[1:], ordered[-1]]
    return [ordered[low] + (at - low) * (following[low] - ordered[low]) for at, low in places]


def arrival_scv(readings: ServiceReadings) -> float:
    """Return the variance of the counts of lately over their mean; a trend is none.

    It is from second differences. Over many gaps it is the squared coefficient of variation of
    the gaps between requests. 1, that of Poisson, where too little is known; never less.
    """
    lately = readings.lately
    arrivals, starts = readings.arrivals[lately], readings.starts[lately]
    bent = arrivals[2:] - 2 * arrivals[1:-1] + arrivals[:-2]
    bent = bent[np.isfinite(bent) & (starts[2:] - starts[:-2] == 2 * SLOT_SECONDS)]
    mean = float(np.nanmean(arrivals)) if np.isfinite(arrivals).any() else 0.0
    if len(bent) < _MIN_CHANGES or mean <= 0:
        return 1.0
    return float(np.clip(np.mean(bent**2) / 6 / mean, 1.0, MAX_LEARNT_SCV))


def reactive_replicas(carries: ReplicaCarries, readings: ServiceReadings, ratio: float) -> int:
    """Return the replicas by a rule on requests in flight at the newest slot: filled to `ratio`.

    Waiting requests that are unknown count as none, as such a rule would not see them.
    """
    inside = float(readings.running[-1]) + float(np.nan_to_num(readings.waiting[-1]))
    return math.ceil(inside / (ratio * carries.slots)) if math.isfinite(inside) else 0


def replicas_for_rates(
    load: ServiceLoad, rates: Sequence[float], objective: WaitObjective
) -> tuple[int, ...]:
    """Return the replicas for each rate, else as `load`; equal rates are sized once.

    Errors: ImpossibleProblemError when a rate keeps more than MAX_LEARNT_SLOTS slots busy.
    """
    busy = max(rates, default=0.0) * load.service_seconds
    if busy > MAX_LEARNT_SLOTS:
        raise ImpossibleProblemError(
            f"{busy:,.0f} requests at once are more than {MAX_LEARNT_SLOTS:,}",
            "Ask for the service in parts, by `trimtab serving replicas`.",
        )
    unit = load.slots_per_replica / load.service_seconds / _PARTS
    parts = [math.ceil(max(rate, 0.0) / unit) for rate in rates]
    terms = (*queue_of(load), objective.wait_seconds, 1 - objective.share)
    needed = {0: 0}
    for part in set(parts) - {0}:
        busy = part * unit * load.service_seconds
        needed[part] = _fewest(int(busy // load.slots_per_replica) + 1, busy, *terms)[0]
    return tuple(needed[part] for part in parts)


def carried_rate(load: ServiceLoad, replicas: int, objective: WaitObjective) -> float | None:
    """Return the highest rate that `replicas` carry within the objective, else as `load`.

    In whole parts, as rates are sized; None for more than MAX_LEARNT_SLOTS slots.
    """
    if replicas * load.slots_per_replica > MAX_LEARNT_SLOTS:
        return None
    unit = load.slots_per_replica / load.service_seconds / _PARTS
    terms = (*queue_of(load), objective.wait_seconds, math.inf)
    carried, too_much = 0, replicas * _PARTS
    while too_much - carried > 1:
        middle = (carried + too_much) // 2
        late_ratio = _fewest(replicas, middle * unit * load.service_seconds, *terms)[3]
        if late_ratio <= 1 - objective.share:
            carried = middle
        else:
            too_much = middle
    return carried * unit


def to_order(needed: Sequence[int], *, ahead: int, at_least: int, first: int) -> tuple[int, ...]:
    """Return the replicas to order in each slot: the most of it and the `ahead` after it.

    In the `first` slots never fewer than `at_least`, what the reactive rule asks now.
    """
    return tuple(
        max(*needed[slot : slot + ahead + 1], at_least if slot < first else 0)
        for slot in range(len(needed))
    )
