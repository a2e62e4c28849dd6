"""Query of an estimate, and its answer: for the command line and the HTTP API alike."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

from dashboard.submission.estimates.estimate import (
    EstimatedPlan,
    Offers,
    chosen_types,
    layout_row,
    layouts,
    model_line,
    offered,
    peak_document,
    plan_row,
)
from dashboard.submission.estimates.launcher_estimate import launched_rows
from dashboard.submission.job.feasible_plans import calibration_of, family_of, limit_warning
from dashboard.submission.job.fleet import SubmissionFleet, catalogue_types, fleet_of_store
from dashboard.submission.launchers.launched_job import LaunchedJob
from data.base.errors import ImpossibleProblemError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from planner.memory.estimate.calibration import Calibration
from planner.memory.estimate.predictor import MemoryEstimate
from planner.memory.estimate.training_plans import (
    GpuType,
    PlanQuestion,
    smallest_cluster,
    training_plans,
)
from planner.memory.models.model_config import ReadModel
from planner.memory.step.framework_traits import policy_name, require_framework
from planner.memory.step.training_job import Adapter, Method, Recompute, Sharding, TrainingJob

if TYPE_CHECKING:
    from data.store import StoreReader

_DEGREES = ("data", "tensor", "pipeline", "context", "expert")
_NEEDS = (
    ("adapter_rank", "method", "adapter"),
    ("quantization", "method", "adapter"),
    ("time_limit", "tokens", "N"),
)
"""Options that mean nothing without another one, and the value that it must have (N: any)."""


def require_count(name: str, count: int) -> None:
    """Refuse a count below 1. Errors: ImpossibleProblemError naming the option."""
    if count < 1:
        raise ImpossibleProblemError(f"--{name} of {count}", f"Give --{name} as 1 or more.")


def beyond_positions(job: TrainingJob, seq: int) -> list[str]:
    """Return a warning where a sequence is longer than what the model has or was made for."""
    learned, rotary = job.shape.learned_positions, job.shape.rotary_positions
    if 0 < learned < seq:
        have, then = f"{learned:,} positions that the model has", "it cannot run"
    elif 0 < rotary < seq:
        have = f"{rotary:,} positions that the model was made for"
        then = "without rope_scaling in its config it runs, and later positions mean little to it"
    else:
        return []
    return [f"--seq {seq:,} is above the {have}: {then}"]


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateRequest:
    """A training job, and which plans of it are asked for, by the names of the command's options.

    `gpu` are the GPU types it may use, all where none is named; `gpus` how many at most. With a
    degree of parallelism or a sharding one layout is asked for.
    """

    batch: int
    seq: int
    framework: str = ""
    optimizer: str = ""
    precision: str = ""
    quantization: str = ""
    method: str = ""
    adapter_rank: int | None = None
    lengths: str | None = None
    recompute: str | None = None
    micro_batch: int | None = None
    gpu: tuple[str, ...] = ()
    gpus: int = 64
    data: int | None = None
    tensor: int | None = None
    pipeline: int | None = None
    context: int | None = None
    expert: int | None = None
    sharding: str | None = None
    offload: tuple[str, ...] = ()
    tokens: float | None = None
    time_limit: float | None = None
    top: int = 10

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Return the query of these options, of which others are left out."""
        return cls(
            **{field.name: options[field.name] for field in fields(cls) if field.name in options}
        )

    @property
    def degrees(self) -> dict[str, int]:
        """The degrees of parallelism that are fixed."""
        return {name: value for name in _DEGREES if (value := getattr(self, name)) is not None}

    def job(self, shape: Any) -> TrainingJob:
        """Return the job of a model. Errors: ImpossibleProblemError."""
        for name in ("batch", "seq", "gpus"):
            require_count(name, getattr(self, name))
        self._refuse_unused()
        if self.framework:
            require_framework(self.framework)
        for name, most in (("tokens", 1e17), ("time_limit", 24 * 365)):
            value = getattr(self, name)
            if value is not None and not 0 < value <= most:
                raise ImpossibleProblemError(
                    f"--{name.replace('_', '-')} of {value}", f"Give a number from 0 to {most:g}."
                )
        method = Method(self.method or "full")
        return TrainingJob(
            shape=shape,
            framework=self.framework,
            method=method,
            adapter=Adapter(rank=self.adapter_rank) if method is Method.ADAPTER else None,
            micro_batch=self.micro_batch,
            sequence_length=self.seq,
            length_varies=None if self.lengths is None else self.lengths == "vary",
            precision=policy_name(self.precision, self.framework) if self.precision else None,
            optimizer=self.optimizer or None,
            quantization=self.quantization,
            recompute=Recompute(self.recompute) if self.recompute else None,
            offload=frozenset(self.offload),
        )

    def _refuse_unused(self) -> None:
        """Refuse an option that nothing would use. Errors: ImpossibleProblemError."""
        for name, other, needed in _NEEDS:
            value, partner = getattr(self, name), getattr(self, other)
            if value and (partner is None or (needed != "N" and partner != needed)):
                flag = f"--{name.replace('_', '-')} {value}"
                raise ImpossibleProblemError(
                    f"{flag} has no use without --{other} {needed}",
                    f"Add --{other} {needed}, or take {flag} out.",
                )


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateDocument:
    """An estimate as one object for programs."""

    model: str
    model_assumed: tuple[str, ...]
    gpu_types_from: str
    warnings: list[str]
    notes: list[str]
    plans: list[EstimatedPlan]


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimateAnswer:
    """Plans, best first, or one layout on every GPU type: a row and an estimate of each."""

    job: TrainingJob
    assumed: tuple[str, ...]
    origin: str
    rows: list[dict[str, Any]]
    estimates: list[MemoryEstimate]
    warnings: list[str]
    notes: list[str]

    def document(self) -> EstimateDocument:
        """Return it as one object for programs."""
        plans: list[Any] = [
            row | {"estimate": peak_document(estimate)}
            for row, estimate in zip(self.rows, self.estimates, strict=True)
        ]
        return EstimateDocument(
            model=model_line(self.job),
            model_assumed=self.assumed,
            gpu_types_from=self.origin,
            warnings=self.warnings,
            notes=self.notes,
            plans=plans,
        )


