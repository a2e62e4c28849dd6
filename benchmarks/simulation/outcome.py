"""What became of the jobs of a simulation, and the figures policies are compared by."""

from dataclasses import dataclass

import numpy as np

_HOUR = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedJob:
    """One job: times in s since the start, GPU-seconds held and of them not spent on training."""

    name: str
    application: str
    submitted_at: float
    started_at: float
    finished_at: float
    gpu_seconds: float
    wasted_gpu_seconds: float
    restarts: int
    out_of_memory: int

    @property
    def completion_hours(self) -> float:
        """Job completion time, JCT: from submission to the end."""
        return (self.finished_at - self.submitted_at) / _HOUR


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOutcome:
    """All jobs of a simulation, and the CPU seconds of every decision."""

    jobs: tuple[FinishedJob, ...]
    decision_seconds: tuple[float, ...]

    @property
    def mean_hours(self) -> float:
        """Mean job completion time in h."""
        return float(np.mean([job.completion_hours for job in self.jobs]))

    @property
    def p99_hours(self) -> float:
        """99th percentile of the completion times in h."""
        return float(np.percentile([job.completion_hours for job in self.jobs], 99))

    @property
    def makespan_hours(self) -> float:
        """From the first submission to the last end in h."""
        first = min(job.submitted_at for job in self.jobs)
        return (max(job.finished_at for job in self.jobs) - first) / _HOUR

    @property
    def gpu_hours(self) -> float:
        """GPU-hours held by all jobs."""
        return sum(job.gpu_seconds for job in self.jobs) / _HOUR

    @property
    def restarts_per_job(self) -> float:
        """Restarts of a job after its first start, on average."""
        return float(np.mean([job.restarts for job in self.jobs]))

    @property
    def out_of_memory(self) -> int:
        """Starts that ran out of memory."""
        return sum(job.out_of_memory for job in self.jobs)

    def decision_milliseconds(self, percentile: float) -> float:
        """Return a percentile of the decision times in ms of CPU."""
        return 1000 * float(np.percentile(self.decision_seconds, percentile))
