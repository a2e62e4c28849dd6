"""What every source of facts does."""

from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from data.clock import require_utc
from data.collected import Collected


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """The time asked for, (start, end], UTC."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        require_utc("window start", self.start)
        require_utc("window end", self.end)
        if self.start > self.end:
            raise ValueError(f"window starts {self.start} after its end {self.end}")


class Collector(Protocol):
    """One source."""

    @property
    def name(self) -> str:
        """The source's name in reports."""
        ...

    def collect(self, window: Window) -> Collected:
        """Return what the source knows of the window. Errors: CollectorError."""
        ...
