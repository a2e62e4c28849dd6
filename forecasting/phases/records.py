"""Records of the phases of a training job: segments, recurrence, and what is unknown."""

from dataclasses import dataclass
from enum import StrEnum


class Signal(StrEnum):
    """The quantity that the phases were read from: W, effective GPUs (utilization x GPUs), MiB."""

    POWER = "power"
    ACTIVITY = "activity"
    MEMORY = "memory"


class PhaseKind(StrEnum):
    """The activity of a job in a segment.

    A dip between two stretches of work is an evaluation or a checkpoint: power alone cannot tell
    them apart, so they share one name.
    """

    WARM_UP = "warm-up"
    STEADY = "steady"
    DIP = "evaluation-or-checkpoint"
    SPIKE = "spike"
    IDLE = "idle"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseSegment:
    """Samples [start, end) of one kind; `level` is their median, None where nothing is known."""

    start: int
    end: int
    kind: PhaseKind
    level: float | None

    def __post_init__(self) -> None:
        if not 0 <= self.start < self.end:
            raise ValueError(f"segment [{self.start}, {self.end}) of {self.kind} holds no sample")
        if (self.level is None) != (self.kind is PhaseKind.UNKNOWN):
            raise ValueError(f"segment at {self.start}: {self.kind} with level {self.level}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Recurrence:
    """The period in seconds of a job's dips, or the reason why it is unknown.

    `seconds` is None unless two measures agree. `phase_seconds` is when a dip begins, counted from
    the series' first sample, modulo `seconds`.
    """

    seconds: float | None
    phase_seconds: float | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """The phases of one job in one series of `samples` readings every `step_seconds`.

    `segments` cover every sample once, in order. `plateau` is in the signal's unit, None when no
    sample is known. `epoch` is the recurrence of dips: an epoch, or an evaluation or checkpoint
    interval. `notes` say what was assumed and what cannot be seen.
    """

    segments: tuple[PhaseSegment, ...]
    samples: int
    step_seconds: float
    signal: Signal
    plateau: float | None
    epoch: Recurrence
    notes: tuple[str, ...]

    def __post_init__(self) -> None:
        edges = [0, *(segment.end for segment in self.segments)]
        if [segment.start for segment in self.segments] != edges[:-1] or edges[-1] != self.samples:
            raise ValueError(f"{len(self.segments)} segments do not cover {self.samples} samples")
