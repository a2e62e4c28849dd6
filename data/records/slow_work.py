"""Causes of slow jobs, by the activity and limits of their boards."""

from dataclasses import dataclass
from enum import StrEnum

from data.records.recommendations import Range


class SlowCause(StrEnum):
    """The state of a job's boards; `BUSY` is not slow, `UNKNOWN` cannot be told."""

    STARVED = "starved of input"
    SMALL_BATCH = "batch too small"
    WAITING = "waiting for other ranks"
    COMMUNICATION = "communication"
    NO_TENSOR = "tensor cores unused"
    THROTTLED = "throttled"
    BUSY = "busy"
    UNKNOWN = "unknown"

    @property
    def is_slow(self) -> bool:
        """Return whether its work could go faster."""
        return self not in (SlowCause.BUSY, SlowCause.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class SlowWork:
    """The cause of one slow job, from the slots of five minutes in which its boards are known.

    `votes` of the `known_slots` show the cause, `firm_votes` also with every threshold 10 %
    stricter. `confidence` is strong, medium or weak, '' where the cause is unknown; `doubt` is what
    else looks the same, and of an unknown cause why it is. `signals` are (name, mean) over the
    slots that show the cause. `lost_ratio` is the share of its boards' time that the cause takes
    from it; None where the boards do not tell. `remedy` is what to try, in the words of the job's
    own framework where that is known.
    """

    job_id: str
    cause: SlowCause
    boards: int
    known_slots: int
    votes: int = 0
    firm_votes: int = 0
    confidence: str = ""
    doubt: str = ""
    signals: tuple[tuple[str, float], ...] = ()
    lost_ratio: Range | None = None
    remedy: str = ""

    def describe(self) -> str:
        """Return the cause and how sure it is, in a line."""
        if self.cause is SlowCause.UNKNOWN:
            return f"unknown: {self.doubt}"
        return (
            f"{self.cause} ({self.confidence}: {self.votes} of {self.known_slots} slots of 5 min, "
            f"{self.firm_votes} also with thresholds 10 % stricter; {self.doubt})"
        )
