"""MARP's front door: the peak memory of one GPU of a training job, with what it was made of."""

from dataclasses import dataclass
from enum import StrEnum

from planner.memory.allocator import figures
from planner.memory.assumptions import Recipe, complete
from planner.memory.step_events import Parts, step_events
from planner.memory.training_job import TrainingJob


class Tier(StrEnum):
    """How much of the recipe was stated: A all, B all but the length varies, C not all."""

    A = "A"
    B = "B"
    C = "C"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """Peak memory of the fullest GPU of a job, in bytes.

    `p50_bytes` and `p99_bytes` are of what torch reserves. `breakdown` lists the components at the
    binding event in the order of the step, of allocated bytes, with what the allocator adds last.
    `missing` names what nobody stated, `assumed` what was taken instead.
    """

    p50_bytes: float
    p99_bytes: float
    allocated_bytes: float
    reserved_bytes: float
    nvml_bytes: float
    breakdown: Parts
    binding_event: str
    binding_stage: int
    tier: Tier
    missing: tuple[str, ...]
    assumed: tuple[str, ...]
    notes: tuple[str, ...] = ()


BOUND_FACTORS = {Tier.A: 1.29, Tier.B: 1.39, Tier.C: 1.75}


def tier_of(recipe: Recipe) -> Tier:
    """Give the tier of a recipe."""
    if recipe.missing:
        return Tier.C
    return Tier.B if recipe.length_varies else Tier.A


def predict_peak(job: TrainingJob) -> MemoryEstimate:
    """Give the peak memory of the fullest GPU of a job."""
    recipe = complete(job)
    events = step_events(recipe)
    found = figures(recipe, events)
    binding = max(events, key=lambda event: event.allocated_bytes)
    tier = tier_of(recipe)
    parts = tuple((name, size) for name, size in (*binding.static, *binding.dynamic) if size)
    return MemoryEstimate(
        p50_bytes=found.reserved,
        p99_bytes=found.reserved * BOUND_FACTORS[tier],
        allocated_bytes=found.allocated,
        reserved_bytes=found.reserved,
        nvml_bytes=found.nvml,
        breakdown=(*parts, ("allocator", found.reserved - found.allocated)),
        binding_event=binding.name,
        binding_stage=binding.stage,
        tier=tier,
        missing=recipe.missing,
        assumed=recipe.assumed,
    )
