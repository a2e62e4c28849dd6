"""How much work a job has left, by what jobs of its kind took and by what it has done."""

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

_LAST_PART = 30.0
"""Seconds of its last goodput that a job did between its last round and its end, on average."""

_MIN_LEFT = 0.03
_CLASS_PRIOR = 7200.0
"""Seconds of one fastest GPU that a job of an unknown kind takes at least."""


class WorkHistory:
    """Work in goodput seconds: of every running job, and totals of finished ones by application."""

    def __init__(self) -> None:
        self._totals: dict[str, list[float]] = {}
        self._median: dict[str, float] = {}
        self._work: dict[str, float] = {}
        self._last_goodput: dict[str, float] = {}
        self._application: dict[str, str] = {}
        self._used: dict[str, float] = {}

    def see(self, job: str, application: str, used_gpu_seconds: float, gpus: int) -> None:
        """Count the work of a job since the last round, at the goodput it had then."""
        before = self._used.get(job, 0.0)
        if gpus:
            spent = max(0.0, used_gpu_seconds - before) / gpus
            self._work[job] = self._work.get(job, 0.0) + spent * self._last_goodput.get(job, 0.0)
        self._application[job] = application
        self._used[job] = used_gpu_seconds

    def note_goodput(self, job: str, goodput: float) -> None:
        """Keep the goodput that the job is expected to have until the next round."""
        self._last_goodput[job] = goodput

    def forget_finished(self, active: Mapping[str, object]) -> None:
        """Take jobs that are no longer active for finished: their work is a total."""
        for job in [name for name in self._used if name not in active]:
            application = self._application.pop(job)
            work = self._work.pop(job, 0.0)
            self._used.pop(job)
            total = work + _LAST_PART * self._last_goodput.pop(job, 0.0)
            if work > 0:
                totals = self._totals.setdefault(application, [])
                totals.append(total)
                self._median[application] = float(np.median(totals))

    def remaining(
        self, jobs: Sequence[str], applications: Sequence[str], reference: Floats
    ) -> Floats:
        """Return the work left [J]; `reference` [J] is the goodput of one fastest GPU.

        Of an application with finished jobs the median total less the work done. Otherwise jobs of
        one application are taken to share a total of twice what the furthest has done.
        """
        furthest: dict[str, float] = {}
        for job, application in zip(jobs, applications, strict=True):
            furthest[application] = max(furthest.get(application, 0.0), self._work.get(job, 0.0))
        left = np.empty(len(jobs))
        for index, (job, application) in enumerate(zip(jobs, applications, strict=True)):
            done = self._work.get(job, 0.0)
            median = self._median.get(application)
            if median is not None:
                left[index] = max(median - done, _MIN_LEFT * median)
            else:
                total = max(2 * furthest[application], _CLASS_PRIOR * reference[index])
                left[index] = max(total - done, 0.0)
        return np.maximum(left, 1e-9)
