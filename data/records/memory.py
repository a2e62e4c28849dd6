"""Forecasts of a job's GPU memory: that it will run out, or that capacity has become free."""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum


class MemoryOutlook(StrEnum):
    """The statement of a finding."""

    RUNS_OUT = "runs-out"
    ROOM = "room"


class MemoryRemedy(StrEnum):
    """Remedies before memory runs out, the mildest first."""

    SPREAD = "spread"
    SHARD = "shard"
    RECOMPUTE = "recompute"
    LARGER_GPU = "larger-gpu"
    SMALLER_MICRO_BATCH = "smaller-micro-batch"
    MOVE = "move"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryAdvice:
    """One remedy. `expected_mib` is the peak per GPU after it, None where no recipe tells it."""

    remedy: MemoryRemedy
    text: str
    expected_mib: float | None = None
    fits: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryFinding:
    """The memory forecast of one job, in MiB per GPU.

    `probability` is the least chance, 0..1, that the memory runs out within `horizon_hours`, and
    `at` the first slot in which that is likely (RUNS_OUT). `room_mib` is what stays free with 95 %
    (ROOM), from `at` on. `evidence` says what it rests on.
    """

    job_id: str
    outlook: MemoryOutlook
    gpu_model: str
    limit_mib: float
    now_mib: float
    largest_mib: float
    peak_q50_mib: float
    peak_q95_mib: float
    horizon_hours: float
    probability: float | None
    at: datetime | None
    room_mib: float
    why: str
    advice: tuple[MemoryAdvice, ...] = ()
    evidence: tuple[str, ...] = ()

    @property
    def needed_mib(self) -> float:
        """The memory that each device should offer the program, for the whole horizon."""
        return max(self.peak_q50_mib, self.peak_q95_mib)

    @property
    def held_mib(self) -> float:
        """The bound of the job's memory from `at` on, with 95 % and a margin (ROOM)."""
        return self.limit_mib - self.room_mib

    def __post_init__(self) -> None:
        if not self.limit_mib > 0:
            raise ValueError(f"limit_mib of {self.job_id} must be above 0, got {self.limit_mib}")
        if self.probability is not None and not 0 <= self.probability <= 1:
            raise ValueError(f"probability of {self.job_id} is {self.probability}")
