"""What is known about the phases of a training job: segments, recurrence, and what is not known."""

from dataclasses import dataclass
from enum import StrEnum


class Signal(StrEnum):
    """The quantity that the phases were read from."""

    POWER = "power"
    ACTIVITY = "activity"
    MEMORY = "memory"


UNIT_OF_SIGNAL = {Signal.POWER: "W", Signal.ACTIVITY: "GPU", Signal.MEMORY: "MiB"}
"""Activity is counted in effective GPUs: mean utilization times GPUs."""


class PhaseKind(StrEnum):
    """What a job does in a segment.

    A dip between two stretches of work is an evaluation or a checkpoint: power alone cannot tell
    them apart, so they share one name until hints (memory, writes) tell them apart.
    """

    WARM_UP = "warm-up"
    STEADY = "steady"
    DIP = "evaluation-or-checkpoint"
    EVALUATION = "evaluation"
    CHECKPOINT = "checkpoint"
    SPIKE = "spike"
    TAIL = "tail"
    IDLE = "idle"
    UNKNOWN = "unknown"


DIPS = frozenset({PhaseKind.DIP, PhaseKind.EVALUATION, PhaseKind.CHECKPOINT})


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
    """Every how many seconds a job's dips come back, or why that is unknown.

    `seconds` is None unless two measures agree. `phase_seconds` is when a dip begins, counted from
    the series' first sample, modulo `seconds`. `by_gaps_seconds` and `by_autocorrelation_seconds`
    are what each measure said, None where it said nothing.
    """

    seconds: float | None
    phase_seconds: float | None
    reason: str
    by_gaps_seconds: float | None = None
    by_autocorrelation_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Phases:
    """The phases of one job in one series of `samples` readings every `step_seconds`.

    `segments` cover every sample once, in order. `noise` and `plateau` are in `unit`, None when
    no sample is known. `epoch` is the recurrence of dips: an epoch, or an evaluation or checkpoint
    interval. `notes` say what was assumed and what cannot be seen.
    """

    segments: tuple[PhaseSegment, ...]
    samples: int
    step_seconds: float
    signal: Signal
    noise: float | None
    plateau: float | None
    epoch: Recurrence
    notes: tuple[str, ...]

    def __post_init__(self) -> None:
        edges = [0, *(segment.end for segment in self.segments)]
        if [segment.start for segment in self.segments] != edges[:-1] or edges[-1] != self.samples:
            raise ValueError(f"{len(self.segments)} segments do not cover {self.samples} samples")

    @property
    def unit(self) -> str:
        """The unit of levels and noise."""
        return UNIT_OF_SIGNAL[self.signal]

    @property
    def epoch_seconds(self) -> float | None:
        """The epoch's length, None when unknown; `epoch.reason` says why."""
        return self.epoch.seconds

    def share(self, kind: PhaseKind) -> float | None:
        """Return the share of the samples in segments of a kind, None for an empty series."""
        if not self.samples:
            return None
        return (
            sum(segment.end - segment.start for segment in self.segments if segment.kind is kind)
            / self.samples
        )
