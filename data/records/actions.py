"""Actions of recommendations: the table that planner, pages and appliers read."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Action(StrEnum):
    """The change that a recommendation proposes."""

    FEWER_GPUS = "fewer-gpus"
    SMALLER_GPU = "smaller-gpu"
    MIG_SLICE = "mig-slice"
    POWER_CAP = "power-cap"
    RECLAIM = "reclaim"
    CO_LOCATE = "co-locate"
    OFFER_SHARES = "offer-shares"
    TAKE_SHARE = "take-share"
    SHIFT_IN_TIME = "shift-in-time"
    TIME_LIMIT = "time-limit"
    SCALE_OUT = "scale-out"
    CONSOLIDATE = "consolidate"
    MIG_LAYOUT = "mig-layout"
    ADD_GPUS = "add-gpus"
    LARGER_GPU = "larger-gpu"
    SPREAD = "spread"
    LESS_MEMORY = "less-memory"
    LOWER_MINIMUM = "lower-minimum"
    RAISE_MAXIMUM = "raise-maximum"
    SPEED_UP = "speed-up"
    MODEL_FITS = "model-fits"
    SCALE_TO_ZERO = "scale-to-zero"

    @classmethod
    def _missing_(cls, value: object) -> "Action | None":
        """Return the action of a word that records in stores still use."""
        return {"grow": cls.SCALE_OUT, "give-back": cls.FEWER_GPUS}.get(str(value))

    @property
    def spec(self) -> "ActionSpec":
        """The action's row of `ACTIONS`."""
        return ACTIONS[self]


class Risk(StrEnum):
    """The possible harm of a wrong recommendation (facts: action catalogue)."""

    LOW = "low"
    MEDIUM = "medium"
    HIGH = "high"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionSpec:
    """The fixed properties of an action.

    `deeds` name the change and its undoing, `appliers` make it; without one it is done by hand.
    """

    title: str
    deeds: tuple[str, str] = (
        "give {target} {then} instead of {now}",
        "give {target} its {now} back",
    )
    risk: Risk = Risk.MEDIUM
    appliers: tuple[str, ...] = ()
    for_memory: bool = False
    serves: bool = False  # whether it is proposed to serve a job better, not to save
    resizes: bool = False  # whether the job gets another number or kind of GPUs
    of_node: bool = False  # whether it changes the node that `Recommendation.details` name
    caps_power: bool = False  # whether it caps its boards; a cap lapses unless it is renewed
    cuts: bool = False  # whether it gives that node another layout, named in `details`
    takes_all: bool = False  # whether the job keeps no GPU, for good
    pauses: bool = False  # whether it ends by itself and needs no rollback
    bound: str = ""  # which bound it changes of the autoscaler that `details` name
    of_service: bool = False  # whether it is of how a service is run, which no plan gives
    shares: bool = False  # whether it lets jobs of one GPU model share boards
    of_program: bool = False  # whether it changes how a job's program works, which no plan does


_OBJECTS = ("kubernetes", "slurm")
"""No shift-in-time and no time-limit in Kubernetes: an object has no time at which it begins."""
_ALL_TARGETS = (*_OBJECTS, "simulated")
_NUMBERS = (*_ALL_TARGETS, "git")  # what one number of a manifest says
_OF_BOUNDS = ("kubernetes", "git")
_BOUNDS = ("scale {target} between other bounds: {change}", "scale {target} between its old bounds")

