"""Rules that order replicas, replayed: how many minutes miss the objective, and GPU-hours."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from benchmarks._serving_kernel import IN_FLIGHT, NONE, RATE, Floats, Ints, replay_kernel
from benchmarks._serving_traces import MINUTE, RequestTrace
from forecasting.groups.request_rates import RATE_SLOT_SECONDS as SLOT
from forecasting.groups.request_rates import rate_quantiles_of
from forecasting.mix.model import MIN_KNOWN
from planner.serving.service_model import replicas_for_rates

STEP = 15
MIN_COLD_START, MAX_COLD_START = 120.0, 480.0
AHEAD = math.ceil((MAX_COLD_START + SLOT) / SLOT)
"""Slots that an order must cover: until what is ordered at the next slot is ready."""
FORMULA_SHARE = 0.99
LEVELS = ("q50", "q75", "q90", "q95")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReactiveRule:
    """An autoscaler's setting. `target`: share of a replica's slots, or of its rate, at work.

    The rule keeps the largest ask of the last `window_minutes`. `waiting`: waiting requests a
    replica, as a share of its slots, 0 none.
    """

    kind: int
    target: float
    window_minutes: int
    waiting: float = 0.0

    @property
    def name(self) -> str:
        """How it is shown."""
        if self.kind == NONE:
            return "none"
        what = "HPA in flight" if self.kind == IN_FLIGHT else "KEDA rate"
        also = f", waiting {self.waiting:g}" if self.waiting else ""
        return f"{what} {self.target:.0%}{also}, down after {self.window_minutes} min"


NO_RULE = ReactiveRule(kind=NONE, target=1.0, window_minutes=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedMinutes:
    """What a rule did: by minute with a request whether it missed, and GPU-hours by minute."""

    name: str
    rule: ReactiveRule
    missed: Floats
    gpu_hours: Floats

    def part(self, first: int, last: int) -> tuple[int, float]:
        """Return the minutes missed and the GPU-hours held from minute `first` to before `last`."""
        return int(self.missed[first:last].sum()), float(self.gpu_hours[first:last].sum())


def reactive_grid() -> Iterator[ReactiveRule]:
    """Yield every setting that is tried."""
    for window in (5, 15, 30):
        for target in (0.5, 0.6, 0.7, 0.8, 0.9):
            yield ReactiveRule(kind=IN_FLIGHT, target=target, window_minutes=window)
            yield ReactiveRule(kind=RATE, target=target, window_minutes=window, waiting=0.5)


def replayed(
    trace: RequestTrace, name: str, rule: ReactiveRule, floor: Ints | None = None
) -> ServedMinutes:
    """Return what a rule does above a floor of replicas by step."""
    steps = int(trace.seconds // STEP)
    capacity = trace.slots if rule.kind == IN_FLIGHT else trace.replica_rate
    cold_starts = np.random.default_rng(1).uniform(MIN_COLD_START, MAX_COLD_START, 997)
    waits, held, _asked = replay_kernel(
        trace.arrivals,
        trace.services,
        cold_starts,
        np.ones(steps, np.int64) if floor is None else floor,
        float(STEP),
        trace.slots,
        np.array([rule.kind, rule.window_minutes * MINUTE // STEP, MINUTE // STEP]),
        rule.target * capacity,
        rule.waiting * trace.slots,
    )
    minutes = int(trace.seconds // MINUTE)
    minute = (trace.arrivals // MINUTE).astype(np.int64)
    inside = minute < minutes
    late = waits[inside] > trace.objective.wait_seconds
    requests = np.bincount(minute[inside], minlength=minutes)
    too_late = np.bincount(minute[inside], weights=late, minlength=minutes)
    missed = (too_late > (1 - trace.objective.share) * requests).astype(float)
    hours = held.reshape(minutes, -1).sum(axis=1) * STEP / 3600
    return ServedMinutes(name=name, rule=rule, missed=missed, gpu_hours=hours)


def slot_rates(trace: RequestTrace, seconds: int = SLOT) -> Floats:
    """Return the requests per second that arrived, by slot."""
    slots = int(trace.seconds // seconds)
    number = (trace.arrivals // seconds).astype(np.int64)
    return np.bincount(number[number < slots], minlength=slots) / seconds


def needed_by(trace: RequestTrace, rates: Sequence[float]) -> Ints:
    """Return the replicas for each rate, rounded up to hundredths of a replica's rate.

    Sized so that FORMULA_SHARE keep the wait on average: single minutes are worse than the average.
    """
    objective = replace(trace.objective, share=FORMULA_SHARE)
    return np.array(replicas_for_rates(trace.load(0.0), rates, objective), np.int64)


def forecast_rates(trace: RequestTrace, first: int = MIN_KNOWN) -> dict[str, Floats]:
    """Return, by level and slot, the highest rate of the next AHEAD slots as forecast at its start.

    Before slot `first` it is 0: the reactive rule is alone.
    """
    rates = slot_rates(trace)
    found = {level: np.zeros(len(rates)) for level in LEVELS}
    for origin in range(max(first, MIN_KNOWN), len(rates)):
        quantiles = rate_quantiles_of([(0, rates[:origin])], AHEAD)[0]
        for level in LEVELS:
            values = getattr(quantiles, level)
            found[level][origin] = 0.0 if values is None else values.max()
    return found


def floor_of(trace: RequestTrace, rates: Floats, seconds: int = SLOT) -> Ints:
    """Return the floor by step of rates by slot, the last one kept to the end."""
    steps = int(trace.seconds // STEP)
    needed = needed_by(trace, rates.tolist())
    return needed[np.minimum(np.arange(steps) * STEP // seconds, len(needed) - 1)]


def last_value_floor(trace: RequestTrace, margin: float) -> Ints:
    """Return the floor of the slot before, times `margin`."""
    rates = slot_rates(trace)
    return floor_of(trace, np.concatenate([[rates[0]], rates[:-1]]) * margin)


def oracle_floor(trace: RequestTrace, margin: float) -> Ints:
    """Return the floor of an oracle: each minute's rate, ordered in time.

    A replica is kept through a gap that is shorter than its cold start.
    """
    needed = floor_of(trace, slot_rates(trace, MINUTE) * margin, MINUTE)
    ahead = int(MAX_COLD_START // STEP)
    padded = np.concatenate([needed, np.full(ahead, needed[-1])])
    return np.lib.stride_tricks.sliding_window_view(padded, ahead + 1).max(axis=1)
