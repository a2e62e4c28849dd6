"""Answer of `trimtab estimate` and the New job page: plans, or why one layout does not fit."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, NotRequired

from typing_extensions import TypedDict

from dashboard.submission.job.command_options import needs
from dashboard.submission.job.fleet import FLEET_UNKNOWN, FleetRoom, RoomAnswer, SubmissionFleet
from data.base.errors import ImpossibleProblemError
from data.catalogue.gpu_catalogue import CURRENCY, load_gpu_catalogue
from planner.memory.estimate.bounds import FIT_PROBABILITY, USABLE_RATIO
from planner.memory.estimate.calibration import Calibration
from planner.memory.estimate.predictor import MemoryEstimate, gib, refusal
from planner.memory.estimate.training_plans import GpuType, TrainingPlan, unbounded_peak
from planner.memory.estimate.training_time import hours_range
from planner.memory.models.parameters import count_parameters
from planner.memory.step.training_job import Parallelism, Sharding, TrainingJob

if TYPE_CHECKING:
    from dashboard.submission.job.placement import HostNeed

_GIB = 2**30
_OPTIONAL_DEGREES = ("context", "expert")
"""Degrees that a row names where they are above 1."""

LIMIT = f"{100 * FIT_PROBABILITY:g} %"
"""The probability from which on a plan is offered, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatedLayout:
    """One spread of a job on one GPU type: its estimate, and why it does not fit, '' if it does."""

    gpu_type: str
    job: TrainingJob
    estimate: MemoryEstimate
    refusal: str


def chosen_types(types: Sequence[GpuType], names: Sequence[str]) -> tuple[GpuType, ...]:
    """Return the types that were asked for, else those that run CUDA, or all if none does.

    A name may be the catalogue's or its beginning, in any case: h100 names every H100, h20 no H200.
    Few programs run on boards of two vendors.

    Errors: ImpossibleProblemError.
    """
    if not names:
        catalogue = load_gpu_catalogue()
        models = [(gpu_type, catalogue.find(gpu_type.name)) for gpu_type in types]
        usual = (gpu_type for gpu_type, model in models if model is None or model.runs_cuda)
        return tuple(usual) or tuple(types)
    matches = []
    for name in names:
        same = [gpu_type for gpu_type in types if _is_named(gpu_type.name, name.strip())]
        if not same:
            raise ImpossibleProblemError(
                f"no GPU type on offer is called {name[:40]!r}",
                f"Known here: {', '.join(gpu_type.name for gpu_type in types)}.",
            )
        matches += same
    return tuple(dict.fromkeys(matches))


def _is_named(model: str, name_part: str) -> bool:
    """Return whether a name is a model's or its beginning.

    What stands before the first hyphen tells one board from another, so it must be whole.
    """
    name, start = model.casefold(), name_part.casefold()
    board = name.partition("-")[0]
    is_exact = load_gpu_catalogue().recognise(name_part) == model
    return is_exact or (name.startswith(start) and len(start) >= len(board))


def layouts(
    job: TrainingJob,
    types: Sequence[GpuType],
    *,
    global_batch: int,
    degrees: Mapping[str, int],
    sharding: Sharding | None = None,
    calibration: Calibration | None = None,
) -> tuple[EstimatedLayout, ...]:
    """Return the estimate of one fixed spread on every type, sharded over its data ranks or not.

    With `sharding` only that one.

    Errors: ImpossibleProblemError for a spread that no framework can run, such as heads that the
    tensor-parallel GPUs do not divide, or a batch that the data ranks do not divide.
    """
    fixed: dict[str, Any] = dict(degrees)
    spread = Parallelism(**fixed, sequence=degrees.get("tensor", 1) > 1)
    micro_batch = job.micro_batch or 1
    if global_batch % (micro_batch * spread.data):
        raise ImpossibleProblemError(
            f"a batch of {global_batch} over {spread.data} data-parallel ranks "
            f"with a micro-batch of {micro_batch}",
            f"Choose a batch that {micro_batch * spread.data} divides.",
        )
    rows = []
    for gpu in types:
        for entry in (sharding,) if sharding else _shardings(spread):
            placed = replace(
                job,
                parallelism=replace(spread, sharding=entry),
                micro_batch=micro_batch,
                gradient_accumulation=global_batch // (micro_batch * spread.data),
            )
            rows.append(layout_on(placed, gpu, calibration=calibration))
    return tuple(rows)


def layout_on(
    job: TrainingJob, gpu: GpuType, *, calibration: Calibration | None = None
) -> EstimatedLayout:
    """Return the estimate of a job that is spread already on one GPU type."""
    placed = replace(job, gpu_memory_bytes=gpu.memory_bytes)
    estimate = unbounded_peak(placed, calibration=calibration)
    return EstimatedLayout(
        gpu_type=gpu.name,
        job=placed,
        estimate=estimate,
        refusal=refusal(estimate, gpu.memory_bytes) or unlikely_reason(placed, estimate),
    )