def estimate_answer(
    query: EstimateRequest, model: ReadModel, reader: "StoreReader | None"
) -> EstimateAnswer:
    """Return the plans that fit the fleet of the store, else the catalogue's GPUs.

    Errors: ImpossibleProblemError when none of them fits.
    """
    job = query.job(model.shape)
    types, origin, calibration, fleet = known_types(reader, family_of(job))
    types = chosen_types(types, query.gpu)
    if query.degrees or query.sharding:
        all_layouts = layouts(
            job,
            types,
            global_batch=query.batch,
            degrees=query.degrees,
            sharding=Sharding(query.sharding) if query.sharding else None,
            calibration=calibration,
        )
        rows, estimates = (
            [layout_row(layout) for layout in all_layouts],
            [layout.estimate for layout in all_layouts],
        )
        warnings, notes = list[str](), list[str]()
    else:
        offers = _offers(_question(query, job, types, calibration), fleet)
        plans = offers.plans[: max(1, query.top)]
        rows = [plan_row(offer, tokens=query.tokens) for offer in plans]
        estimates = [offer.plan.estimate for offer in plans]
        late = limit_warning(plans[0].plan, query.tokens, query.time_limit, whose="--time-limit")
        warnings = [text for text in (offers.warning, late) if text]
        notes = [offers.remark] * bool(offers.remark)
    return EstimateAnswer(
        job=job,
        assumed=model.assumed,
        origin=origin,
        rows=rows,
        estimates=estimates,
        warnings=[*beyond_positions(job, query.seq), *warnings],
        notes=notes,
    )


def launched_answer(
    launched: LaunchedJob, reader: "StoreReader | None", *, gpu: Sequence[str]
) -> EstimateAnswer:
    """Return whether a launched job fits, on every GPU type of the fleet or the catalogue."""
    job = launched.job
    types, origin, calibration, _fleet = known_types(reader, family_of(job))
    results = launched_rows(launched, chosen_types(types, gpu), calibration=calibration)
    return EstimateAnswer(
        job=job,
        assumed=launched.model.assumed,
        origin=origin,
        rows=[row.row for row in results],
        estimates=[row.estimate for row in results],
        warnings=[f"not read, though it may matter to memory: {name}" for name in launched.unread],
        notes=[f"read as a job of {launched.dialect}", *launched.read]
        + [f"assumed: {entry}" for entry in launched.assumed],
    )


def _offers(question: PlanQuestion, fleet: SubmissionFleet | None) -> Offers:
    """Return the plans to list. Errors: ImpossibleProblemError when none of them fits."""
    offers = offered(training_plans(question), fleet)
    if not offers.plans:
        raise ImpossibleProblemError(offers.warning, smallest_cluster(question))
    return offers


def _question(
    query: EstimateRequest,
    job: TrainingJob,
    types: tuple[GpuType, ...],
    calibration: Calibration | None,
) -> PlanQuestion:
    fixed: dict[str, Any] = {}
    if job.micro_batch is not None:
        fixed["micro_batches"] = (job.micro_batch,)
    if job.recompute is not None:
        fixed["recomputes"] = (job.recompute,)
    return PlanQuestion(
        job=job,
        global_batch=query.batch,
        gpu_types=types,
        max_gpus=query.gpus,
        calibration=calibration,
        **fixed,
    )


def known_types(
    reader: "StoreReader | None", family: str
) -> tuple[tuple[GpuType, ...], str, Calibration | None, SubmissionFleet | None]:
    """Return the fleet's GPU types and the family's calibration from the store, if there is one."""
    catalogue = load_gpu_catalogue()
    if reader is None:
        return catalogue_types(catalogue), "the catalogue", None, None
    fleet = fleet_of_store(reader, catalogue)
    calibration = calibration_of(family, reader.measured_peaks(family))
    types = fleet.gpu_types(catalogue)
    if types:
        return types, "the fleet in the store", calibration, fleet
    return catalogue_types(catalogue), "the catalogue", calibration, None
