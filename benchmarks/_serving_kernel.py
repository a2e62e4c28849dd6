"""Discrete events of one service: requests, slots that come and go, and an autoscaler's rule.

Every request is admitted first in first out to the slot that is free first. Replicas are ordered
and stopped at steps; one that is ordered is there after its own cold start, one that is stopped
finishes what it works on. GPUs are charged from the order to the stop.
"""

import numpy as np
import numpy.typing as npt

from data.base.compiled import inner, outer

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
NONE, IN_FLIGHT, RATE = 0, 1, 2
"""Rules: the floor alone; requests in flight a replica (HPA); their rate, and waiting (KEDA)."""
MAX_REPLICAS = 4096
SIZE, REPLICAS, STARTED, BOOTS, HEAD, SLOTS = range(6)
"""Places of the state: slots there, replicas held, ever ordered and not ready, the next request."""
TOLERANCE = 0.1
"""Of the Horizontal Pod Autoscaler: it changes nothing within 10 % of its target."""


@inner
def _push(heap: Floats, size: int, value: float) -> int:
    place = size
    while place > 0 and heap[(place - 1) // 2] > value:
        heap[place] = heap[(place - 1) // 2]
        place = (place - 1) // 2
    heap[place] = value
    return size + 1


@inner
def _pop(heap: Floats, size: int) -> int:
    """Remove the least, heap[0]; return the new size."""
    size -= 1
    value, place = heap[size], 0
    while 2 * place + 1 < size:
        child = 2 * place + 1
        if child + 1 < size and heap[child + 1] < heap[child]:
            child += 1
        if heap[child] >= value:
            break
        heap[place] = heap[child]
        place = child
    heap[place] = value
    return size


@inner
def _in_flight(heap: Floats, size: int, now: float) -> int:
    busy = 0
    for place in range(size):
        busy += heap[place] > now
    return busy


@inner
def _asked(
    rule: Ints,
    target: float,
    waiting_target: float,
    current: int,
    busy: int,
    waiting: int,
    rate: float,
) -> int:
    """Return what a rule wants now, before its window for going down."""
    if rule[0] == NONE:
        return 0
    total = busy + waiting if rule[0] == IN_FLIGHT else rate
    wanted = int(np.ceil(total / target))
    if current > 0 and abs(total / (target * current) - 1) <= TOLERANCE:
        wanted = current
    if rule[0] == RATE and waiting_target > 0:
        wanted = max(wanted, int(np.ceil(waiting / waiting_target)))
    return wanted


@inner
def _scale(state: Ints, heap: Floats, booting: Floats, wanted: int, ready: Floats) -> None:
    """Order and stop replicas up to `wanted`; what is not ready is stopped first."""
    slots = state[SLOTS]
    while state[REPLICAS] < wanted and state[BOOTS] < len(booting):
        booting[state[BOOTS]] = ready[state[STARTED] % len(ready)]
        state[BOOTS] += 1
        state[STARTED] += 1
        state[REPLICAS] += 1
    while state[REPLICAS] > wanted:
        state[REPLICAS] -= 1
        if state[BOOTS] > 0:
            state[BOOTS] -= 1
        else:
            for _slot in range(slots):
                state[SIZE] = _pop(heap, state[SIZE])


@inner
def _boot(state: Ints, heap: Floats, booting: Floats, until: float) -> None:
    """Let the slots of replicas in that are ready before `until`."""
    kept = 0
    for boot in range(state[BOOTS]):
        if booting[boot] < until:
            for _slot in range(state[SLOTS]):
                state[SIZE] = _push(heap, state[SIZE], booting[boot])
        else:
            booting[kept] = booting[boot]
            kept += 1
    state[BOOTS] = kept


@inner
def _admit(
    state: Ints, heap: Floats, arrivals: Floats, services: Floats, until: float, waits: Floats
) -> None:
    """Start waiting requests in free slots, first in first out, where they start before `until`."""
    while state[HEAD] < len(arrivals) and state[SIZE] > 0:
        start = max(heap[0], arrivals[state[HEAD]])
        if start >= until:
            break
        waits[state[HEAD]] = start - arrivals[state[HEAD]]
        state[SIZE] = _push(heap, _pop(heap, state[SIZE]), start + services[state[HEAD]])
        state[HEAD] += 1


@outer
def replay_kernel(
    arrivals: Floats,
    services: Floats,
    cold_starts: Floats,
    floor: Ints,
    step_seconds: float,
    slots: int,
    rule: Ints,
    target: float,
    waiting_target: float,
) -> tuple[Floats, Ints, Ints]:
    """Return each request's wait (s), and by step the replicas held and what the rule alone asked.

    `rule`: its kind, steps of its window for going down, steps that a rate is taken over. `floor`
    is the fewest replicas by step; at least one is kept, at most 4096. `target`: requests in
    flight, or per second, a replica; `waiting_target`: waiting requests a replica, 0 none.
    """
    steps = len(floor)
    waits = np.full(len(arrivals), np.nan)
    held, asked = np.zeros(steps, np.int64), np.zeros(steps, np.int64)
    heap, booting = np.empty(slots * MAX_REPLICAS), np.empty(MAX_REPLICAS)
    state = np.zeros(6, np.int64)
    state[SLOTS], state[REPLICAS] = slots, max(1, floor[0])
    for _slot in range(slots * state[REPLICAS]):
        state[SIZE] = _push(heap, state[SIZE], 0.0)
    # The tolerance counts from what the rule itself would hold: a floor never lowers its ask.
    seen, alone = 0, state[REPLICAS]
    arrived = np.zeros(steps + 1, np.int64)
    for step in range(steps):
        now, until = step * step_seconds, (step + 1) * step_seconds
        while seen < len(arrivals) and arrivals[seen] < now:
            seen += 1
        arrived[step] = seen
        since = max(0, step - rule[2])
        rate = (seen - arrived[since]) / ((step - since) * step_seconds) if step else 0.0
        busy, waiting = _in_flight(heap, state[SIZE], now), seen - state[HEAD]
        asked[step] = _asked(rule, target, waiting_target, alone, busy, waiting, rate)
        alone = 1
        for back in range(max(0, step - rule[1]), step + 1):
            alone = max(alone, min(MAX_REPLICAS, asked[back]))
        wanted = max(alone, min(MAX_REPLICAS, floor[step]))
        _scale(state, heap, booting, wanted, now + cold_starts)
        held[step] = state[REPLICAS]
        _boot(state, heap, booting, until)
        _admit(state, heap, arrivals, services, until, waits)
    for left in range(state[HEAD], len(arrivals)):
        waits[left] = steps * step_seconds - arrivals[left]
    return waits, held, asked
