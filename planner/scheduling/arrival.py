"""GPUs of one arriving job, by the round of HAS over all waiting jobs.

What runs keeps its GPUs: a round with those jobs locked is the round of the rest over the GPUs that
are free, so only the new job and those that wait are in it. A submitted job keeps its size to the
end and says by a deadline alone that it wants speed, so of each GPU type it offers the fewest GPUs
that do; on which type it costs least to the others is the round's to say.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

UNKNOWN_HOURS = 2.0
"""Of a job that does not say how long it runs: what HAS takes jobs of an unknown kind to need."""

_SECONDS = 3600.0
_LARGEST = 64
_STEPS = 60
_SHORT_FIRST, _SPEED_POWER = -0.1, 0.4
"""beta and p, chosen on Philly workloads 1 and 2 alone (`benchmarks/simulation`)."""


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
    fitting = [offer for offer in offers if offer.gpus <= room.get(offer.gpu_type, 0)]
    if not fitting:
        return None
    from planner.scheduling.round_kernel import solve  # loads numba

    # GPUs one by one: where they are is asked afterwards, of the nodes as they are.
    types = [name for name, count in room.items() if count]
    most = max(_LARGEST, *(offer.gpus for offer in fitting))
    sizes = [np.arange(1, min(room[name], most) + 1) for name in types]
    kind = np.repeat(np.arange(len(types)), [len(counts) for counts in sizes])
    gpus, names = np.concatenate(sizes), np.array(types)[kind]
    # A job that no free GPU suits waits for others, and takes none of these.
    queue = [job for job in waiting if any(job.speeds.get(name) for name in types)]
    goodput = np.array(
        [*(_queued(job, names, gpus) for job in queue), _arriving(offers, names, gpus)]
    )
    count, nothing = len(goodput), len(gpus)
    run_hours = [*(job.hours for job in queue), hours]
    choice = np.full(count, nothing)
    solve(
        np.hstack([_costs(goodput, gpus, run_hours), np.zeros((count, 1))]),
        np.append(kind, 0),
        np.append(gpus, 0),
        np.array([room[name] for name in types]),
        choice.copy(),
        np.zeros(len(types)),
        _STEPS,
        choice,
    )
    newest = int(choice[-1])
    if newest == nothing:
        return None
    return next(offer for offer in fitting if offer.gpu_type == names[newest])


def _costs(goodput: Floats, gpus: Ints, hours: Sequence[float]) -> Floats:
    """Return the cost [J, C] of every choice, infinite where it does nothing for a job.

    A job with work R left, goodput g(c) and time T = R / g(c) is worth R_h^-beta T^-p on c. R_h is
    R in hours of one fastest GPU. Short jobs go first, since p is above 0; beta below 0 gives some
    of it back to long ones.
    """
    seconds = _SECONDS * np.array(hours)
    per_gpu = goodput / gpus
    single = per_gpu[:, gpus == 1].max(axis=1)
    reference = np.where(single > 0, single, per_gpu.max(axis=1))
    worth = np.maximum(seconds / (_SECONDS * reference), 1e-9) ** -_SHORT_FIRST
    with np.errstate(divide="ignore"):
        value = -worth[:, None] * (seconds[:, None] / goodput / _SECONDS) ** -_SPEED_POWER
    return np.where(goodput > 0, value, np.inf)


def _arriving(offers: Sequence[Offer], names: npt.NDArray[np.str_], gpus: Ints) -> Floats:
    """Return the goodput [C] of the new job, relative to its cheapest offer."""
    cheapest = min(offer.cost for offer in offers)
    smallest = min(offer.memory_bytes for offer in offers)
    goodput = np.zeros(len(gpus))
    for offer in offers:
        waste = (offer.cost / cheapest) * (offer.memory_bytes / smallest)
        goodput[(names == offer.gpu_type) & (gpus == offer.gpus)] = 1 / waste
    return goodput


def _queued(waiting: WaitingJob, names: npt.NDArray[np.str_], gpus: Ints) -> Floats:
    """Return the goodput [C] of a waiting job; no more GPUs than it waits for are of use."""
    most = min(waiting.gpus, _LARGEST)
    speed = np.array([waiting.speeds.get(str(name), 0.0) for name in names])
    return np.where(gpus <= most, speed * gpus / most, 0.0)
