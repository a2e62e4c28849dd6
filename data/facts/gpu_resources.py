"""Names of GPUs in Kubernetes and its GPU plugins: every name of a vendor stands here alone."""

import csv
from collections.abc import Iterable
from fnmatch import fnmatchcase
from functools import cache, lru_cache
from importlib.resources import files

VENDOR, AMD = "nvidia.com/", "amd.com/"
WHOLE_GPU = f"{VENDOR}gpu"
AMD_GPU = f"{AMD}gpu"
BOARDS = (WHOLE_GPU, AMD_GPU)
"""Resources that count whole boards."""
SHARED_GPU = f"{WHOLE_GPU}.shared"
FRACTION_RESOURCES = (f"{VENDOR}gpumem", f"{VENDOR}gpumem-percentage", f"{VENDOR}gpucores")
"""HAMi's words for a piece of a board; beside them WHOLE_GPU counts pieces."""
PERCENTAGES = FRACTION_RESOURCES[1:]
MIG_PREFIX = f"{VENDOR}mig-"

PRODUCT_LABEL = f"{WHOLE_GPU}.product"
PRODUCT_LABELS = (PRODUCT_LABEL, f"{AMD_GPU}.product-name", f"beta.{AMD_GPU}.product-name")
"""Labels by which nodes name the model of their boards, of each vendor's own labeller."""
COUNT_LABEL = f"{WHOLE_GPU}.count"
MEMORY_LABEL = f"{WHOLE_GPU}.memory"
SHARING_LABEL = f"{WHOLE_GPU}.sharing-strategy"
MIG_STRATEGY_LABEL = f"{VENDOR}mig.strategy"
MIG_CAPABLE_LABEL = f"{VENDOR}mig.capable"
MIG_LAYOUT_LABEL = f"{VENDOR}mig.config"
MIG_STATE_LABEL = f"{MIG_LAYOUT_LABEL}.state"
"""Label that the GPU operator's MIG manager obeys, and the label of its state."""
PLUGIN_CONFIG_LABEL = f"{VENDOR}device-plugin.config"
"""Label by which the device plugin's config manager chooses a configuration for a node."""
REPLICAS_LABEL = f"{WHOLE_GPU}.replicas"

BOARD_CLASS, INSTANCE_CLASS = "gpu.nvidia.com", "mig.nvidia.com"
"""Device classes of resource claims; the driver bears the name of the first."""

NIM_GROUP, DYNAMO_GROUP = "apps.nvidia.com", "nvidia.com"
"""API groups of the vendor's operators for inference."""


RESOURCE = "resource"
"""The fact of a job that names what counts its boards, where that is not WHOLE_GPU."""


def resource_of(mig_profile: str, facts: Iterable[tuple[str, str]] = ()) -> str:
    """Return the resource that counts a MIG profile's instances, or whole GPUs for ''.

    `facts` are those of the job that asks for them.
    """
    return f"{MIG_PREFIX}{mig_profile}" if mig_profile else dict(facts).get(RESOURCE, WHOLE_GPU)


def is_of_vendor(name: object) -> bool:
    """Return whether a resource, label or taint is of a vendor whose boards are read."""
    return str(name).startswith((VENDOR, AMD))


UNREAD_SUFFIX = "not read yet"
"""End of every text that tells of accelerators which Trimtab does not read."""


@cache
def _accelerator_patterns() -> tuple[tuple[str, bool], ...]:
    table = files("data.catalogue").joinpath("accelerator_resources.csv").read_text("utf-8")
    rows = csv.DictReader(table.splitlines())
    return tuple((row["pattern"], row["counts"] == "yes") for row in rows)


@lru_cache(maxsize=4096)
def is_accelerator(name: str, *, otherwise: bool = False) -> bool:
    """Return whether a resource or a driver counts accelerators, by the first row of the table.

    `otherwise` of a name that no row fits.
    """
    folded = name.casefold()
    rows = _accelerator_patterns()
    return next((counts for pattern, counts in rows if fnmatchcase(folded, pattern)), otherwise)