def _shardings(spread: Parallelism) -> Iterator[Sharding]:
    yield Sharding.NONE
    if spread.data > 1:
        yield Sharding.ZERO1
        if spread.pipeline == 1:
            yield Sharding.FSDP


def shown_probability(probability: float) -> float:
    """Return it rounded down: what is below the limit is never shown as reaching it."""
    return math.floor(probability * 1000 + 1e-6) / 1000


class FitFigures(TypedDict):
    """The memory of one GPU in GiB, and the probability that it suffices."""

    p50_gib: float
    p95_gib: float
    p99_gib: float
    usable_gib: float
    memory_gib: float
    fit_probability: float


def fit_figures(job: TrainingJob, estimate: MemoryEstimate) -> FitFigures:
    """Return the memory of one GPU in GiB as every row and text shows it, and if it suffices."""
    memory = job.gpu_memory_bytes or 0.0
    probability = estimate.probability_within(USABLE_RATIO * memory)
    return {
        "p50_gib": gib(estimate.p50_bytes),
        "p95_gib": gib(estimate.p95_bytes),
        "p99_gib": gib(estimate.p99_bytes),
        "usable_gib": gib(USABLE_RATIO * memory),
        "memory_gib": gib(memory),
        "fit_probability": shown_probability(probability),
    }


def fit_text(job: TrainingJob, estimate: MemoryEstimate) -> str:
    """Return the same figures in words."""
    figures = fit_figures(job, estimate)
    return (
        f"{figures['p50_gib']:g} GiB expected, {figures['p95_gib']:g} at 95 %, "
        f"{figures['usable_gib']:g} usable: fits with a probability of "
        f"{100 * figures['fit_probability']:.1f} %"
    )


def unlikely_reason(job: TrainingJob, estimate: MemoryEstimate) -> str:
    """Return the reason that a GPU is not likely enough to suffice, '' for none."""
    if estimate.probability_within(USABLE_RATIO * (job.gpu_memory_bytes or 0.0)) >= FIT_PROBABILITY:
        return ""
    return f"may run out of memory: {fit_text(job, estimate)}, below {LIMIT}"


@dataclass(frozen=True, slots=True, kw_only=True)
class OfferedPlan:
    """A plan as it is listed, with whether the fleet has room for it."""

    plan: TrainingPlan
    standing: RoomAnswer

    @property
    def text(self) -> str:
        """The plan in words: GPUs, memory, and whether the fleet has room for it."""
        plan = self.plan
        memory = fit_text(plan.job, plan.estimate)
        return f"{plan.gpus} x {plan.gpu_type} ({memory}; {self.standing.text})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Offers:
    """The plans that fit, in the order in which they are shown, and the others, likeliest first."""

    plans: tuple[OfferedPlan, ...]
    left_out: tuple[OfferedPlan, ...]

    @property
    def shown(self) -> tuple[OfferedPlan, ...]:
        """The plans that fit; the closest where none does."""
        return self.plans or self.left_out[:1]

    @property
    def remark(self) -> str:
        """Number of plans left out and why, with the closest of them; '' when none was."""
        if not self.left_out:
            return ""
        return (
            f"{len(self.left_out)} ways to train it were left out, which fit with a probability "
            f"below {LIMIT}; the closest: {self.left_out[0].text}"
        )

    @property
    def warning(self) -> str:
        """That none fits, or only beyond the fleet; '' otherwise."""
        if not self.plans:
            return (
                f"no plan fits with a probability of {LIMIT}; the closest: {self.left_out[0].text}"
            )
        first = self.plans[0].standing
        return f"the fleet holds no plan that fits: {first.text}" * (first.room is FleetRoom.NEVER)


def offered(
    plans: Sequence[TrainingPlan], fleet: SubmissionFleet | None, host: "HostNeed | None" = None
) -> Offers:
    """Return plans in the order in which they are shown.

    What fits the free GPUs comes first, then what fits the fleet, then what is larger; a fleet of
    None is not known.
    """
    if fleet is None:
        answers = (FLEET_UNKNOWN,) * len(plans)
    else:
        # It brings numpy and the policy of all that waits, which an estimate alone does not need.
        from dashboard.submission.job.placement import standings

        answers = standings(plans, fleet, host)
    rows = [
        OfferedPlan(plan=plan, standing=answer) for plan, answer in zip(plans, answers, strict=True)
    ]
    fitting = [row for row in rows if row.plan.fits]
    return Offers(
        plans=tuple(sorted(fitting, key=lambda row: row.standing.room)),
        left_out=tuple(row for row in rows if not row.plan.fits),
    )


