"""The wait before a replica takes a request, and the replicas that keep it short.

A replica works on `slots` requests at once (continuous batching); `service_seconds` is what one
takes from its admission to its last token when the batch is full. All replicas of a service are one
G/G/c queue with c = replicas * slots, first in first out.

Erlang C gives the chance to wait at all: exact for M/M/c. ca2 and cs2 are the squared coefficients
of variation of the gaps between arrivals and of the services. Bursts raise that chance: Hayward's
approximation divides slots and offered load by the peakedness z = (ca2 + cs2) / (1 + cs2), which is
(ca2 + 1) / 2 for exponential services (Fredericks, Congestion in blocking systems, Bell System
Technical Journal 59(6), 1980; z: Whitt, Understanding the efficiency of multi-server service
systems, Management Science 38(5), 1992). A z below 1 is taken as 1. The mean wait of those who wait
is that of M/M/c times (ca2 + cs2) / 2 (Allen, Probability, Statistics and Queueing Theory, 1990),
and the wait is exponential (Whitt, Approximations for the GI/G/m queue, Production and Operations
Management 2(2), 1993).

The time to the first token is this wait and the request's own prefill: an objective on the former
is this objective and the latter's time.
"""

import math
from dataclasses import dataclass
from decimal import Decimal

from data.base.errors import ImpossibleProblemError

MAX_SLOTS = 1_000_000
MAX_SERVICE_SECONDS = 1e7
MAX_ARRIVAL_SCV = 16.0
"""The largest that the formula is held against a simulator for."""
MAX_SERVICE_SCV = 100.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceLoad:
    """Arrivals and service times; the squared coefficients of variation are 1 for Poisson."""

    requests_per_second: float
    service_seconds: float
    slots_per_replica: int
    arrival_scv: float = 1.0
    service_scv: float = 1.0

    def __post_init__(self) -> None:
        """Refuse values that are not a load. Errors: ImpossibleProblemError."""
        if not 0 <= self.requests_per_second < math.inf:
            raise ImpossibleProblemError(
                f"the request rate is {self.requests_per_second:g}",
                "Give requests per second: a finite number, 0 or more.",
            )
        if not 0 < self.service_seconds <= MAX_SERVICE_SECONDS:
            raise ImpossibleProblemError(
                f"service time must be above 0 s, at most {MAX_SERVICE_SECONDS:,.0f} s, "
                f"not {self.service_seconds:g} s",
                "Give the seconds from a request's admission to its last token.",
            )
        if not 1 <= self.slots_per_replica <= MAX_SLOTS:
            raise ImpossibleProblemError(
                f"slots per replica must be 1 to {MAX_SLOTS:,}, "
                f"not {Decimal(self.slots_per_replica):.6g}",
                "Give the requests that a replica works on at once.",
            )
        for option, scv, largest, way_out in (
            (
                "--arrival-scv",
                self.arrival_scv,
                MAX_ARRIVAL_SCV,
                "The formula is checked by simulation up to that. Give the rate within a burst.",
            ),
            ("--service-scv", self.service_scv, MAX_SERVICE_SCV, "Leave out requests that hang."),
        ):
            if not 0 <= scv <= largest:
                raise ImpossibleProblemError(
                    f"{option} must be 0 to {largest:g}, not {scv:g}", way_out
                )

    @property
    def busy_slots(self) -> float:
        """Slots at work on average, as far as capacity holds (the offered load in Erlang)."""
        return self.requests_per_second * self.service_seconds

    @property
    def peakedness(self) -> float:
        """The number of busy slots that vary together: 1 for Poisson arrivals, more for bursts."""
        return max(1.0, (self.arrival_scv + self.service_scv) / (1 + self.service_scv))


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitObjective:
    """At least `share` of the requests wait at most `wait_seconds`."""

    wait_seconds: float
    share: float = 0.95

    def __post_init__(self) -> None:
        """Refuse an objective that no service can promise. Errors: ImpossibleProblemError."""
        if not (0 <= self.wait_seconds < math.inf and 0 < self.share < 1):
            raise ImpossibleProblemError(
                "--wait must be 0 s or more, --share between 0 and 1, "
                f"not {self.wait_seconds:g} s and {self.share:g}",
                "Give a finite wait, and a share above 0 and below 1.",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaOutlook:
    """The wait with a number of replicas.

    `mean_wait_seconds` is None and `late_ratio` 1 where the queue grows without end.
    """

    replicas: int
    utilization_ratio: float
    mean_wait_seconds: float | None
    late_ratio: float


def outlook(load: ServiceLoad, replicas: int, wait_seconds: float) -> ReplicaOutlook:
    """Return the wait with `replicas`, 1 or more; late is a wait over `wait_seconds`."""
    busy, mean_wait, late = fewest(
        replicas, load.busy_slots, *queue_of(load), wait_seconds, math.inf
    )[1:]
    return ReplicaOutlook(
        replicas=replicas,
        utilization_ratio=busy,
        mean_wait_seconds=mean_wait if mean_wait < math.inf else None,
        late_ratio=late,
    )


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
    # All slots of fewer are busy.
    first = int(load.busy_slots // load.slots_per_replica) + 1
    terms = (*queue_of(load), objective.wait_seconds, 1 - objective.share)
    return fewest(first, load.busy_slots, *terms)[0]


def queue_of(load: ServiceLoad) -> tuple[int, float, float, float]:
    """Return the arguments of `fewest` for a load at any rate."""
    variation = (load.arrival_scv + load.service_scv) / 2
    return load.slots_per_replica, load.service_seconds, load.peakedness, variation


def fewest(
    first: int,
    busy_slots: float,
    slots_per_replica: int,
    service_seconds: float,
    peakedness: float,
    variation: float,
    wait_seconds: float,
    max_late_ratio: float,
) -> tuple[int, float, float, float]:
    """Return the fewest replicas, `first` or more, of which no more requests are late.

    And their share of busy slots, the mean wait, infinite where the queue grows without end, and
    the share that is late. Numbers alone, as it is compiled where many are asked for.
    """
    offered = busy_slots / peakedness
    replicas, full = first, 0
    inverse_b = 1.0  # of Erlang B: it overflows to infinity alone, a chance of 0
    while True:
        slots = replicas * slots_per_replica
        servers = slots / peakedness
        while full + 1 <= servers:
            full += 1
            inverse_b = 1 + inverse_b * full / offered if offered else math.inf
        # A part of a server lies between, in the logarithm: exact where there is none.
        part = servers - full
        between = inverse_b
        if part:
            one_more = 1 + inverse_b * (full + 1) / offered if offered else math.inf
            between = inverse_b ** (1 - part) * one_more**part
        busy = busy_slots / slots
        mean_wait, late = math.inf, 1.0
        if busy < 1:
            waits = 1 / (between * (1 - busy) + busy)  # Erlang C
            wait_if_any = variation * service_seconds / (slots - busy_slots)
            mean_wait = waits * wait_if_any
            late = waits * math.exp(-wait_seconds / wait_if_any) if wait_if_any else 0.0
        if late <= max_late_ratio:
            return replicas, busy, mean_wait, late
        replicas += 1
