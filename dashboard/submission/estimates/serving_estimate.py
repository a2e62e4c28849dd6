"""GPUs that hold a served model: for `trimtab estimate --serve`, without a launcher."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, Self

from dashboard.submission.estimates.estimate import chosen_types
from dashboard.submission.estimates.launcher_estimate import LaunchedRow, launched_rows
from dashboard.submission.estimates.query import (
    EstimateAnswer,
    EstimateRequest,
    beyond_positions,
    known_types,
    require_count,
)
from dashboard.submission.job.feasible_plans import family_of
from dashboard.submission.launchers.fields import SERVING, dialect
from dashboard.submission.launchers.launched_job import DEFAULT_ENGINE_SHARE, LaunchedJob
from data.base.errors import ImpossibleProblemError
from data.catalogue.gpu_catalogue import load_gpu_catalogue
from planner.memory.estimate.calibration import Calibration
from planner.memory.estimate.predictor import gib
from planner.memory.estimate.training_plans import GpuType
from planner.memory.models.model_config import ReadModel
from planner.memory.step.step_events import CACHE
from planner.memory.step.training_job import Method, Parallelism, TrainingJob

if TYPE_CHECKING:
    from data.store import StoreReader

_SHOWN = ("gpu", "gpus", "tensor", "pipeline", "p50_gib", "p95_gib", "p99_gib", "engine_gib",
          "fit_probability", "cache_gib", "cache_p95_gib", "cache_tokens", "cached_sequences",
          "tier", "fits", "why_not")  # fmt: skip
_NO_BF16 = ("volta", "turing")
"""Generations of compute capability below 8.0 (CUDA C++ Programming Guide)."""
_CACHE_BYTES = {"auto": 2.0, "fp8": 1.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceRequest:
    """A model that an engine serves, by the names of the command's options.

    `batch` sequences of `seq` tokens each are to be held at once by one replica. Without `tensor`
    the fewest GPUs of a node that hold them are looked for, of each GPU type.
    """

    batch: int
    seq: int
    framework: str = ""
    quantization: str = ""
    gpu_memory_utilization: float | None = None
    kv_cache_dtype: str = ""
    gpu: tuple[str, ...] = ()
    gpus: int = 64
    tensor: int | None = None
    pipeline: int | None = None
    top: int = 10

    @classmethod
    def of(cls, options: Mapping[str, Any]) -> Self:
        """Return the query of these options; what was not said is left out.

        Errors: ImpossibleProblemError for an option of training, an unknown engine, and numbers
        that cannot be.
        """
        names = {field.name for field in fields(cls)}
        stated = {name: value for name, value in options.items() if value not in (None, "", [])}
        training = {field.name for field in fields(EstimateRequest)} - names
        if unused := sorted(stated.keys() & training):
            flag = f"--{unused[0].replace('_', '-')}"
            raise ImpossibleProblemError(
                f"{flag} has no use with --serve, which trains nothing", f"Take {flag} out."
            )
        query = cls(**{name: value for name, value in stated.items() if name in names})
        query.check()
        return query

    @property
    def engine(self) -> str:
        """The engine that serves."""
        return self.framework or SERVING[0]

    def check(self) -> None:
        """Refuse what no engine can do. Errors: ImpossibleProblemError."""
        for name in ("batch", "seq", "gpus"):
            require_count(name, getattr(self, name))
        if self.engine not in SERVING:
            raise ImpossibleProblemError(
                f"--framework {self.engine[:40]!r} is no engine that is known to serve",
                f"Known are {' and '.join(SERVING)}.",
            )
        share = self.gpu_memory_utilization
        if share is not None and not 0 < share <= 1:
            raise ImpossibleProblemError(
                f"--gpu-memory-utilization of {share:g}", "Give a share of the GPU from 0 to 1."
            )

    def launched(self, model: ReadModel, tensor: int) -> LaunchedJob:
        """Return the job on so many tensor-parallel GPUs. Errors: ImpossibleProblemError."""
        defaults: Mapping[str, Any] = dialect(self.engine).defaults
        share = self.gpu_memory_utilization
        usual = {"prefill tokens": defaults["prefill_tokens"]}
        if share is None and (share := defaults.get("engine_share")) is not None:
            usual["engine share"] = share
        stored = model.quantization
        differs = bool(self.quantization and stored and self.quantization != stored)
        return LaunchedJob(
            job=TrainingJob(
                shape=model.shape,
                framework=self.engine,
                method=Method.INFERENCE,
                parallelism=Parallelism(tensor=tensor, pipeline=self.pipeline or 1),
                micro_batch=self.batch,
                sequence_length=self.seq,
                quantization=self.quantization or model.quantization,
                prefill_tokens=defaults["prefill_tokens"],
                cache_bytes=_CACHE_BYTES[self.kv_cache_dtype or "auto"],
            ),
            model=model,
            dialect=self.engine,
            engine_share=share,
            read=(),
            assumed=(
                *(
                    f"{name} = {value}, what {self.engine} does unasked"
                    for name, value in usual.items()
                ),
                *(() if share is not None else (DEFAULT_ENGINE_SHARE.format(engine=self.engine),)),
                *([f"--quantization {self.quantization}, not the config's {stored}"] * differs),
            ),
            unread=(),
        )

    def tensors(self, heads: int, gpus_per_node: int) -> Iterator[int]:
        """Yield the tensor-parallel degrees to try: that asked for, else 1, 2, 4 … in a node."""
        if self.tensor is not None:
            yield self.tensor
            return
        degree, most = 1, min(self.gpus // (self.pipeline or 1), gpus_per_node)
        while degree <= max(1, most) and heads % degree == 0:
            yield degree
            degree *= 2


SERVE_OPTIONS = ("gpu_memory_utilization", "kv_cache_dtype")
"""Options that mean nothing to training."""


def served_answer(
    query: ServiceRequest, model: ReadModel, reader: "StoreReader | None"
) -> EstimateAnswer:
    """Return the fewest GPUs of each type that hold the service, those that do first.

    Errors: ImpossibleProblemError for a layout that the model does not allow.
    """
    first = query.launched(model, query.tensor or 1)
    types, origin, calibration, _fleet = known_types(reader, family_of(first.job))
    results = [
        _fewest(query, model, gpu, calibration=calibration)
        for gpu in chosen_types(types, query.gpu)
    ]
    results = sorted(results, key=_order)[: max(1, query.top)]
    return EstimateAnswer(
        job=first.job,
        assumed=model.assumed,
        origin=origin,
        rows=[_row(entry) for entry in results],
        estimates=[entry.estimate for entry in results],
        warnings=beyond_positions(first.job, query.seq),
        notes=[
            f"a service of {query.engine}",
            *(f"assumed: {note}" for note in first.assumed),
            *_without_bf16(query.engine, results),
        ],
    )


def _without_bf16(engine: str, rows: Sequence[LaunchedRow]) -> Iterator[str]:
    """Name the GPUs that the model fits on and that have no bf16 (compute capability below 8)."""
    catalogue = load_gpu_catalogue()
    fitting = (catalogue.find(entry.row["gpu"]) for entry in rows if entry.row["fits"])
    old = [model.name for model in fitting if model and model.generation in _NO_BF16]
    if old:
        names = ", ".join(old)
        yield f"{names} cannot do bf16: {engine} refuses a bf16 model there without --dtype half"


def _fewest(
    query: ServiceRequest, model: ReadModel, gpu: GpuType, *, calibration: Calibration | None
) -> LaunchedRow:
    """Return the service on the fewest GPUs of a type that hold it, else on the most tried."""
    for degree in query.tensors(model.shape.heads, gpu.gpus_per_node):
        launched = query.launched(model, degree)
        (result,) = launched_rows(launched, [gpu], calibration=calibration)
        if result.row["fits"]:
            break
    return result


def _order(result: LaunchedRow) -> tuple[bool, int, float]:
    """Return the sort key: fitting first, then fewest GPUs, least memory, and the likeliest."""
    row = result.row
    if not row["fits"]:
        return True, 0, -row["fit_probability"]
    return False, row["gpus"], row["memory_gib"]


def _row(result: LaunchedRow) -> dict[str, Any]:
    """Return the row as it is shown: what it needs, what the engine has, and what that holds."""
    parts = dict(result.estimate.breakdown)
    cache = parts[CACHE]
    sizes = {
        "weights_gib": gib(parts["weights"]),
        "asked_cache_gib": gib(cache),
        "activations_gib": gib(result.estimate.allocated_bytes - parts["weights"] - cache),
    }
    first = {name: result.row[name] for name in _SHOWN[:4]}
    return first | sizes | {name: result.row[name] for name in _SHOWN[4:]}
