"""What jobs of an application have shown of its speed, for those that have not run as large yet."""

from collections.abc import Mapping
from dataclasses import replace

from planner.scheduling.goodput import GoodputModel


class SpeedHistory:
    """The most experienced model of every application and GPU type; experience is in GPUs.

    A model fitted to few sizes takes larger ones to scale perfectly (Pollux, section 4.1), so each
    new job would try them in vain. Jobs of one application share the step times, not the noise.
    """

    def __init__(self) -> None:
        self._best: dict[tuple[str, str], tuple[int, GoodputModel]] = {}

    def learn(self, application: str, gpu_type: str, model: GoodputModel, gpus: int) -> None:
        """Keep the model of a job that has run on so many GPUs of the type, if none knows more."""
        known = self._best.get((application, gpu_type))
        if known is None or gpus >= known[0]:
            self._best[application, gpu_type] = (gpus, model)

    def models(
        self,
        application: str,
        own: Mapping[str, tuple[int, GoodputModel]],
        gpu_types: tuple[str, ...],
    ) -> dict[str, GoodputModel]:
        """Return best model at hand by GPU type: own ones, or shared ones with the own noise."""
        found = {name: model for name, (_, model) in own.items()}
        noise = next(iter(found.values())).noise if found else None
        largest = max((model.largest_batch for model in found.values()), default=0.0)
        for name in gpu_types:
            shared = self._best.get((application, name))
            if shared is None or (name in own and own[name][0] >= shared[0]):
                continue
            model = shared[1]
            found[name] = replace(
                model,
                noise=noise or model.noise,
                largest_batch=max(largest, model.initial_batch) if largest else model.largest_batch,
            )
        return found
