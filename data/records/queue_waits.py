"""How long a job that is started again is expected to wait in its scheduler's queue."""

from dataclasses import dataclass

_SECONDS_PER_MINUTE = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueWait:
    """The forecast of one wait in s: median with an 80 % band, and the mean.

    `starts` seen in the last `days` are what it rests on; without any nothing is known of it.
    """

    low: float = 0.0
    median: float = 0.0
    high: float = 0.0
    mean: float = 0.0
    starts: int = 0
    days: float

    @property
    def known(self) -> bool:
        """Whether there is a forecast."""
        return self.starts > 0

    def describe(self) -> str:
        """Return the forecast as people read it."""
        if not self.known:
            return f"unknown: no start was seen in the last {self.days:g} d"
        low, median, high = (
            f"{value / _SECONDS_PER_MINUTE:.0f}" for value in (self.low, self.median, self.high)
        )
        starts = f"{self.starts} start{'s' * (self.starts != 1)}"
        return f"{median} ({low}–{high}) min, from {starts} in the last {self.days:g} d"
