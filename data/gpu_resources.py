"""What Kubernetes and its GPU plugins call a GPU: every name of the vendor stands here alone."""

VENDOR = "nvidia.com/"
WHOLE_GPU = f"{VENDOR}gpu"
SHARED_GPU = f"{WHOLE_GPU}.shared"
PIECES = (f"{VENDOR}gpumem", f"{VENDOR}gpumem-percentage", f"{VENDOR}gpucores")
"""HAMi's words for a piece of a board; beside them WHOLE_GPU counts pieces."""
MIG_PREFIX = f"{VENDOR}mig-"

PRODUCT_LABEL = f"{WHOLE_GPU}.product"
COUNT_LABEL = f"{WHOLE_GPU}.count"
MEMORY_LABEL = f"{WHOLE_GPU}.memory"
SHARING_LABEL = f"{WHOLE_GPU}.sharing-strategy"
MIG_STRATEGY_LABEL = f"{VENDOR}mig.strategy"
MIG_CAPABLE_LABEL = f"{VENDOR}mig.capable"
MIG_LAYOUT_LABEL = f"{VENDOR}mig.config"
MIG_STATE_LABEL = f"{MIG_LAYOUT_LABEL}.state"
"""What the GPU operator's MIG manager obeys, and what it says of its work."""

BOARD_CLASS, INSTANCE_CLASS = "gpu.nvidia.com", "mig.nvidia.com"
"""Device classes of resource claims; the driver bears the name of the first."""

NIM_GROUP, DYNAMO_GROUP = "apps.nvidia.com", "nvidia.com"
"""API groups of the vendor's operators for inference."""


def resource_of(mig_profile: str) -> str:
    """Return the resource that counts a MIG profile's instances, or whole GPUs for ''."""
    return f"{MIG_PREFIX}{mig_profile}" if mig_profile else WHOLE_GPU


def is_of_vendor(name: object) -> bool:
    """Return whether a resource, label or taint is one of the vendor's."""
    return str(name).startswith(VENDOR)
