"""Assumptions of an estimate: every field that was not stated, with the value taken instead."""

from dataclasses import dataclass, field, replace
from typing import TypeVar

from data.base.errors import scrub
from planner.memory.step.framework_traits import (
    GENERIC,
    FrameworkTraits,
    Optimizer,
    Quantization,
    StatePolicy,
    adapter_kinds,
    framework_traits,
    optimizer,
    quantization,
    state_policy,
)
from planner.memory.step.training_job import (
    SHARDS_WEIGHTS,
    Adapter,
    Method,
    Recompute,
    Sharding,
    TrainingJob,
)

T = TypeVar("T")

LENGTH = 2048
ADAPTER_KIND = "lora"
ADAPTER_RANK = 16
OPTIMIZER_RANK = 128
ADAPTER_TARGETS = ("q", "v")
_OF_TRAINING = ("optimizer", "recompute", "length_varies", "gradient_accumulation", "compiled")
"""What means nothing to a model that only serves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """A job with nothing left open. `missing` names the fields that decide and were assumed."""

    job: TrainingJob
    traits: FrameworkTraits
    policy: StatePolicy
    optimizer: Optimizer
    optimizer_rank: int
    quantization: Quantization | None
    adapter: Adapter | None
    micro_batch: int
    sequence_length: int
    length_varies: bool
    gradient_accumulation: int
    recompute: Recompute
    flash_attention: bool
    compiled: bool
    missing: tuple[str, ...]
    assumed: tuple[str, ...]

    @property
    def trains_weights(self) -> bool:
        """Whether the model's own weights are trained."""
        return self.job.method is Method.FULL

    @property
    def frozen_bytes(self) -> float:
        """Bytes per frozen parameter: 4 where weights stay in fp32 under autocast."""
        return 4.0 if self.job.precision in {"amp", "fp32"} else 2.0

    @property
    def cast_bytes(self) -> float:
        """Bytes per weight that autocast adds for the backward pass, frozen weights included.

        Sharded weights are cast as they are gathered instead.
        """
        if self.job.parallelism.sharding in SHARDS_WEIGHTS:
            return 0.0
        if self.trains_weights:
            return self.policy.cast
        return state_policy("amp").cast if self.job.precision == "amp" else 0.0

    @property
    def stream_bytes(self) -> float:
        """Bytes of an element between layers: fp32 where autocast casts fp32 weights.

        The embedding gives fp32, and what layers add to it stays so: measured,
        benchmarks/measured/training_memory_h200.json.
        """
        return 4.0 if self.cast_bytes else self.policy.compute

    @property
    def tokens(self) -> float:
        """Tokens of one micro-batch on one GPU."""
        return self.micro_batch * self.sequence_length / self.job.parallelism.context


@dataclass(slots=True)
class _Gaps:
    """The fields that were not stated, collected while a recipe is completed."""

    missing: list[str] = field(default_factory=list)
    assumed: list[str] = field(default_factory=list)

    def filled(self, name: str, stated: T | None, assumed: T, *, critical: bool = True) -> T:
        """Return the stated value, else the assumed one, with a note of it."""
        if stated is not None:
            return stated
        if critical:
            self.missing.append(name)
        self.assumed.append(f"{name} = {assumed}")
        return assumed


def _policy(job: TrainingJob, traits: FrameworkTraits, gaps: _Gaps) -> StatePolicy:
    if job.method is not Method.FULL:
        cast = traits.casts_adapters and job.precision == "bf16-true"
        return state_policy("bf16-true" if cast else traits.adapter_policy)
    sharded = job.parallelism.sharding is not Sharding.NONE
    usual = traits.sharded_policy if sharded else traits.full_policy
    stated = job.precision
    if stated is None and traits.name != GENERIC:
        stated = usual
    return state_policy(gaps.filled("precision", stated, usual))


def _adapter(job: TrainingJob, gaps: _Gaps) -> Adapter | None:
    if job.method is not Method.ADAPTER:
        return None
    adapter = job.adapter or Adapter()
    stated = adapter.trainable is not None
    kind = adapter.kind if adapter.kind in adapter_kinds() else None
    rank = gaps.filled("adapter rank", adapter.rank, ADAPTER_RANK, critical=not stated)
    targets = adapter.targets or None
    return replace(
        adapter,
        kind=gaps.filled(f"adapter kind ({scrub(adapter.kind, limit=40)})", kind, ADAPTER_KIND),
        rank=rank,
        targets=gaps.filled("adapter targets", targets, ADAPTER_TARGETS, critical=not stated),
    )


def complete(job: TrainingJob, traits: FrameworkTraits | None = None) -> Recipe:
    """Return the recipe of a job: what was stated, else the framework's habit, else a usual value.

    `traits` are taken instead of the framework's own. A framework without measured traits of its
    own counts as missing, because its loss path and the dtypes it keeps decide a large part of
    the peak.
    """
    gaps = _Gaps(missing=list(job.unknown))
    traits = traits or framework_traits(job.framework)
    traits_match = traits.name == job.framework != GENERIC and not traits.borrowed
    full = job.method is Method.FULL
    trains = job.method is not Method.INFERENCE
    engine = "" if trains else job.framework
    unknown = f"measured runs of {engine}" if engine else "framework"
    gaps.filled(unknown, job.framework if traits_match else None, f"as {traits.name}")
    micro_batch = gaps.filled("micro_batch", job.micro_batch, 1)
    length = gaps.filled("sequence_length", job.sequence_length, LENGTH)
    policy = _policy(job, traits, gaps)
    name = gaps.filled("optimizer", job.optimizer, traits.default_optimizer, critical=full)
    stepped, rank = optimizer(name), job.optimizer_rank or OPTIMIZER_RANK
    if stepped.low_rank:
        gaps.filled("optimizer_rank", job.optimizer_rank, rank, critical=False)
    recompute = gaps.filled(
        "recompute", job.recompute, Recompute(traits.default_recompute), critical=trains
    )
    return Recipe(
        job=job,
        traits=traits,
        policy=policy,
        optimizer=stepped,
        optimizer_rank=rank,
        quantization=quantization(job.quantization) if job.quantization else None,
        adapter=_adapter(job, gaps),
        micro_batch=micro_batch,
        sequence_length=length,
        length_varies=gaps.filled("length_varies", job.length_varies, False, critical=trains),
        gradient_accumulation=gaps.filled(
            "gradient_accumulation", job.gradient_accumulation, 1, critical=False
        ),
        recompute=recompute if trains else Recompute.NONE,
        flash_attention=gaps.filled("flash_attention", job.flash_attention, True, critical=False),
        compiled=gaps.filled("compiled", job.compiled, False, critical=False),
        missing=tuple(gaps.missing),
        assumed=tuple(note for note in gaps.assumed if trains or not note.startswith(_OF_TRAINING)),
    )