_StatedValues = TypedDict("_StatedValues", {"told": str}, total=False)  # noqa: UP013 - a column
"""Values that a command must name for a plan to be submitted."""


class EstimatedPlan(FitFigures, _StatedValues):
    """A job spread over GPUs of one type: a plan, a fixed layout, or an engine with its cache."""

    gpu: str
    gpus: int
    data: int
    tensor: int
    pipeline: int
    context: NotRequired[int]
    expert: NotRequired[int]
    sharding: str
    micro_batch: int | None
    accumulation: int
    recompute: str
    binding_event: str
    tier: str
    speed_per_gpu: NotRequired[float]
    cost_eur_per_work: NotRequired[float]
    speed_is: NotRequired[str]
    hours_low: NotRequired[float]
    hours_high: NotRequired[float]
    fleet: NotRequired[str]
    fits: NotRequired[bool]
    why_not: NotRequired[str]
    engine_gib: NotRequired[float]
    cache_gib: NotRequired[float]
    cache_p95_gib: NotRequired[float]
    cache_tokens: NotRequired[int]
    cached_sequences: NotRequired[int]
    estimate: "PeakDocument"


@dataclass(frozen=True, slots=True, kw_only=True)
class PeakDocument:
    """An estimate for programs: bytes, breakdown, and what was missing or assumed."""

    p50_bytes: float
    p95_bytes: float
    p99_bytes: float
    allocated_bytes: float
    reserved_bytes: float
    context_bytes: float
    breakdown: dict[str, float]
    binding_event: str
    binding_stage: int
    tier: str
    missing: tuple[str, ...]
    assumed: tuple[str, ...]
    notes: tuple[str, ...]
    sample_count: int


def plan_row(offer: OfferedPlan, *, tokens: float | None = None) -> dict[str, Any]:
    """Return a plan as the command line and the page show it; memory in GiB per GPU.

    `told` are the values that a command must name for the plan to be submitted, where its
    framework does not do them unasked. The cost is by the catalogue's prices, in their currency.
    """
    plan = offer.plan
    row = _spread_row(plan.gpu_type, plan.job, plan.estimate)
    row |= {
        "speed_per_gpu": round(plan.speed_per_gpu, 3),
        f"cost_{CURRENCY.lower()}_per_work": round(plan.cost, 3),
        "speed_is": "prior",
    }
    if tokens is not None:
        low, high = hours_range(plan, tokens)
        row |= {"hours_low": round(low, 2), "hours_high": round(high, 2)}
    return row | {"told": " ".join(map(str, needs(plan.job))), "fleet": offer.standing.text}


def layout_row(layout: EstimatedLayout) -> dict[str, Any]:
    """Return a fixed layout as a row, with why it does not fit."""
    row = _spread_row(layout.gpu_type, layout.job, layout.estimate)
    return row | {"fits": not layout.refusal, "why_not": layout.refusal}


def _spread_row(gpu_type: str, job: TrainingJob, estimate: MemoryEstimate) -> dict[str, Any]:
    spread = job.parallelism
    return {
        "gpu": gpu_type,
        "gpus": spread.gpus,
        "data": spread.data,
        "tensor": spread.tensor,
        "pipeline": spread.pipeline,
        **{name: value for name in _OPTIONAL_DEGREES if (value := getattr(spread, name)) > 1},
        "sharding": str(spread.sharding),
        "micro_batch": job.micro_batch,
        "accumulation": job.gradient_accumulation,
        "recompute": str(job.recompute or "none"),
        **fit_figures(job, estimate),
        "binding_event": estimate.binding_event,
        "tier": str(estimate.tier),
    }


def breakdown_rows(estimate: MemoryEstimate) -> list[dict[str, Any]]:
    """Return the parts of the peak at its binding event, then those of allocator and CUDA."""
    rows = [{"part": name, "gib": round(size / _GIB, 3)} for name, size in estimate.breakdown]
    reserved = estimate.reserved_bytes - estimate.allocated_bytes
    outside = estimate.nvml_bytes - estimate.reserved_bytes
    return [
        *rows,
        {"part": "kept by the allocator", "gib": round(max(0.0, reserved) / _GIB, 3)},
        {"part": "CUDA context and NCCL", "gib": round(max(0.0, outside) / _GIB, 3)},
    ]


def peak_document(estimate: MemoryEstimate) -> PeakDocument:
    """Return an estimate for programs."""
    names = (entry.name for entry in fields(PeakDocument))
    values = {name: getattr(estimate, name) for name in names}
    return PeakDocument(
        **values | {"breakdown": dict(estimate.breakdown), "tier": str(estimate.tier)}
    )


def model_line(job: TrainingJob) -> str:
    """Name the model with its exact parameters."""
    return f"{job.shape.name}: {count_parameters(job.shape).total:,} parameters"
