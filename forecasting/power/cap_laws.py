"""The laws of power caps, learned from a fleet's own readings."""

from collections.abc import Iterable
from dataclasses import replace

from data.catalogue.gpu_catalogue import CapLaw, GpuCatalogue
from forecasting.power.model import PowerModel


def learned_cap_laws(models: Iterable[PowerModel], catalogue: GpuCatalogue) -> dict[str, CapLaw]:
    """Return by GPU model its published law with the reach of this fleet's boards.

    Only readings under a lowered cap tell at which share of a cap boards settle; models without
    keep the published law and are left out. None tell how much longer work takes: the slowdown
    stays that of the generation. Of several signals the one last in order counts.
    """
    return {
        model.gpu_model: replace(entry.cap_law, reach=model.lowered_cap_reach)
        for model in models
        if model.lowered_cap_reach is not None
        and (entry := catalogue.find(model.gpu_model)) is not None
    }