ACTIONS: Mapping[Action, ActionSpec] = {
    Action.FEWER_GPUS: ActionSpec(title="Fewer GPUs", appliers=_NUMBERS, resizes=True),
    Action.SMALLER_GPU: ActionSpec(title="Smaller GPU", appliers=_ALL_TARGETS, resizes=True),
    Action.MIG_SLICE: ActionSpec(title="MIG slice", appliers=_ALL_TARGETS, resizes=True),
    Action.POWER_CAP: ActionSpec(
        title="Power cap",
        deeds=("cap the power of {target}", "lift the power cap of {target}"),
        risk=Risk.LOW,
        appliers=("power-cap", "simulated"),
        caps_power=True,
    ),
    Action.RECLAIM: ActionSpec(
        title="Reclaim idle GPU",
        deeds=("take the idle {now} from {target}", "give {target} its {now} back"),
        risk=Risk.HIGH,
        appliers=_NUMBERS,
        takes_all=True,
    ),
    Action.CO_LOCATE: ActionSpec(
        title="Share GPUs",
        deeds=(
            "let jobs on {target} share boards: {change}",
            "give each job on {target} its own board back",
        ),
        shares=True,
    ),
    Action.OFFER_SHARES: ActionSpec(
        title="Offer shares of a node's GPUs",
        deeds=("let {target} offer {change}", "let {target} offer whole boards again"),
        appliers=_OBJECTS[:1],
        of_node=True,
        cuts=True,
    ),
    Action.TAKE_SHARE: ActionSpec(
        title="Take a share of a GPU",
        deeds=("give {target} {then}", "give {target} its {now} back"),
        appliers=(*_OBJECTS[:1], "simulated"),
        shares=True,
    ),
    Action.SHIFT_IN_TIME: ActionSpec(
        title="Cheaper or cleaner hours",
        deeds=("pause {target}", "let {target} run without the pause"),
        risk=Risk.LOW,
        appliers=("slurm",),
        pauses=True,
    ),
    Action.TIME_LIMIT: ActionSpec(
        title="Shorter time limit",
        deeds=("give {target} a {change}", "give {target} its old time limit back"),
        risk=Risk.LOW,
        appliers=("slurm",),
    ),
    Action.SCALE_OUT: ActionSpec(
        title="More GPUs before a peak",
        risk=Risk.LOW,
        appliers=_NUMBERS,
        serves=True,
        resizes=True,
    ),
    Action.CONSOLIDATE: ActionSpec(
        title="Power a node down",
        deeds=("take {target} out of use, to power it down", "put {target} back into use"),
        appliers=_OBJECTS,
        of_node=True,
    ),
    Action.MIG_LAYOUT: ActionSpec(
        title="Cut a node's GPUs",
        deeds=("cut {target} as {change}", "give {target} its old MIG layout back"),
        appliers=_OBJECTS[:1],
        of_node=True,
        cuts=True,
    ),
    Action.ADD_GPUS: ActionSpec(
        title="More GPUs needed",
        deeds=("add boards: {change}", "do without the boards: {change}"),
        risk=Risk.LOW,
    ),
    Action.LARGER_GPU: ActionSpec(
        title="Larger GPU, for memory", appliers=_OBJECTS, for_memory=True, resizes=True
    ),
    Action.SPREAD: ActionSpec(
        title="More GPUs, for memory", appliers=_OBJECTS, for_memory=True, resizes=True
    ),
    Action.LESS_MEMORY: ActionSpec(
        title="Reduce memory use",
        deeds=("let {target} take less memory", "let {target} take its old memory"),
        risk=Risk.LOW,
        for_memory=True,
    ),
    Action.LOWER_MINIMUM: ActionSpec(
        title="Lower minReplicas",
        deeds=_BOUNDS,
        appliers=_OF_BOUNDS,
        bound="minReplicas",
        of_service=True,
    ),
    Action.RAISE_MAXIMUM: ActionSpec(
        title="Raise maxReplicas",
        deeds=_BOUNDS,
        risk=Risk.LOW,
        appliers=_OF_BOUNDS,
        bound="maxReplicas",
        serves=True,
        of_service=True,
    ),
    Action.SPEED_UP: ActionSpec(
        title="Speed up the job",
        deeds=("let {target} work faster: {change}", "let {target} work as before"),
        risk=Risk.LOW,
        of_program=True,
    ),
    Action.MODEL_FITS: ActionSpec(title="Model fits a smaller GPU", of_service=True),
    Action.SCALE_TO_ZERO: ActionSpec(
        title="Scale to zero at rest",
        deeds=("start {target} on demand: {change}", "keep {target} running at rest"),
        of_service=True,
    ),
}
"""All that pages, reports, planner and appliers read of an action."""

ADVICE = frozenset(action for action, spec in ACTIONS.items() if not spec.appliers)
"""Actions that a person does by hand, in no cluster. See `Recommendation.is_advice`."""

FOR_MEMORY = frozenset(action for action, spec in ACTIONS.items() if spec.for_memory)
"""Actions that save a job from a lack of GPU memory. They cost; no plan's saving contains them."""

NOT_FOR_SAVING = FOR_MEMORY | {action for action, spec in ACTIONS.items() if spec.serves}
"""Actions to serve a job: their saving may be negative, and no limit on savings holds."""
