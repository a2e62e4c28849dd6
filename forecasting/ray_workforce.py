"""Things kept open on a Ray cluster (extra `ray`) and asked many times, answers in order.

A worker opens its share of them once. Ray starts a worker that died again, opens its share again
and repeats what it was asked; what Ray gives up is opened and answered here. So a failing cluster
costs time and no results, as long as an answer depends on the thing and the argument alone.

Things, arguments and answers travel as bytes of a pickle: arrays that Ray itself unpacks cannot be
written to, and compiled functions would be compiled a second time for these.
"""

import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from forecasting.ray_pool import connected

_RESTARTS = 3


class _Worker:
    """One worker of the cluster: opens its things by number and answers about them."""

    def __init__(self, make: Callable[[Any], Any], numbers: Sequence[int], *items: bytes) -> None:
        self._opened = {
            number: make(_unpacked(item)) for number, item in zip(numbers, items, strict=True)
        }

    def answers(self, function: Callable[[Any, Any], Any], arguments: dict[int, bytes]) -> bytes:
        """Give the packed answers to arguments by number of the thing."""
        return _packed(
            {
                number: function(self._opened[number], _unpacked(argument))
                for number, argument in arguments.items()
            }
        )


class _OnRay:
    """Opened things by the worker that has them."""

    def __init__(
        self, ray: Any, make: Callable[[Any], Any], items: Sequence[Any], weights: Sequence[float]
    ) -> None:
        self._ray, self._make, self._items = ray, make, items
        self._shares = shared_out(weights, int(ray.cluster_resources().get("CPU", 1)))
        worker = ray.remote(max_restarts=_RESTARTS, max_task_retries=_RESTARTS)(_Worker)
        # Held here as long as the workers: one that starts again opens its things from these.
        self._packed = [ray.put(_packed(item)) for item in items]
        self._workers = [
            worker.remote(make, share, *(self._packed[number] for number in share))
            for share in self._shares
        ]
        self._here: dict[int, Any] = {}

    @property
    def at_once(self) -> int:
        """Give how many workers there are."""
        return len(self._workers)

    def each(self, function: Callable[[Any, Any], Any], arguments: Sequence[Any]) -> list[Any]:
        """Give function(thing, argument) of every thing, in order."""
        waiting = [
            worker.answers.remote(
                function, {number: _packed(arguments[number]) for number in share}
            )
            for worker, share in zip(self._workers, self._shares, strict=True)
        ]
        found: dict[int, Any] = {}
        for share, answer in zip(self._shares, waiting, strict=True):
            try:
                found |= _unpacked(self._ray.get(answer))
            except self._ray.exceptions.RayError:
                for number in share:
                    found[number] = function(self._opened_here(number), arguments[number])
        return [found[number] for number in range(len(self._items))]

    def _opened_here(self, number: int) -> Any:
        if number not in self._here:
            self._here[number] = self._make(self._items[number])
        return self._here[number]


class RayWorkforce:
    """Workers of the cluster at `address`; functions have to be named ones of modules.

    Errors: SettingsError when Ray is not installed or nobody answers at the address.
    """

    def __init__(self, address: str) -> None:
        self._address = address

    @contextmanager
    def opened(
        self, make: Callable[[Any], Any], items: Sequence[Any], weights: Sequence[float]
    ) -> Iterator[_OnRay]:
        """Give make(item) of every item, kept by workers that share them out by weight."""
        ray = connected(self._address)
        try:
            yield _OnRay(ray, make, items, weights)
        finally:
            ray.shutdown()


def shared_out(weights: Sequence[float], workers: int) -> list[list[int]]:
    """Give the numbers of each worker's things: the heaviest first to who has least."""
    count = max(1, min(workers, len(weights)))
    shares: list[list[int]] = [[] for _ in range(count)]
    load = [0.0] * count
    for number in sorted(range(len(weights)), key=lambda one: -weights[one]):
        least = load.index(min(load))
        shares[least].append(number)
        load[least] += weights[number]
    return [sorted(share) for share in shares]


def _packed(value: Any) -> bytes:
    return pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)


def _unpacked(packed: bytes) -> Any:
    return pickle.loads(packed)  # noqa: S301 - made by _packed on a machine of the same cluster
