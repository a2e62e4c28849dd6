"""Ways to train a model on the GPUs at hand: those that fit, by throughput per GPU and cost."""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from data.base.errors import ImpossibleProblemError
from data.base.units import BYTES_PER_MIB
from data.catalogue.gpu_catalogue import GpuModel
from planner.memory.estimate.bounds import FIT_PROBABILITY, USABLE_RATIO
from planner.memory.estimate.calibration import Calibration
from planner.memory.estimate.predictor import MemoryEstimate, needed_bytes, predict_peak
from planner.memory.step.training_job import (
    SHARDS_WEIGHTS,
    Parallelism,
    Recompute,
    Sharding,
    TrainingJob,
)

SPEED_BASIS = "published scaling"
"""What the speeds of plans rest on."""

_TENSOR_EFFICIENCY = {1: 1.0, 2: 0.93, 4: 0.86, 8: 0.76}
"""Speed per GPU against one GPU, inside a node. Prior: Korthikanti et al., arXiv 2205.05198."""

_LOSS_PER_DOUBLING = 0.013
"""Share of speed lost per doubling of nodes. Measured: MPT 1B to 70B on 8 to 512 H100 and A100."""

_RECOMPUTE_SPEED = {Recompute.NONE: 1.0, Recompute.OPERATORS: 0.95, Recompute.FULL: 0.85}
"""Against no recomputation: the same runs keep 0.76 to 0.93 with full recomputation."""

_SMALL_BATCH_TOKENS = 300
_SMALL_SHARDED_TOKENS = 1500
"""Tokens of a micro-batch at half speed. Gathering weights takes as long as so many tokens: the
same runs keep 0.84 to 0.88 at 4,000 to 8,000 tokens of what they reach at 16,000 to 20,000."""

