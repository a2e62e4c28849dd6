"""How many boards a configuration takes."""

from data.catalogue.gpu_catalogue import GpuCatalogue
from data.errors import UnknownGpuModelError
from data.records.plans import Configuration


def boards_of(one: Configuration, *, catalogue: GpuCatalogue) -> float:
    """Return the boards that a configuration takes.

    A MIG instance is 1/instances of one, the place beside another job half of one; a profile that
    the catalogue does not know counts as a whole board.
    """
    if one.shared_with:
        return one.gpu_count / 2
    if not one.mig_profile:
        return one.gpu_count
    try:
        profile = catalogue.get(one.gpu_model).mig_profile(one.mig_profile)
    except UnknownGpuModelError:
        profile = None
    return one.gpu_count / (profile.max_instances if profile else 1)
