"""Many series on a Ray cluster (extra `ray`): batches go out, paths come back in order.

The cluster's machines need the same Trimtab. Ray runs a batch again whose worker died; one that
Ray gives up is done here, so a failing cluster costs time and no results.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from data.errors import SettingsError

LOCAL = "local"
"""An address that starts a cluster on this machine, for trying it out."""
_RETRIES = 3


def by_ray(
    function: Callable[[Any], list[Any]], batches: Sequence[Any], *, address: str
) -> Iterator[list[Any]]:
    """Give function(batch) for each batch, in order, worked on by the cluster at `address`.

    Errors: SettingsError when Ray is not installed or nobody answers at the address.
    """

    def answers(batch: Any) -> list[Any]:  # Ray takes functions only, no partial ones
        return function(batch)

    ray = connected(address)
    try:
        remote = ray.remote(max_retries=_RETRIES)(answers)
        waiting = [remote.remote(batch) for batch in batches]
        for batch, answer in zip(batches, waiting, strict=True):
            try:
                yield ray.get(answer)
            except ray.exceptions.RayError:
                yield function(batch)
    finally:
        ray.shutdown()


def connected(address: str) -> Any:
    """Give Ray, connected to the cluster at `address`; whoever asks shuts it down.

    Errors: SettingsError when Ray is not installed or nobody answers at the address.
    """
    try:
        import ray
    except ImportError as error:
        raise SettingsError(
            f"ray.address is {address!r}, but Ray is not installed",
            "Install Trimtab with its extra: trimtab[ray]; or leave ray.address empty.",
        ) from error
    options: dict[str, Any] = {
        "address": address,  # "local" is Ray's own word: none connects to a cluster left behind
        "log_to_driver": False,
        "configure_logging": False,
    }
    if address == LOCAL:
        options |= {"include_dashboard": False}
    try:
        ray.init(**options)
    except Exception as error:  # Ray raises bare ones when a node does not start in time
        raise SettingsError(
            f"no Ray cluster answers at ray.address {address!r}: {error}",
            "Use auto on a machine of the cluster, ray://HEAD:10001 from outside, or nothing.",
        ) from error
    return ray
