"""What `trimtab estimate` and the New job page answer: plans, or why one layout does not fit."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dashboard.submission.command_knobs import needs
from dashboard.submission.fleet import Fleet
from dashboard.submission.placement import HostNeed, obstacles
from data.errors import ImpossibleProblemError
from planner.memory.calibration import Calibration
from planner.memory.parameters import count_parameters
from planner.memory.training_job import Parallelism, Sharding, TrainingJob
from planner.memory_predictor import MemoryEstimate, predict_peak, refusal
from planner.training_plans import FIT_SHARE, GpuType, TrainingPlan, fit_bound
from planner.training_time import hours_range

GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """One spread of a job on one GPU type: its estimate, and why it does not fit, '' if it does."""

    gpu_type: str
    job: TrainingJob
    estimate: MemoryEstimate
    refusal: str


def chosen_types(types: Sequence[GpuType], wanted: Sequence[str]) -> tuple[GpuType, ...]:
    """Give the types that were asked for, all when none was. Errors: ImpossibleProblemError.

    A name may be the catalogue's or its beginning, in any case: h100 names every H100.
    """
    if not wanted:
        return tuple(types)
    found = []
    for name in wanted:
        own = [one for one in types if one.name.casefold().startswith(name.strip().casefold())]
        if not name.strip() or not own:
            raise ImpossibleProblemError(
                f"no GPU type on offer is called {name[:40]!r}",
                f"Known here: {', '.join(one.name for one in types)}.",
            )
        found += own
    return tuple(dict.fromkeys(found))


def layouts(
    job: TrainingJob,
    types: Sequence[GpuType],
    *,
    global_batch: int,
    degrees: Mapping[str, int],
    calibration: Calibration | None = None,
) -> tuple[Layout, ...]:
    """Give the estimate of one fixed spread on every type, sharded over its data ranks or not.

    Errors: ImpossibleProblemError for a spread that no framework can run, such as heads that the
    tensor-parallel GPUs do not divide, or a batch that the data ranks do not divide.
    """
    spread = Parallelism(
        data=degrees.get("data", 1),
        tensor=degrees.get("tensor", 1),
        pipeline=degrees.get("pipeline", 1),
        sequence=degrees.get("tensor", 1) > 1,
    )
    micro_batch = job.micro_batch or 1
    if global_batch % (micro_batch * spread.data):
        raise ImpossibleProblemError(
            f"a batch of {global_batch} over {spread.data} data-parallel ranks "
            f"with a micro-batch of {micro_batch}",
            f"Choose a batch that {micro_batch * spread.data} divides.",
        )
    found = []
    for gpu in types:
        for sharding in _shardings(spread):
            placed = replace(
                job,
                parallelism=replace(spread, sharding=sharding),
                micro_batch=micro_batch,
                gradient_accumulation=global_batch // (micro_batch * spread.data),
                gpu_memory_bytes=gpu.memory_bytes,
            )
            estimate = predict_peak(placed, calibration=calibration)
            found.append(
                Layout(
                    gpu_type=gpu.name,
                    job=placed,
                    estimate=estimate,
                    refusal=refusal(estimate, gpu.memory_bytes)
                    or _tight(estimate, gpu.memory_bytes),
                )
            )
    return tuple(found)


def _shardings(spread: Parallelism) -> Iterator[Sharding]:
    yield Sharding.NONE
    if spread.data > 1:
        yield Sharding.ZERO1
        if spread.pipeline == 1:
            yield Sharding.FSDP


def _tight(estimate: MemoryEstimate, memory_bytes: float) -> str:
    """Give why a GPU of that memory is not sure to suffice, '' when it is."""
    bound = fit_bound(estimate)
    if bound <= memory_bytes:
        return ""
    return (
        f"may run out of memory: {FIT_SHARE:.0%} of such runs stay below {bound / GIB:.1f} GiB, "
        f"the GPU has {memory_bytes / GIB:.1f} GiB"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedPlan:
    """A plan as it is listed. `obstacle` says why no nodes could hold it, '' if some could."""

    plan: TrainingPlan
    obstacle: str = ""

    @property
    def remark(self) -> str:
        """Why the plan cannot be submitted, or may run out of memory; '' when it is sound."""
        return self.obstacle or _tight(self.plan.estimate, self.plan.job.gpu_memory_bytes or 0.0)


def offered(
    plans: Sequence[TrainingPlan], fleet: Fleet | None, host: HostNeed | None = None
) -> tuple[OfferedPlan, ...]:
    """Give plans in the order in which they are shown: those that can be submitted come first.

    What fits surely comes before what may not, and what no nodes of the fleet hold comes last.
    """
    found = [""] * len(plans) if fleet is None else obstacles(plans, fleet, host)
    rows = [OfferedPlan(plan=plan, obstacle=text) for plan, text in zip(plans, found, strict=True)]
    return tuple(sorted(rows, key=lambda row: (bool(row.obstacle), not row.plan.has_room)))


def plan_row(shown: OfferedPlan, *, currency: str, tokens: float | None = None) -> dict[str, Any]:
    """Give a plan as the command line and the page show it; memory in GiB per GPU.

    `told` are the values that a command must name for the plan to be submitted, where its
    framework does not do them unasked.
    """
    plan = shown.plan
    row = _spread_row(plan.gpu_type, plan.job, plan.estimate)
    row |= {
        "speed_per_gpu": round(plan.speed_per_gpu, 3),
        f"cost_{currency.lower()}_per_work": round(plan.cost, 3),
        "speed_is": "measured" if plan.measured else "prior",
    }
    if tokens is not None:
        low, high = hours_range(plan, tokens)
        row |= {"hours_low": round(low, 2), "hours_high": round(high, 2)}
    return row | {"told": " ".join(map(str, needs(plan.job))), "remark": shown.remark}


def layout_row(one: Layout) -> dict[str, Any]:
    """Give a fixed layout as a row, with why it does not fit."""
    row = _spread_row(one.gpu_type, one.job, one.estimate)
    return row | {"fits": not one.refusal, "why_not": one.refusal}


def _spread_row(gpu_type: str, job: TrainingJob, estimate: MemoryEstimate) -> dict[str, Any]:
    spread = job.parallelism
    return {
        "gpu": gpu_type,
        "gpus": spread.gpus,
        "data": spread.data,
        "tensor": spread.tensor,
        "pipeline": spread.pipeline,
        "sharding": str(spread.sharding),
        "micro_batch": job.micro_batch,
        "accumulation": job.gradient_accumulation,
        "recompute": str(job.recompute or "none"),
        "p50_gib": round(estimate.p50_bytes / GIB, 2),
        "p90_gib": round(fit_bound(estimate) / GIB, 2),
        "p99_gib": round(estimate.p99_bytes / GIB, 2),
        "memory_gib": round((job.gpu_memory_bytes or 0) / GIB, 1),
        "binding_event": estimate.binding_event,
        "tier": str(estimate.tier),
    }


def breakdown_rows(estimate: MemoryEstimate) -> list[dict[str, Any]]:
    """Give what the peak is made of at its binding event, then what the allocator and CUDA add."""
    rows = [{"part": name, "gib": round(size / GIB, 3)} for name, size in estimate.breakdown]
    reserved = estimate.reserved_bytes - estimate.allocated_bytes
    outside = estimate.nvml_bytes - estimate.reserved_bytes
    return [
        *rows,
        {"part": "kept by the allocator", "gib": round(max(0.0, reserved) / GIB, 3)},
        {"part": "CUDA context and NCCL", "gib": round(max(0.0, outside) / GIB, 3)},
    ]


def estimate_document(estimate: MemoryEstimate) -> dict[str, Any]:
    """Give an estimate for programs: bytes, breakdown, and what was missing or assumed."""
    return {
        "p50_bytes": estimate.p50_bytes,
        "p99_bytes": estimate.p99_bytes,
        "allocated_bytes": estimate.allocated_bytes,
        "reserved_bytes": estimate.reserved_bytes,
        "context_bytes": estimate.context_bytes,
        "breakdown": dict(estimate.breakdown),
        "binding_event": estimate.binding_event,
        "binding_stage": estimate.binding_stage,
        "tier": str(estimate.tier),
        "missing": list(estimate.missing),
        "assumed": list(estimate.assumed),
        "notes": list(estimate.notes),
        "sample_count": estimate.sample_count,
    }


def model_line(job: TrainingJob) -> str:
    """Name the model with its exact parameters."""
    return f"{job.shape.name}: {count_parameters(job.shape).total:,} parameters"
