"""What people read instead of a recommendation's action: one title wherever one is shown."""

from collections.abc import Mapping
from types import MappingProxyType

from data.records.decisions import Action

TITLES: Mapping[Action, str] = MappingProxyType(
    {
        Action.FEWER_GPUS: "Fewer GPUs",
        Action.SMALLER_GPU: "Smaller GPU",
        Action.MIG_SLICE: "MIG slice",
        Action.POWER_CAP: "Power cap",
        Action.CO_LOCATE: "Share a board",
        Action.RECLAIM: "Reclaim idle GPU",
        Action.SHIFT_IN_TIME: "Wait for cheaper or cleaner hours",
        Action.SCALE_OUT: "More GPUs before a peak",
        Action.TIME_LIMIT: "Shorter time limit",
        Action.ADD_GPUS: "More boards needed",
        Action.CONSOLIDATE: "Power a node down",
        Action.LARGER_GPU: "Larger GPU before memory runs out",
        Action.SPREAD: "More GPUs before memory runs out",
        Action.LESS_MEMORY: "Less memory before it runs out",
    }
)
"""Every action has one. What reports and commands write for programs keeps the action itself."""


def title_of(action: Action) -> str:
    """Return the title of an action."""
    return TITLES[action]
