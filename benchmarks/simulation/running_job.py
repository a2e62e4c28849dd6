"""A job in the simulation: its truth (progress), and what its agent has measured so far."""

from collections.abc import Mapping

import numpy as np

from benchmarks.simulation.application import Application
from benchmarks.simulation.job_view import JobView, ModelSpeed
from benchmarks.simulation.rounds.goodput import GoodputModel
from benchmarks.simulation.rounds.goodput_kernel import best_split
from benchmarks.simulation.step_fit import StepFits, StepParameters
from benchmarks.simulation.workload import SubmittedJob

_MAX_GPUS = 64


class RunningJob:
    """One job from submission to its end, advanced round by round.

    The job tunes its batch size itself, up to the application's largest, each time it starts and
    each time an epoch ends. A rigid job keeps the batch its user gave.
    """

    def __init__(
        self,
        job: SubmittedJob,
        application: Application,
        fits: StepFits,
        *,
        gpu_memory_gib: Mapping[str, float],
    ) -> None:
        self.job = job
        self._memory_of = gpu_memory_gib
        self.application = application
        self.finished_at: float | None = None
        self.started_at: float | None = None
        self.restarts: int | None = None
        self.out_of_memory = 0
        self.gpu_seconds = 0.0
        self.used_gpu_seconds = 0.0
        self.gpu_type: str | None = None
        self.placement: tuple[int, ...] = ()
        self.failed_on: set[tuple[str, int]] = set()
        self.progress = 0.0
        self._epoch = 0
        self._restarting = 0.0
        self._fits = fits
        self._profiles: dict[str, dict[tuple[int, int, int], tuple[float, float]]] = {}
        self._step: dict[str, StepParameters] = {}
        self._noise: tuple[float, float] | None = None
        self._local_batch = 0
        self._accumulated = 0

    @property
    def scaling_underway(self) -> bool:
        """Whether it is restarting."""
        return self._restarting > 0

    def hold(self, gpu_type: str | None, placement: tuple[int, ...]) -> None:
        """Start, restart or stop on these GPUs; nothing happens when they are what it holds."""
        if (gpu_type, placement) == (self.gpu_type, self.placement):
            return
        self.gpu_type, self.placement = gpu_type, placement
        if not placement:
            return
        self.restarts = 0 if self.restarts is None else self.restarts + 1
        self._restarting = self.application.restart_seconds
        self._choose_batch()

    def advance(self, now: float, seconds: float) -> None:
        """Live through the next seconds; sets `finished_at` when the job ends in them."""
        gpus = sum(self.placement)
        if not gpus:
            return
        if self.started_at is None:
            self.started_at = now
        waiting = min(self._restarting, seconds)
        self._restarting -= waiting
        left = seconds - waiting
        self.gpu_seconds += waiting * gpus
        if left > 0 and self._exhausts_memory(gpus):
            return
        while left > 0 and self.finished_at is None:
            took = self._train(left)
            left -= took
            self.gpu_seconds += took * gpus
            self.used_gpu_seconds += took * gpus
            if self._epoch >= len(self.application.curve.progress) - 1:
                self.finished_at = now + seconds - left

    def _exhausts_memory(self, gpus: int) -> bool:
        """Return whether the first step runs out of memory: then the job stops, a restart lost."""
        need = self.job.memory_gib.get(gpus)
        room = self._memory_of.get(self.gpu_type or "")
        if need is None or room is None or need <= room:
            return False
        self.out_of_memory += 1
        self.failed_on.add((self.gpu_type or "", gpus))
        self.gpu_type, self.placement = None, ()
        return True

    def _train(self, seconds: float) -> float:
        """Train to the end of the epoch or of the seconds; give the seconds it took."""
        application, curve = self.application, self.application.curve
        assert self.gpu_type is not None  # noqa: S101 - a job trains only while it holds GPUs
        gpus = sum(self.placement)
        batch = gpus * self._local_batch * (self._accumulated + 1)
        square, variance = curve.noise(batch, self._epoch)
        scale = batch / application.initial_batch
        gain = (variance + square) / (variance / scale + square)
        step, sync = application.speeds[self.gpu_type].seconds(self.placement, self._local_batch)
        self._learn(gpus, step, sync, (square, variance))
        rate = gain / (step + (step - sync) * self._accumulated) / application.slowdown
        target = curve.progress[self._epoch + 1]
        needed = (target - self.progress) / rate
        if needed > seconds:
            self.progress += rate * seconds
            self._choose_batch()
            return seconds
        self.progress = target
        self._epoch += 1
        if self._epoch < len(curve.progress) - 1:
            self._choose_batch()
        return needed

    def _learn(self, gpus: int, step: float, sync: float, noise: tuple[float, float]) -> None:
        assert self.gpu_type is not None  # noqa: S101 - see _train
        self._noise = noise
        profile = self._profiles.setdefault(self.gpu_type, {})
        key = (len(self.placement), gpus, self._local_batch)
        if key not in profile:
            profile[key] = (step, sync)
            self._step[self.gpu_type] = self._fits.parameters(profile)

    def _choose_batch(self) -> None:
        """Take the batch of best goodput by what is known, within what memory held."""
        assert self.gpu_type is not None  # noqa: S101 - called only while it holds GPUs
        application = self.application
        speed = application.speeds[self.gpu_type]
        gpus = sum(self.placement)
        largest = speed.largest_local(self.placement)
        if self.job.rigid:
            self._split(self.job.batch_size, gpus, largest)
        elif self._noise is None or self.gpu_type not in self._step:
            least = max(application.initial_batch, speed.least_local_batch * gpus)
            self._split(least, gpus, largest)
        else:
            limits = (
                application.initial_batch,
                application.largest_batch,
                speed.least_local_batch,
                largest,
            )
            _, local, accumulated = best_split(
                np.array(self._step[self.gpu_type]),
                np.array(self._noise),
                np.array(limits, dtype=np.float64),
                len(self.placement),
                gpus,
            )
            self._local_batch, self._accumulated = int(local), int(accumulated)
        count = gpus * (self._accumulated + 1)
        self._local_batch = max(1, min(self._local_batch, application.largest_batch // count))

    def _split(self, batch: int, gpus: int, largest: int) -> None:
        local = -(-batch // gpus)
        self._accumulated = -(-local // largest) - 1
        if gpus == 1 and batch > self.application.initial_batch:
            self._accumulated = max(1, self._accumulated)
        self._local_batch = -(-local // (self._accumulated + 1))

    def view(
        self,
        now: float,
        gpu_types: tuple[str, ...],
        ratios: Mapping[str, Mapping[str, float]],
        *,
        declared_batch: bool,
        told_restarts: bool,
    ) -> JobView:
        """Return what a policy sees; `declared_batch` lets models reach the largest batch size."""
        application, job = self.application, self.job
        most = {name: self._most_gpus(name) for name in gpu_types}
        return JobView(
            application=application.name,
            speedup_fn={
                name: self._speed(name, declared_batch=declared_batch) for name in gpu_types
            },
            min_replicas=dict.fromkeys(gpu_types, job.gpus if job.rigid else 0),
            max_replicas=most,
            cluster_throughput_ratios=ratios,
            creation_timestamp=job.submitted_at,
            age=now - job.submitted_at,
            attained_service=self.gpu_seconds,
            used_gpu_seconds=self.used_gpu_seconds,
            wasted_gpu_seconds=self.gpu_seconds - self.used_gpu_seconds,
            num_restarts=self.restarts or 0,
            scaling_underway=self.scaling_underway,
            restart_seconds=application.restart_seconds if told_restarts else None,
            target_num_replicas=job.gpus,
            category="rigid" if job.rigid else None,
            memory_gib=job.predicted_gib,
            gpu_memory_gib=self._memory_of,
            failed_on=frozenset(self.failed_on),
        )

    def _most_gpus(self, gpu_type: str) -> int:
        """Return twice what it has run on, or run out of memory on.

        At first the least that fits.
        """
        if self.job.rigid:
            return self.job.gpus
        tried = [key[1] for key in self._profiles.get(gpu_type, ())]
        tried += [gpus for on, gpus in self.failed_on if on == gpu_type]
        room = self._memory_of.get(gpu_type, float("inf"))
        fitting = [gpus for gpus, need in self.job.predicted_gib.items() if need <= room]
        least = min(fitting, default=1)
        speed = self.application.speeds.get(gpu_type)
        by_batch = (
            _MAX_GPUS
            if speed is None
            else self.application.largest_batch // speed.least_local_batch
        )
        return max(1, min(max(2 * max(tried, default=0), least), _MAX_GPUS, by_batch))

    def _speed(self, gpu_type: str, *, declared_batch: bool) -> ModelSpeed | None:
        if self._noise is None or gpu_type not in self._step:
            return None
        application = self.application
        speed = application.speeds[gpu_type]
        batch = application.largest_batch if declared_batch else self.job.batch_size
        return ModelSpeed(
            model=GoodputModel(
                step=self._step[gpu_type],
                noise=self._noise,
                initial_batch=application.initial_batch,
                largest_batch=max(batch, application.initial_batch),
                least_local_batch=speed.least_local_batch,
                largest_local_batch=speed.largest_local_batch,
            )
        )