_MAX_CLUSTER = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuType:
    """One kind of GPU on offer: bytes of memory, relative speed, price per GPU-hour, per node."""

    name: str
    memory_bytes: float
    relative_speed: float
    price_per_hour: float
    gpus_per_node: int = 8

    @classmethod
    def of(cls, model: GpuModel, *, gpus_per_node: int = 8) -> "GpuType":
        """Return the GPU type of a catalogue entry."""
        return cls(
            name=model.name,
            memory_bytes=float(model.memory_mib * BYTES_PER_MIB),
            relative_speed=model.relative_speed,
            price_per_hour=model.price_per_hour,
            gpus_per_node=gpus_per_node,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingPlan:
    """One way that fits. Speed in relative speed units of all GPUs, cost per unit of work."""

    gpu_type: str
    gpus: int
    job: TrainingJob
    estimate: MemoryEstimate
    speed: float
    cost: float

    @property
    def speed_per_gpu(self) -> float:
        """Relative speed of each GPU under this plan."""
        return self.speed / self.gpus

    @property
    def fit_probability(self) -> float:
        """Probability that the peak stays within what the GPU offers to a process."""
        return self.estimate.probability_within(USABLE_RATIO * (self.job.gpu_memory_bytes or 0.0))

    @property
    def fits(self) -> bool:
        """Whether that probability suffices for the plan to be offered."""
        return self.fit_probability >= FIT_PROBABILITY


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanQuestion:
    """A question about training: the model and its recipe, the sequences of a step, and the GPUs.

    Finished runs of the family correct estimates by `calibration`; `raised` multiplies them, above
    1 after a run that ran out of memory. `recomputes` begin with what keeps most, and is fastest.
    `can_spread` says whether the program can be told to run a spread, `can_run` with its batch and
    recomputation; the others are left out.
    """

    job: TrainingJob
    global_batch: int
    gpu_types: Sequence[GpuType]
    max_gpus: int
    micro_batches: Sequence[int] = (1, 2, 4, 8, 16, 32)
    recomputes: Sequence[Recompute] = (Recompute.NONE, Recompute.OPERATORS, Recompute.FULL)
    calibration: Calibration | None = None
    raised: float = 1.0
    can_spread: Callable[[Parallelism], bool] = lambda _spread: True
    can_run: Callable[[TrainingJob], bool] = lambda _job: True

    def __post_init__(self) -> None:
        for name in ("global_batch", "max_gpus"):
            if getattr(self, name) < 1:
                raise ImpossibleProblemError(
                    f"{name} of {getattr(self, name)}", f"give {name} as 1 or more"
                )
        if not self.gpu_types:
            raise ImpossibleProblemError("no GPU type is on offer", "name at least one GPU type")
        if all(self.global_batch % size for size in self.micro_batches):
            sizes = " or ".join(map(str, self.micro_batches))
            raise ImpossibleProblemError(
                f"a batch of {self.global_batch} with a micro-batch of {sizes}",
                f"give a micro-batch that divides {self.global_batch}",
            )


def training_plans(question: PlanQuestion) -> tuple[TrainingPlan, ...]:
    """Return every plan whose tensors have room: those that fit first, the likeliest others last.

    Plans that fit come by speed per GPU, then by cost, then by their number of GPUs. Of the same
    GPU type, count and parallelism only the fastest micro-batch and recomputation that fits stays,
    else the likeliest. Errors: ImpossibleProblemError with the smallest cluster that would do, when
    the tensors have room nowhere.
    """
    best: dict[tuple[str, Parallelism], TrainingPlan] = {}
    ways = _TrainingWays(question)
    for gpu in question.gpu_types:
        for spread in filter(question.can_spread, _spreads(question, gpu, question.max_gpus)):
            plan = _fastest(ways, gpu, spread)
            if plan is not None:
                best[gpu.name, spread] = plan
    if not best:
        raise ImpossibleProblemError(
            f"{question.job.shape.name} fits on no {question.max_gpus} GPUs of "
            f"{', '.join(gpu.name for gpu in question.gpu_types)}",
            smallest_cluster(question),
        )
    return tuple(sorted(best.values(), key=_rank))


def _rank(plan: TrainingPlan) -> tuple[float, ...]:
    likelihood = 0.0 if plan.fits else plan.fit_probability
    return (not plan.fits, -likelihood, -plan.speed_per_gpu, plan.cost, plan.gpus)


def smallest_cluster(question: PlanQuestion) -> str:
    """Return in words the smallest number of GPUs of each type that would hold the job."""
    clusters = [
        f"{count} x {gpu.name}"
        for gpu in question.gpu_types
        if (count := _least_gpus(question, gpu)) is not None
    ]
    if clusters:
        return f"the smallest cluster that would: {' or '.join(clusters)}"
    fixed = min(question.micro_batches) > 1 or Recompute.FULL not in question.recomputes
    other = ", a smaller micro-batch or more recomputation" * fixed
    return f"not even {_MAX_CLUSTER:,} of these GPUs would do: choose a smaller model{other}"


def _least_gpus(question: PlanQuestion, gpu: GpuType) -> int | None:
    """Try rising powers of two, each with all its ways, at what of the question needs least."""
    least = min(question.micro_batches)
    frugal = replace(
        question,
        micro_batches=(least,),
        recomputes=question.recomputes[-1:],
        global_batch=least * _MAX_CLUSTER,
        can_run=lambda _job: True,
        can_spread=lambda _spread: True,
    )
    ways, count = _TrainingWays(frugal), 1
    while count <= _MAX_CLUSTER:
        for spread in _spreads_of(frugal, gpu, count):
            plan = _fastest(ways, gpu, spread)
            if plan is not None and plan.fits:
                return count
        count *= 2
    return None


def _powers_of_two(largest: int) -> Iterator[int]:
    power = 1
    while power <= largest:
        yield power
        power *= 2


def _spreads(question: PlanQuestion, gpu: GpuType, largest: int) -> Iterator[Parallelism]:
    for count in _powers_of_two(largest):
        yield from _spreads_of(question, gpu, count)


def _spreads_of(question: PlanQuestion, gpu: GpuType, count: int) -> Iterator[Parallelism]:
    """Yield the ways to use exactly so many GPUs: tensor parallelism stays inside a node."""
    shape = question.job.shape
    for tensor in _powers_of_two(min(count, gpu.gpus_per_node)):
        if shape.heads % tensor:
            continue
        for pipeline in _powers_of_two(min(count // tensor, shape.layers)):
            data = count // (tensor * pipeline)
            if data > question.global_batch:
                continue
            shardings = (Sharding.NONE, Sharding.ZERO1, Sharding.FSDP) if data > 1 else ()
            for sharding in shardings or (Sharding.NONE,):
                if sharding is Sharding.FSDP and pipeline > 1:
                    continue
                yield Parallelism(
                    data=data,
                    tensor=tensor,
                    pipeline=pipeline,
                    sequence=tensor > 1,
                    sharding=sharding,
                )


class _TrainingWays:
    """A question's ways to train with their estimates, each made once: they hold on every GPU."""

    def __init__(self, question: PlanQuestion) -> None:
        self.question = question
        self._estimates: dict[tuple[Parallelism, int], tuple[list[_Way], Iterator[_Way]]] = {}

    def of(self, spread: Parallelism, micro_batch: int) -> "Iterator[_Way]":
        """Yield one for each recomputation that the program can run, the fastest first."""
        way = spread, micro_batch
        if way not in self._estimates:
            self._estimates[way] = [], map(self._estimated, self._jobs(spread, micro_batch))
        estimates, others = self._estimates[way]
        yield from estimates
        for entry in others:
            estimates.append(entry)
            yield entry

    def _jobs(self, spread: Parallelism, micro_batch: int) -> Iterator[TrainingJob]:
        question = self.question
        for recompute in question.recomputes:
            job = replace(
                question.job,
                parallelism=spread,
                micro_batch=micro_batch,
                gradient_accumulation=question.global_batch // (micro_batch * spread.data),
                recompute=recompute,
                gpu_memory_bytes=None,
            )
            if question.can_run(job):
                yield job

    def _estimated(self, job: TrainingJob) -> "_Way":
        question = self.question
        return job, unbounded_peak(job, calibration=question.calibration, raised=question.raised)


_Way = tuple[TrainingJob, MemoryEstimate]


def _fastest(ways: _TrainingWays, gpu: GpuType, spread: Parallelism) -> TrainingPlan | None:
    """Return the fastest micro-batch and recomputation of a way that fits, else the likeliest.

    None when the tensors have no room. Where no recomputation makes room for a micro-batch, a
    larger one has none either.
    """
    question = ways.question
    best: tuple[bool, float, TrainingJob, MemoryEstimate] | None = None
    for micro_batch in sorted(question.micro_batches):
        if question.global_batch % (micro_batch * spread.data):
            continue
        tried = has_room = False
        for job, estimate in ways.of(spread, micro_batch):
            tried = True
            if needed_bytes(estimate) > gpu.memory_bytes:
                continue
            has_room = True
            probability = estimate.probability_within(USABLE_RATIO * gpu.memory_bytes)
            fits = probability >= FIT_PROBABILITY
            value = prior_speed(gpu, job) if fits else probability
            if best is None or (fits, value) > best[:2]:
                best = fits, value, job, estimate
            if fits:  # the other recomputations of this micro-batch are slower
                break
        if tried and not has_room:
            break
    return None if best is None else priced(gpu, *best[2:])


def unbounded_peak(
    job: TrainingJob, *, calibration: Calibration | None = None, raised: float = 1.0
) -> MemoryEstimate:
    """Return the estimate as on a GPU that is large enough for the allocator's whole cache.

    On its own GPU a run gives cache back at the end of the memory, and the peak would say nothing
    about how near that end is.
    """
    free = job if job.gpu_memory_bytes is None else replace(job, gpu_memory_bytes=None)
    return predict_peak(free, calibration=calibration, raised=raised)


def priced(gpu: GpuType, job: TrainingJob, estimate: MemoryEstimate) -> TrainingPlan:
    """Return the plan with its speed and what a unit of work costs."""
    gpus, speed = job.parallelism.gpus, prior_speed(gpu, job)
    return TrainingPlan(
        gpu_type=gpu.name,
        gpus=gpus,
        job=replace(job, gpu_memory_bytes=gpu.memory_bytes),
        estimate=estimate,
        speed=speed,
        cost=gpus * gpu.price_per_hour / speed,
    )


def prior_speed(gpu: GpuType, job: TrainingJob) -> float:
    """Return the speed of a plan in units of relative speed, from published scaling behaviour.

    The product of what tensor parallelism, the pipeline's bubble (p - 1)/(m + p - 1), data
    parallelism, recomputation and a small micro-batch leave of the GPUs' speed.
    """
    spread = job.parallelism
    micro_batches = job.gradient_accumulation or 1
    bubble = (spread.pipeline - 1) / (micro_batches * spread.virtual_stages + spread.pipeline - 1)
    doublings = math.log2(max(1.0, spread.gpus / gpu.gpus_per_node))
    tokens = (job.micro_batch or 1) * (job.sequence_length or 1) / spread.context
    sharded = spread.sharding in SHARDS_WEIGHTS
    half = _SMALL_SHARDED_TOKENS if sharded else _SMALL_BATCH_TOKENS
    return (
        spread.gpus
        * gpu.relative_speed
        * _TENSOR_EFFICIENCY.get(spread.tensor, 0.6)
        * (1 - bubble)
        * math.exp(doublings * math.log1p(-_LOSS_PER_DOUBLING))
        * _RECOMPUTE_SPEED.get(job.recompute or Recompute.FULL, 0.77)
        * tokens
        / (tokens + half)
    )
