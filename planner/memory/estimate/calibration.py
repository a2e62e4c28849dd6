"""Finished jobs of a family, which correct the estimate of the next one (see correction.py)."""

import math
from dataclasses import dataclass, replace

from data.base.errors import ImpossibleProblemError

_MAX_RUNS = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedRun:
    """One finished job: the bytes predicted for its fullest GPU, and the bytes measured."""

    static_bytes: float
    dynamic_bytes: float
    measured_bytes: float

    def __post_init__(self) -> None:
        for name in ("static_bytes", "dynamic_bytes", "measured_bytes"):
            value = getattr(self, name)
            if not math.isfinite(value) or value < 0 or (name == "measured_bytes" and value == 0):
                raise ImpossibleProblemError(
                    f"a finished run with {name} = {value}", "give measured sizes in bytes"
                )
        if self.static_bytes + self.dynamic_bytes <= 0:
            raise ImpossibleProblemError(
                "a finished run with an estimate of 0 bytes", "give the estimate of the same job"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """The finished runs of one family. Stored as it stands, with its number of samples."""

    family: str
    runs: tuple[FinishedRun, ...] = ()

    @property
    def sample_count(self) -> int:
        """The number of finished runs."""
        return len(self.runs)

    def with_run(self, run: FinishedRun) -> "Calibration":
        """Return the calibration with one more run; of more than 200 the oldest goes."""
        return replace(self, runs=(*self.runs, run)[-_MAX_RUNS:])


@dataclass(frozen=True, slots=True, kw_only=True)
class Correction:
    """Measured over estimated: its middle and its standard deviation, and the runs behind it."""

    ratio: float
    spread: float
    sample_count: int
