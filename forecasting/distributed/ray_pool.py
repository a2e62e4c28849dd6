"""Many series on a Ray cluster (extra `ray`): batches go out, paths come back in order.

The cluster's machines need the same Trimtab. Ray runs a batch again whose worker died; what Ray
gives up, or a lost cluster leaves behind, is done here. So a failing cluster costs time and no
results.
"""

from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection
from typing import Any

from forecasting.distributed.ray_driver import (
    END,
    RETRIES,
    packed,
    ray_driver,
    unpacked,
    worker_answer,
)


def by_ray(
    function: Callable[[Any], list[Any]], batches: Sequence[Any], *, address: str
) -> Iterator[list[Any]]:
    """Yield function(batch) for each batch, in order, worked on by the cluster at `address`.

    The function has to be a named one of a module, or a partial one of it.

    Errors: SettingsError when Ray is not installed.
    """
    with ray_driver(address, _hand_out) as driver:
        for batch in batches:
            driver.say(packed((function, batch)))
        driver.say(END)
        for batch in batches:
            answer = driver.hear()
            yield function(batch) if answer is None else unpacked(answer)


def _hand_out(ray: Any, line: Connection) -> None:
    """Run all batches on the cluster at once, and send the answers in order."""
    worker = ray.remote(max_retries=RETRIES)(_answer)
    waiting = [worker.remote(batch) for batch in iter(line.recv_bytes, END)]
    for answer in waiting:
        line.send_bytes(worker_answer(ray, answer))


def _answer(request: bytes) -> bytes:
    function, batch = unpacked(request)
    return packed(function(batch))
