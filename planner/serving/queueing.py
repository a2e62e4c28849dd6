"""Waiting before a replica takes a request, and the replicas that keep it short.

A replica works on `slots` requests at once (continuous batching); `service_seconds` is what one
takes from its admission to its last token when the batch is full. All replicas of a service are one
G/G/c queue with c = replicas * slots, first in first out.

Erlang C gives the chance to wait at all: exact for M/M/c. The correction of Allen and Cunneen
(Allen, Probability, Statistics and Queueing Theory, 1990) multiplies the mean wait by
(ca2 + cs2) / 2, of the squared coefficients of variation of the gaps between arrivals and of the
services. Those who wait do so for an exponential time of that mean, as in M/M/c (Whitt,
Approximations for the GI/G/m queue, Production and Operations Management 2(2), 1993).

The time to the first token is this wait and the request's own prefill: an objective on the former
is this objective and the latter's time.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

from data.errors import ImpossibleProblemError

MAX_SLOTS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLoad:
    """What comes and how long it takes; the squared coefficients of variation are 1 for Poisson."""

    requests_per_second: float
    service_seconds: float
    slots_per_replica: int
    arrival_scv: float = 1.0
    service_scv: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what is no load. Errors: ImpossibleProblemError."""
        for name, value, least in (
            ("requests per second", self.requests_per_second, 0.0),
            ("seconds of service", self.service_seconds, math.ulp(0.0)),
            ("slots per replica", float(self.slots_per_replica), 1.0),
            ("arrival variation", self.arrival_scv, 0.0),
            ("service variation", self.service_scv, 0.0),
        ):
            if not (math.isfinite(value) and value >= least):
                raise ImpossibleProblemError(
                    f"{name} is {value:g}", f"Give a finite number, {least:g} or more."
                )

    @property
    def busy_slots(self) -> float:
        """Slots at work on average, as far as capacity holds (the offered load in Erlang)."""
        return self.requests_per_second * self.service_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitObjective:
    """At least `share` of the requests wait at most `wait_seconds`."""

    wait_seconds: float
    share: float = 0.95

    def __post_init__(self) -> None:
        """Refuse what no service can promise. Errors: ImpossibleProblemError."""
        if not (0 <= self.wait_seconds < math.inf and 0 < self.share < 1):
            raise ImpossibleProblemError(
                f"{self.share:g} of requests within {self.wait_seconds:g} s is no objective",
                "Give seconds of 0 or more and a share between 0 and 1, both excluded.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaOutlook:
    """What a number of replicas does to the wait.

    `mean_wait_seconds` is None and `late_ratio` 1 where the queue grows without end.
    """

    replicas: int
    utilization_ratio: float
    mean_wait_seconds: float | None
    late_ratio: float


def outlook(load: ServiceLoad, replicas: int, wait_seconds: float) -> ReplicaOutlook:
    """Return what `replicas`, 1 or more, do; late is who waits longer than `wait_seconds`."""
    return next(_outlooks(load, wait_seconds, first=replicas))


def replicas_needed(load: ServiceLoad, objective: WaitObjective) -> int:
    """Return the fewest replicas that meet the objective; 0 when nothing comes.

    Errors: ImpossibleProblemError when more than MAX_SLOTS slots would be needed.
    """
    if load.busy_slots == 0:
        return 0
    if load.busy_slots >= MAX_SLOTS:
        raise ImpossibleProblemError(
            f"{load.busy_slots:,.0f} requests at once are more than {MAX_SLOTS:,}",
            "Give requests per second and seconds of service of one service.",
        )
    return next(
        found.replicas
        for found in _outlooks(load, objective.wait_seconds, first=1)
        if found.late_ratio <= 1 - objective.share
    )


def _outlooks(load: ServiceLoad, wait_seconds: float, *, first: int) -> Iterator[ReplicaOutlook]:
    """Yield the outlook for `first` replicas, one more, and so on."""
    offered = load.busy_slots
    variation = (load.arrival_scv + load.service_scv) / 2
    slots, inverse_b = 0, 1.0
    for replicas in count(first):
        while slots < replicas * load.slots_per_replica:
            slots += 1
            # Erlang B as its inverse: it overflows to infinity alone, a chance of 0.
            inverse_b = 1 + inverse_b * slots / offered if offered else math.inf
        busy = offered / slots
        mean_wait, late = None, 1.0
        if busy < 1:
            waits = 1 / (inverse_b * (1 - busy) + busy)  # Erlang C
            wait_if_any = variation * load.service_seconds / (slots - offered)
            mean_wait = waits * wait_if_any
            late = waits * math.exp(-wait_seconds / wait_if_any) if wait_if_any else 0.0
        yield ReplicaOutlook(
            replicas=replicas,
            utilization_ratio=busy,
            mean_wait_seconds=mean_wait,
            late_ratio=late,
        )
