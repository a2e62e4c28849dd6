"""Memory that the caching allocator reserves and NVML shows, from the size of tensors."""

from dataclasses import dataclass

from planner.memory.step.assumptions import Recipe
from planner.memory.step.step_events import CACHE, LOGITS, StepEvent
from planner.memory.step.training_job import Recompute

CAPACITY_MARGIN_BYTES = 0.9 * 2**30
"""The allocator frees its cache before it gives up, so reserved ends this far below a full card."""

EXPANDABLE_FACTOR = 1.03


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakBytes:
    """Peak bytes of one GPU as torch allocates, as torch reserves, and as NVML reports.

    `binding` is the event at which most is allocated.
    """

    binding: StepEvent
    allocated: float
    reserved: float
    nvml: float


def _reserved_bytes(
    recipe: Recipe, event: StepEvent, static_bytes: float, dynamic_bytes: float
) -> float:
    """Return the bytes reserved for an event whose parts add up to these bytes.

    With batches of one length blocks are used again, but where layers are recomputed their small
    blocks are cut from large ones of logits, which do not serve the next logits (measured,
    benchmarks/measured/training_memory_h200.json). With varying lengths the large blocks of
    logits cached for typical batches do not serve the longest one, and both stay reserved unless
    the cache is emptied in between. A key-value cache is one block of its own size.
    """
    traits = recipe.traits
    cache = sum([size for name, size in event.static if name == CACHE])
    static = traits.reserved_static * (static_bytes - cache) + cache
    if recipe.job.expandable_segments:
        return static + EXPANDABLE_FACTOR * dynamic_bytes
    logits = sum([size for name, size in event.dynamic if name == LOGITS])
    if not recipe.length_varies:
        extra = traits.reserved_logits if recipe.recompute is Recompute.FULL else 0.0
        return static + traits.reserved_fixed * dynamic_bytes + extra * logits
    typical = min(recipe.job.typical_length or recipe.sequence_length, recipe.sequence_length)
    share = 0.0 if recipe.job.cache_emptied else traits.reserved_typical
    cached = share * logits * typical / recipe.sequence_length
    return static + traits.reserved_longest * dynamic_bytes + cached


def outside_allocator(recipe: Recipe) -> float:
    """Return the bytes of CUDA context, libraries and NCCL, which torch does not count."""
    traits = recipe.traits
    several = recipe.job.parallelism.gpus > 1 and not recipe.job.parallelism.sequential
    return traits.context_bytes + (traits.network_bytes if several else 0.0)


def figures(recipe: Recipe, events: list[StepEvent]) -> PeakBytes:
    """Return the three figures of a step; a full card caps the reserved one, not the allocated."""
    sizes = [(event, event.static_bytes, event.dynamic_bytes) for event in events]
    totals = [static + dynamic for _, static, dynamic in sizes]
    allocated = max(totals)
    reserved = max([_reserved_bytes(recipe, *size) for size in sizes])
    outside = outside_allocator(recipe)
    capacity = recipe.job.gpu_memory_bytes
    if capacity is not None:
        reserved = max(allocated, min(reserved, capacity - CAPACITY_MARGIN_BYTES))
    binding = events[totals.index(allocated)]
    return PeakBytes(
        binding=binding, allocated=allocated, reserved=reserved, nvml=reserved + outside
    )
