"""Boards that a configuration takes."""

from data.base.errors import UnknownGpuModelError
from data.catalogue.gpu_catalogue import GpuCatalogue
from data.records.plans import Configuration


def boards_of(configuration: Configuration, *, catalogue: GpuCatalogue) -> float:
    """Return the boards that a configuration takes.

    A MIG instance is 1/instances of one, the place beside another job half of one; a profile that
    the catalogue does not know counts as a whole board.
    """
    if configuration.boards is not None:
        return configuration.boards
    if configuration.shared_with:
        return configuration.gpu_count / 2
    if not configuration.mig_profile:
        return configuration.gpu_count
    try:
        profile = catalogue.get(configuration.gpu_model).mig_profile(configuration.mig_profile)
    except UnknownGpuModelError:
        profile = None
    return configuration.gpu_count / (profile.max_instances if profile else 1)
