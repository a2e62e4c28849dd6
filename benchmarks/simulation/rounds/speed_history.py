"""Measured speeds of an application's jobs, pooled into one fit for all of them."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace

from benchmarks.simulation.rounds.goodput import GoodputModel, step_seconds
from benchmarks.simulation.rounds.pooled_fit import Step, StepParameters, pooled_step_parameters

MAX_STEPS = 48
"""Steps kept of an application on a GPU type: the newest ones, so that old ones age out."""

_PER_OCTAVE = 2
_NEWS = 0.05
"""A step that the fit foresees to this share teaches nothing."""


@dataclass(slots=True)
class _PooledSteps:
    """Steps of one application on one GPU type by (nodes, GPUs, octave of batch), oldest first."""

    model: GoodputModel
    steps: dict[tuple[int, int, int], Step] = field(default_factory=dict)
    fitted: StepParameters | None = None

    def learn(self, model: GoodputModel, nodes: int, gpus: int, local_batch: float) -> None:
        """Take the step that a job measured last off its model, which fits that step best."""
        self.model = model
        seconds = step_seconds(model.step, nodes, gpus, local_batch)
        if not 0 < seconds < math.inf:
            return
        computing = model.step[0] + model.step[1] * local_batch
        key = (nodes, gpus, round(_PER_OCTAVE * math.log2(max(local_batch, 1.0))))
        self.steps.pop(key, None)
        self.steps[key] = (nodes, gpus, local_batch, seconds, computing)
        if len(self.steps) > MAX_STEPS:
            del self.steps[next(iter(self.steps))]
        predicted = self.fitted and step_seconds(self.fitted, nodes, gpus, local_batch)
        if predicted is None or abs(math.log(predicted / seconds)) > _NEWS:
            self.fitted = pooled_step_parameters(self.steps.values())


class SpeedHistory:
    """One fit of step times for every application and GPU type, of the steps of all its jobs.

    A model fitted to few sizes takes larger ones to scale perfectly (Pollux, section 4.1), so each
    new job would try them in vain. Jobs of one application share the step times, not the noise; a
    job that has shown none yet is taken to begin as the last one began.
    """

    def __init__(self) -> None:
        self._pools: dict[tuple[str, str], _PooledSteps] = {}
        self._models: dict[str, dict[str, GoodputModel]] = {}
        self._first_noise: dict[str, tuple[float, float]] = {}
        self._max_gpus: dict[str, int] = {}

    def forget_finished(self, active: Collection[str]) -> None:
        """Drop the state of jobs that have ended; the fits learned from them stay."""
        for job in [name for name in self._models if name not in active]:
            del self._models[job]

    def learn(
        self,
        job: str,
        application: str,
        models: Mapping[str, GoodputModel],
        present: tuple[str, int, int] | None,
    ) -> None:
        """Learn of a job by its models by GPU type and the (GPU type, nodes, GPUs) it ran on.

        A model that is the one of the round before says that nothing was measured since.
        """
        if not models:
            return
        if job not in self._models:
            self._first_noise[application] = next(iter(models.values())).noise
        models_by_type = self._models.setdefault(job, {})
        for gpu_type, model in models.items():
            before = models_by_type.get(gpu_type)
            models_by_type[gpu_type] = model
            changed = before is None or before.step != model.step
            if changed and present is not None and present[0] == gpu_type:
                pool = self._pools.setdefault((application, gpu_type), _PooledSteps(model))
                pool.learn(model, *present[1:], _tried(before, model, *present[1:]))

    def models(
        self, application: str, local: Mapping[str, GoodputModel], gpu_types: tuple[str, ...]
    ) -> dict[str, GoodputModel]:
        """Return the best model at hand by GPU type: the pooled one, else the job's own."""
        models = dict(local)
        first = next(iter(local.values()), None)
        largest = max((model.largest_batch for model in local.values()), default=0.0)
        for gpu_type in gpu_types:
            pool = self._pools.get((application, gpu_type))
            if pool is None:
                continue
            model = local.get(gpu_type, pool.model)
            models[gpu_type] = replace(
                model,
                step=pool.fitted or model.step,
                noise=self._first_noise[application] if first is None else first.noise,
                largest_batch=max(largest, model.initial_batch) if largest else model.largest_batch,
            )
        return models

    def max_gpus(self, application: str, stated: int) -> int:
        """Return the largest size of a job: that of its siblings, twice the GPUs they ran on.

        `stated` is what the job itself may take.
        """
        largest = max(stated, self._max_gpus.get(application, 0))
        self._max_gpus[application] = largest
        return largest


def _tried(before: GoodputModel | None, model: GoodputModel, nodes: int, gpus: int) -> float:
    """Return the local batch that led to a model: the best by the one before, or the smallest."""
    least = max(model.initial_batch / gpus, model.least_local_batch)
    local = least if before is None else before.best(nodes, gpus)[1]
    return min(max(local, model.least_local_batch), model.largest_local_batch)
