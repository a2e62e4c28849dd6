"""How long a restart takes, from the GPU time that jobs of an application held and did not use."""

from collections import deque
from collections.abc import Collection

import numpy as np

OTHER_RESTART_SECONDS = 62.0
"""Mean preemption overhead of Tiresias' jobs, as quoted by Lucid (ASPLOS 2023)."""

_KEPT = 15
_SHORTEST = 1.0
"""Seconds below which nothing was restarted: what is left of a difference of two large sums."""


class RestartHistory:
    """Seconds from GPUs given to the first step, of the newest starts of every application."""

    def __init__(self) -> None:
        self._took: dict[str, deque[float]] = {}
        self._running: dict[str, tuple[float, float]] = {}

    def forget_finished(self, active: Collection[str]) -> None:
        """Drop what is only needed of running jobs; what they taught stays."""
        for job in [name for name in self._running if name not in active]:
            del self._running[job]

    def see(
        self, job: str, application: str, wasted_gpu_seconds: float, gpus: int, *, underway: bool
    ) -> None:
        """Count what a job wasted since the last round on so many GPUs; `underway`: it still does.

        A start counts once it is over. A job without GPUs wastes nothing.
        """
        before, lost = self._running.get(job, (0.0, 0.0))
        if gpus:
            lost += max(0.0, wasted_gpu_seconds - before) / gpus
        if not underway and lost >= _SHORTEST:
            self._took.setdefault(application, deque(maxlen=_KEPT)).append(lost)
            lost = 0.0
        self._running[job] = (wasted_gpu_seconds, lost)

    def seconds(self, application: str) -> float:
        """Return the median of an application, or what was published where none was seen."""
        took = self._took.get(application)
        return float(np.median(took)) if took else OTHER_RESTART_SECONDS
