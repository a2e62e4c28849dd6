"""GPUs of one arriving job, by the round of HAS over all waiting jobs.

What runs keeps its GPUs: a round with those jobs locked is the round of the rest over the GPUs that
are free, so only the new job and those that wait are in it. A submitted job keeps its size to the
end and says by a deadline alone that it wants speed, so of each GPU type it offers the fewest GPUs
that do; on which type it costs least to the others is the round's to say.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Speed = Callable[[Floats, Floats], Floats]

UNKNOWN_HOURS = 2.0
"""Of a job that does not say how long it runs: what HAS takes jobs of an unknown kind to need."""

_NEW = "the new job"
_SECONDS = 3600.0
_LARGEST = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Offer:
    """So many GPUs of a type that hold the new job. `cost` is money per unit of its work."""

    gpu_type: str
    gpus: int
    memory_bytes: float
    cost: float


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitingJob:
    """A job in the queue: GPUs, the types that do with their speed, and how long it runs in h.

    `speeds` are relative to the first of the types; a type that is not named does not do.
    """

    name: str
    gpus: int
    speeds: Mapping[str, float]
    hours: float = UNKNOWN_HOURS


@dataclass(slots=True, kw_only=True)
class _Asking:
    """A job of the round, with the attributes that docs/internals/placement.md lists."""

    speedup_fn: Mapping[str, Speed]
    max_replicas: int
    remaining_work: float
    application: str
    min_replicas: int = 1
    restart_seconds: float = 0.0
    num_restarts: int = 0
    age: float = 0.0


def chosen_offer(
    offers: Sequence[Offer],
    room: Mapping[str, int],
    waiting: Sequence[WaitingJob] = (),
    *,
    hours: float = UNKNOWN_HOURS,
) -> Offer | None:
    """Return the offer that the round takes, None when it gives the new job nothing.

    `offers` hold one of each GPU type, `room` the GPUs that can be handed out by type; `hours` is
    how long the new job runs on its cheapest offer.

    The time of the new job on an offer counts as if it were longer by what it wastes there: by its
    cost over the cheapest, times the memory of a GPU over the smallest that does (smallest
    sufficient memory first: Frenzy, arXiv 2412.14479, section HAS). A waiting job of n GPUs makes
    use of fewer in proportion: what it is given now is kept for it until it can start.
    """
    from planner.scheduling.policy import HeterogeneousPolicy  # loads numba, SciPy and HiGHS

    fitting = [offer for offer in offers if offer.gpus <= room.get(offer.gpu_type, 0)]
    if not fitting:
        return None
    # GPUs one by one: where they are is asked afterwards, of the nodes as they are.
    nodes = {kind: dict.fromkeys(range(count), 1) for kind, count in room.items() if count}
    # A type without a speed would be taken for one that was not tried yet.
    nowhere = dict.fromkeys(nodes, _no_speed)
    jobs = {f"{number} {job.name}": _queued(job, nowhere) for number, job in enumerate(waiting)}
    jobs[_NEW] = _arriving(offers, hours, nowhere)
    most = max(_LARGEST, *(offer.gpus for offer in fitting))
    allocations = HeterogeneousPolicy(most_nodes=most).optimize(jobs, nodes, {})
    gpu_type, gpus = allocations[_NEW]
    return next(
        (offer for offer in fitting if (offer.gpu_type, offer.gpus) == (gpu_type, len(gpus))), None
    )


def _no_speed(_nodes: Floats, gpus: Floats) -> Floats:
    return np.zeros_like(gpus)


def _arriving(offers: Sequence[Offer], hours: float, nowhere: Mapping[str, Speed]) -> _Asking:
    cheapest = min(offer.cost for offer in offers)
    smallest = min(offer.memory_bytes for offer in offers)

    def rate(offer: Offer) -> Speed:
        waste = (offer.cost / cheapest) * (offer.memory_bytes / smallest)
        return lambda _nodes, gpus: np.where(gpus == offer.gpus, 1 / waste, 0.0)

    return _Asking(
        speedup_fn={**nowhere, **{offer.gpu_type: rate(offer) for offer in offers}},
        max_replicas=max(offer.gpus for offer in offers),
        remaining_work=hours * _SECONDS,
        application=_NEW,
    )


def _queued(waiting: WaitingJob, nowhere: Mapping[str, Speed]) -> _Asking:
    most = min(waiting.gpus, _LARGEST)

    def rate(speed: float) -> Speed:
        return lambda _nodes, gpus: speed * np.minimum(gpus, most) / most

    return _Asking(
        speedup_fn={**nowhere, **{name: rate(speed) for name, speed in waiting.speeds.items()}},
        max_replicas=most,
        remaining_work=waiting.hours * _SECONDS,
        application=waiting.name,
    )
