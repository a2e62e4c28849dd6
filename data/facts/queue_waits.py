"""Expected waits of jobs in their scheduler's queue, and the jobs before them."""

from dataclasses import dataclass

from data.base.units import SECONDS_PER_HOUR

_SECONDS_PER_MINUTE = 60
_MIN_LONGER = 3
HELD_BACK = (
    "JobHeld", "JobHold", "Dependency", "BeginTime", "BadConstraints", "Partition", "Invalid",
    "Reservation", "AccountNotAllowed", "QOSNotAllowed", "QOSMin", "Cleaning", "DeadLine",
)  # fmt: skip
"""Beginnings of Slurm's reasons of jobs that start neither for room nor for a limit set free."""
NOT_IN_LINE = (
    *HELD_BACK, "JobArrayTaskLimit", "ReqNodeNotAvail", "NodeDown", "BurstBuffer", "FedJobLock",
)  # fmt: skip
"""And of those that wait for a task of their array, for nodes that take no jobs, or for files."""
EXPECTED_START, PRIORITY = "expected_start_at", "priority"
"""The facts of a waiting job that hold its scheduler's own expected start, and its priority."""
_LIMITED = ("Assoc", "QOS", "Max", "AccountingPolicy", "Licenses")
"""Of those that wait for a limit of an association or a QOS, or for a licence.

Slurm's documentation lists all under Job Reason Codes.
"""


def is_waiting_for_boards(reason: str) -> bool:
    """Return whether more boards could start a job that waits for this reason of Slurm."""
    return not reason.startswith((*NOT_IN_LINE, *_LIMITED))


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueWait:
    """The forecast of one wait in s: median with an 80 % band, and the mean.

    `starts` seen in the last `days` are what it rests on; without any nothing is known of it. Of a
    job that has waited for `waited` s it is what is left, by starts that waited as long: three.
    `rests_on` is the basis of one that rests on no such starts.
    """

    low: float = 0.0
    median: float = 0.0
    high: float = 0.0
    mean: float = 0.0
    starts: int = 0
    waited: float = 0.0
    days: float
    rests_on: str = ""

    @property
    def known(self) -> bool:
        """Return whether there is a forecast."""
        return bool(self.rests_on) or self.starts >= (_MIN_LONGER if self.waited else 1)

    @property
    def basis(self) -> str:
        """The basis of the forecast, or that nothing is known."""
        if self.rests_on:
            return self.rests_on
        if not (self.waited or self.known):
            return f"unknown: no start was seen in the last {self.days:g} d"
        starts = f"{self.starts or 'no'} start{'s' * (self.starts != 1)}"
        if self.waited:
            starts += f" that waited {self.waited / SECONDS_PER_HOUR:.1f} h or longer"
        return f"{'from' if self.known else 'unknown:'} {starts} in the last {self.days:g} d"

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
    """A pending job's place in its queue: the jobs before it, and its further expected wait.

    Before it are those that were submitted earlier; the scheduler may see it otherwise. `wait` is
    None of a job that does not wait for room, such as one that is held.
    """

    job_id: str
    jobs_ahead: int
    gpus_ahead: float
    wait: QueueWait | None
