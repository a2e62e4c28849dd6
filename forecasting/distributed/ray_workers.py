"""Items kept open on a Ray cluster (extra `ray`) over many calls, answers in order.

A worker opens its share of them once. Ray starts a worker that died again, opens its share again
and repeats what it was asked; what Ray gives up, or a lost cluster leaves behind, is opened and
answered here. So a failing cluster costs time and no results, as long as an answer depends on the
thing and the argument alone.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any

from forecasting.distributed.ray_driver import (
    END,
    RETRIES,
    Driver,
    packed,
    ray_driver,
    unpacked,
    worker_answer,
)


class _OnRay:
    """Opened items by worker."""

    def __init__(
        self,
        driver: Driver,
        make: Callable[[Any], Any],
        items: Sequence[Any],
        weights: Sequence[float],
    ) -> None:
        self._driver, self._make, self._items = driver, make, items
        self._shares = balanced_shares(weights, driver.cpus)
        self._here: dict[int, Any] = {}
        for share in self._shares:
            driver.say(packed((make, {number: items[number] for number in share})))
        driver.say(END)

    @property
    def at_once(self) -> int:
        """Return the number of workers."""
        return len(self._shares)

    def each(self, function: Callable[[Any, Any], Any], arguments: Sequence[Any]) -> list[Any]:
        """Return function(item, argument) of every item, in order."""
        for share in self._shares:
            self._driver.say(packed((function, {number: arguments[number] for number in share})))
        results: dict[int, Any] = {}
        for share in self._shares:
            answer = self._driver.hear()
            if answer is not None:
                results |= unpacked(answer)
                continue
            for number in share:
                results[number] = function(self._opened_here(number), arguments[number])
        return [results[number] for number in range(len(self._items))]

    def _opened_here(self, number: int) -> Any:
        if number not in self._here:
            self._here[number] = self._make(self._items[number])
        return self._here[number]


class RayWorkforce:
    """Workers of the cluster at `address`; functions have to be named ones of modules.

    Errors: SettingsError when Ray is not installed.
    """

    def __init__(self, address: str) -> None:
        self._address = address

    @contextmanager
    def opened(
        self, make: Callable[[Any], Any], items: Sequence[Any], weights: Sequence[float]
    ) -> Iterator[_OnRay]:
        """Yield make(item) of every item, kept by workers that share them out by weight."""
        with ray_driver(self._address, _keep_open) as driver:
            yield _OnRay(driver, make, items, weights)


def balanced_shares(weights: Sequence[float], workers: int) -> list[list[int]]:
    """Return the numbers of each worker's items: the heaviest first to the least loaded."""
    count = max(1, min(workers, len(weights)))
    shares: list[list[int]] = [[] for _ in range(count)]
    load = [0.0] * count
    for number in sorted(range(len(weights)), key=lambda entry: -weights[entry]):
        least = load.index(min(load))
        shares[least].append(number)
        load[least] += weights[number]
    return [sorted(share) for share in shares]


class _Worker:
    """One worker of the cluster: opens its items by number and answers calls on them."""

    def __init__(self, share: bytes) -> None:
        make, items = unpacked(share)
        self._opened = {number: make(item) for number, item in items.items()}

    def answers(self, request: bytes) -> bytes:
        """Return the packed answers to arguments by number of the thing."""
        function, arguments = unpacked(request)
        return packed(
            {
                number: function(self._opened[number], argument)
                for number, argument in arguments.items()
            }
        )


def _keep_open(ray: Any, line: Connection) -> None:
    """Return each share to a worker, then ask all of them once in every round."""
    worker = ray.remote(max_restarts=RETRIES, max_task_retries=RETRIES)(_Worker)
    # Held here as long as the workers: one that starts again opens its things from these.
    shares = [ray.put(share) for share in iter(line.recv_bytes, END)]
    workers = [worker.remote(share) for share in shares]
    while True:
        waiting = [entry.answers.remote(line.recv_bytes()) for entry in workers]
        for answer in waiting:
            line.send_bytes(worker_answer(ray, answer))
