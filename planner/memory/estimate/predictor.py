"""MARP's front door: the peak memory of one GPU of a training job, with its parts."""

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from planner.memory.estimate.bounds import MARGIN, SHARES, Tier, bound_factor, tier_of
from planner.memory.estimate.calibration import Calibration, Correction, FinishedRun
from planner.memory.step.allocator import PeakBytes, figures, outside_allocator
from planner.memory.step.assumptions import Recipe, complete
from planner.memory.step.framework_prior import Dialects, dialects_of, quantile_index
from planner.memory.step.framework_traits import FrameworkTraits
from planner.memory.step.step_events import CACHE, Held, Parts, StepEvent, held, step_events
from planner.memory.step.training_job import TrainingJob

_GIB = 2**30

_MIN_PROBABILITY = 0.01
"""No probability nearer to 0 or 1 is told: the measured runs do not reach further."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryEstimate:
    """Peak memory of the fullest GPU of a job, in bytes.

    `allocated_bytes` is what tensors take, `reserved_bytes` what torch's allocator holds,
    `nvml_bytes` what NVML and DCGM report; `p50_bytes` is the last, `p90_bytes` to `p99_bytes`
    are its bounds: so many measured peaks lie below.
    `breakdown` lists the components at the binding event, of allocated bytes in the order of the
    step; `static_ratio` is the share of them that stays through the step. `missing` names what
    nobody stated, `assumed` what was taken instead. `sample_count` finished runs of the family
    corrected it.
    """

    p50_bytes: float
    p90_bytes: float
    p95_bytes: float
    p99_bytes: float
    allocated_bytes: float
    reserved_bytes: float
    nvml_bytes: float
    context_bytes: float
    breakdown: Parts
    binding_event: str
    binding_stage: int
    static_ratio: float
    tier: Tier
    missing: tuple[str, ...]
    assumed: tuple[str, ...]
    notes: tuple[str, ...]
    sample_count: int

    def probability_within(self, memory_bytes: float) -> float:
        """Return the probability that the peak stays within so many bytes, from 0.01 to 0.99.

        Linear in the logarithm between the bounds; below the median their mirror image.
        """
        above = memory_bytes >= self.p50_bytes
        size = max(memory_bytes, 1.0)
        factor = size / self.p50_bytes if above else self.p50_bytes / size
        bounds = (self.p50_bytes, self.p90_bytes, self.p95_bytes, self.p99_bytes)
        factors = [bound / self.p50_bytes for bound in bounds]
        for (low, begin), (high, end) in pairwise(zip((0.5, *SHARES), factors, strict=True)):
            if factor < end:
                share = low + (high - low) * math.log(factor / begin) / math.log(end / begin)
                return share if above else 1 - share
        return 1 - _MIN_PROBABILITY if above else _MIN_PROBABILITY


@dataclass(frozen=True, slots=True, kw_only=True)
class _Step:
    """A step of a job in the dialect that was taken: its binding event and its figures."""

    recipe: Recipe
    binding: StepEvent
    figures: PeakBytes


def _in_dialect(job: TrainingJob, traits: FrameworkTraits, stages: Held = ()) -> _Step:
    recipe = complete(job, traits)
    peak = figures(recipe, step_events(recipe, stages))
    return _Step(recipe=recipe, binding=peak.binding, figures=peak)


@lru_cache(maxsize=1024)
def _held(job: TrainingJob, dialects: Dialects) -> list[Held]:
    return [held(complete(job, traits)) for traits, _ in dialects]


@lru_cache(maxsize=4096)
def _step_of(job: TrainingJob) -> _Step:
    """Return the step of a job: a question of ways to train asks for some thousand of them.

    Placements and offers ask the same again with other GPUs, calibrations and raises, of which none
    changes the step.
    """
    return _expected(job, dialects_of(job))


def _expected(job: TrainingJob, dialects: Dialects) -> _Step:
    """Return the step whose tensors take the quantile of all dialects; each figure is its own."""
    if len(dialects) == 1:
        return _in_dialect(job, dialects[0][0])
    unknown = replace(job, framework="")
    of_any_batch = replace(
        unknown,
        micro_batch=None,
        gradient_accumulation=None,
        recompute=None,
        gpu_memory_bytes=None,
    )
    stages = _held(of_any_batch, dialects)
    steps = [
        _in_dialect(unknown, traits, part)
        for (traits, _), part in zip(dialects, stages, strict=True)
    ]
    weights = [weight for _, weight in dialects]

    def taken(name: str) -> int:
        return quantile_index([getattr(step.figures, name) for step in steps], weights)

    reserved, nvml = (getattr(steps[taken(name)].figures, name) for name in ("reserved", "nvml"))
    step = steps[taken("allocated")]
    return replace(step, figures=replace(step.figures, reserved=reserved, nvml=nvml))


def predict_peak(
    job: TrainingJob,
    *,
    calibration: Calibration | None = None,
    raised: float = 1.0,
    dialects: Dialects = (),
) -> MemoryEstimate:
    """Return the peak memory of the fullest GPU of a job.

    The peak is the maximum over the events of a step and over the pipeline stages that can hold
    it. `raised` multiplies it, after a run that needed more; `dialects` are taken instead of those
    of the job's framework. The bounds leave a key-value cache as it is: its bytes are counted, not
    estimated. Errors: ImpossibleProblemError for a precision, optimiser or
    quantisation not known.
    """
    step = _expected(job, dialects) if dialects else _step_of(job)
    recipe, binding, peak = step.recipe, step.binding, step.figures
    tier = tier_of(recipe)
    static_ratio = binding.static_bytes / binding.allocated_bytes
    learned = None
    if calibration is not None and calibration.sample_count:
        # numpy loads for a third of a second, and most estimates have no finished runs.
        from planner.memory.estimate.correction import correction

        learned = correction(
            calibration,
            static_bytes=peak.nvml * static_ratio,
            dynamic_bytes=peak.nvml * (1 - static_ratio),
        )
    ratio = raised * (learned.ratio if learned else 1.0)
    exact = dict(binding.static).get(CACHE, 0.0)
    open_bytes = peak.nvml - exact
    bounds = [ratio * (open_bytes * bound_factor(tier, share, learned) + exact) for share in SHARES]
    return MemoryEstimate(
        p50_bytes=peak.nvml * ratio,
        p90_bytes=bounds[0],
        p95_bytes=bounds[1],
        p99_bytes=bounds[2],
        allocated_bytes=peak.allocated * ratio,
        reserved_bytes=peak.reserved * ratio,
        nvml_bytes=peak.nvml * ratio,
        context_bytes=outside_allocator(recipe) * raised,
        breakdown=tuple(
            (name, size * ratio) for name, size in (*binding.static, *binding.dynamic) if size
        ),
        binding_event=binding.name,
        binding_stage=binding.stage,
        static_ratio=static_ratio,
        tier=tier,
        missing=recipe.missing,
        assumed=recipe.assumed,
        notes=_notes(recipe, binding, learned),
        sample_count=learned.sample_count if learned else 0,
    )


def gib(size_bytes: float) -> float:
    """Return bytes in GiB with three significant digits, as every table and text shows them."""
    return float(f"{size_bytes / _GIB:.3g}")


def finished_run(job: TrainingJob, measured_nvml_bytes: float) -> FinishedRun:
    """Return a finished job as its family's sample: its raw estimate beside the measured peak."""
    raw = predict_peak(job)
    return FinishedRun(
        static_bytes=raw.nvml_bytes * raw.static_ratio,
        dynamic_bytes=raw.nvml_bytes * (1 - raw.static_ratio),
        measured_bytes=measured_nvml_bytes,
    )


