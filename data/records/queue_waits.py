"""How long jobs are expected to wait in their scheduler's queue, and behind whom they do."""

from dataclasses import dataclass

_SECONDS_PER_MINUTE = 60
NOT_IN_LINE = (
    "JobHeld", "Dependency", "BeginTime", "BadConstraints", "Partition", "Invalid", "Reservation",
    "AccountNotAllowed", "QOSNotAllowed", "Cleaning",
)  # fmt: skip
"""Beginnings of Slurm's reasons of jobs that start neither for room nor for a limit set free."""


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

    @property
    def basis(self) -> str:
        """What the forecast rests on, or that nothing is known."""
        if not self.known:
            return f"unknown: no start was seen in the last {self.days:g} d"
        return f"from {self.starts} start{'s' * (self.starts != 1)} in the last {self.days:g} d"

    def describe(self) -> str:
        """Return the forecast as people read it."""
        if not self.known:
            return self.basis
        low, median, high = (
            f"{value / _SECONDS_PER_MINUTE:.0f}" for value in (self.low, self.median, self.high)
        )
        return f"{median} ({low}–{high}) min, {self.basis}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceInLine:
    """Who waits before a pending job in its queue, and how much longer it is expected to wait.

    Before it are those that were submitted earlier; the scheduler may see it otherwise. `wait` is
    None of a job that does not wait for room, such as one that is held.
    """

    job_id: str
    jobs_ahead: int
    gpus_ahead: float
    wait: QueueWait | None
