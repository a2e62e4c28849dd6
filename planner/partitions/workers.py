"""Workers on partitions: this process, or another pool that the caller passes.

The input of a partition is made once, next to its worker, and used many times. A call must be a
function of the partition and the argument alone, so that a lost worker can be replaced and the
call made again.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol


class Workplaces(Protocol):
    """Open partitions, in this process or another."""

    @property
    def at_once(self) -> int:
        """Return the number of partitions worked on at a time."""

    def each(self, function: Callable[[Any, Any], Any], arguments: Sequence[Any]) -> list[Any]:
        """Return function(opened partition, its argument) of every partition, in order."""


class Workforce(Protocol):
    """Opens partitions for the length of a plan."""

    def opened(
        self, make: Callable[[Any], Any], items: Sequence[Any], weights: Sequence[float]
    ) -> AbstractContextManager[Workplaces]:
        """Return make(item) of every item, kept where the work on it is done.

        Functions are named ones of modules, as they may have to travel; `weights` say how much
        work an item is beside the others.
        """


class _OpenPartitions:
    """Opened partitions of this process."""

    at_once = 1

    def __init__(self, opened: Sequence[Any]) -> None:
        self._opened = opened

    def each(self, function: Callable[[Any, Any], Any], arguments: Sequence[Any]) -> list[Any]:
        """Return function(opened partition, its argument) of every partition, in order."""
        return [
            function(entry, argument)
            for entry, argument in zip(self._opened, arguments, strict=True)
        ]


class LocalWorkforce:
    """One partition after the other in this process."""

    @contextmanager
    def opened(
        self, make: Callable[[Any], Any], items: Sequence[Any], weights: Sequence[float]
    ) -> Iterator[Workplaces]:
        """Yield make(item) of every item."""
        del weights
        yield _OpenPartitions([make(item) for item in items])