def needed_bytes(estimate: MemoryEstimate) -> float:
    """Return the memory that a GPU must have for the job to start on it: see `refusal`."""
    return estimate.allocated_bytes * MARGIN + estimate.context_bytes


def refusal(estimate: MemoryEstimate, gpu_memory_bytes: float) -> str:
    """Return the reason why a job should not start on a GPU of that size; '' when it may.

    Judged by what tensors take, with a margin, and by the context; what the allocator merely
    caches it gives back before it fails.
    """
    needed = needed_bytes(estimate)
    if needed <= gpu_memory_bytes:
        return ""
    component, size = max(estimate.breakdown, key=lambda part: part[1])
    return (
        f"needs {gib(needed):g} GiB at its {estimate.binding_event}, "
        f"the GPU has {gib(gpu_memory_bytes):g} GiB; "
        f"the largest part is {component} with {gib(size):g} GiB"
    )


def _notes(recipe: Recipe, binding: StepEvent, learned: Correction | None) -> tuple[str, ...]:
    notes = []
    if recipe.missing:
        notes.append(f"the bound is wide because these are not known: {', '.join(recipe.missing)}")
    if recipe.length_varies and not recipe.job.expandable_segments:
        notes.append("lengths vary: expandable_segments:True would lower what stays reserved")
    if binding.name == "load":
        notes.append("the model's loading binds: load it on the meta device or by rank")
    if learned:
        notes.append(f"corrected by {learned.sample_count} finished runs of the family")
    return tuple(notes)
