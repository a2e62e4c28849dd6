"""A training job before it runs; a field that was not stated is None."""

import re
from dataclasses import dataclass, field, fields
from enum import StrEnum
from functools import cache

from data.base.errors import ImpossibleProblemError
from planner.memory.models.model_shape import ModelShape

_TOO_LARGE = 1e18
"""No size of a job reaches this: bytes of a GPU, tokens, sequences."""


class Sharding(StrEnum):
    """The states that data-parallel ranks share out instead of each keeping all of them.

    ZeRO stages 1 to 3 (Rajbhandari et al., SC'20); FSDP is stage 3 by units, FSDP_GRADIENTS
    (SHARD_GRAD_OP) keeps gathered weights between forward and backward.
    """

    NONE = "none"
    ZERO1 = "zero1"
    ZERO2 = "zero2"
    ZERO3 = "zero3"
    FSDP = "fsdp"
    FSDP_GRADIENTS = "fsdp-gradients"


SHARDS_WEIGHTS = (Sharding.ZERO3, Sharding.FSDP, Sharding.FSDP_GRADIENTS)
"""What shares out weights, and gathers them where they are at work."""


class Recompute(StrEnum):
    """The activations that the backward pass computes again instead of keeping them."""

    NONE = "none"
    ATTENTION = "attention"
    OPERATORS = "operators"
    ALTERNATE = "alternate"
    FULL = "full"


class Method(StrEnum):
    """The trained part: all weights, a small adapter beside frozen weights, or nothing."""

    FULL = "full"
    ADAPTER = "adapter"
    INFERENCE = "inference"


@dataclass(frozen=True, slots=True, kw_only=True)
class Parallelism:
    """The spread of a job; degrees multiply to the number of GPUs.

    `expert` spreads experts over the GPUs of a stage, so it does not multiply. `shard_group` is the
    number of data-parallel ranks that share one copy (HYBRID_SHARD), None for all of them.
    `sequential` says that pipeline stages work one after another on one micro-batch
    (device_map="auto").
    `stage_layers` are the layers of each stage; empty when they are shared out evenly.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    context: int = 1
    expert: int = 1
    virtual_stages: int = 1
    sequence: bool = False
    sequential: bool = False
    sharding: Sharding = Sharding.NONE
    shard_group: int | None = None
    stage_layers: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in ("data", "tensor", "pipeline", "context", "expert", "virtual_stages"):
            if getattr(self, name) < 1:
                raise ImpossibleProblemError(
                    f"{name} parallelism of {getattr(self, name)}", f"give {name} as 1 or more"
                )
        if self.stage_layers and len(self.stage_layers) != self.pipeline:
            raise ImpossibleProblemError(
                f"{len(self.stage_layers)} stage sizes for {self.pipeline} pipeline stages",
                "give the layers of every stage",
            )

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return self.stage_gpus * self.pipeline

    @property
    def stage_gpus(self) -> int:
        """Number of GPUs of a pipeline stage."""
        return self.data * self.tensor * self.context

    @property
    def expert_gpus(self) -> int:
        """Number of GPUs that hold the experts of a layer once between them."""
        return min(self.expert * self.tensor, self.stage_gpus)

    @property
    def shard_ranks(self) -> int:
        """Ranks over which shared-out states are spread; context ranks hold the same weights."""
        return (self.shard_group or self.data) * self.context


@dataclass(frozen=True, slots=True, kw_only=True)
class Adapter:
    """A small trained part beside frozen weights; `kind` is lora, dora, ia3 or the like.

    `targets` name projections: q, k, v, o, gate, up, down; empty when not stated.
    `trainable` parameters are computed from rank and targets when None. `dropout` says that its
    inputs are dropped out. `copies_embeddings` says
    that embedding and head are trained in a copy of their own (modules_to_save).
    """

    kind: str = "lora"
    rank: int | None = None
    targets: tuple[str, ...] = ()
    trainable: int | None = None
    dropout: bool = False
    copies_embeddings: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Companions:
    """Other models that share the GPUs of a job, as in reinforcement learning.

    `frozen` models are as large as the actor (reference, reward), `trained` ones as well (critic);
    they are spread as the actor is. The engine that samples takes `engine_bytes` of every GPU;
    where `engine_sleeps` it gives them back while weights are trained.
    """

    frozen: int = 0
    trained: int = 0
    engine_bytes: float = 0.0
    engine_sleeps: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingJob:
    """One training job; sizes of one micro-batch on one data-parallel rank.

    `sequence_length` is the longest in tokens; `length_varies` when batches are padded to their
    own longest sample, which then is `typical_length` on average. `offload` may hold "optimizer",
    "parameters" and "activations", what lives in host memory. `cache_emptied` says that the
    allocator's cache is emptied every few steps. `quantization` is that of frozen
    weights. `precision` names a policy of framework_traits.toml. `optimizer_rank` is what GaLore
    and APOLLO project gradients to. Inference keeps `cache_bytes` per
    key or value of a token, computes at most `prefill_tokens` at a time, None for all of them, and
    has memory to choose the next token of `sampled_sequences` at once, None for the micro-batch.
    `unknown` names fields that were stated in words that nobody here knows.

    Errors: ImpossibleProblemError naming the field, for sizes or parallelism that cannot be.
    """

    shape: ModelShape
    framework: str = ""
    method: Method = Method.FULL
    adapter: Adapter | None = None
    parallelism: Parallelism = field(default_factory=Parallelism)
    micro_batch: int | None = None
    sequence_length: int | None = None
    length_varies: bool | None = None
    typical_length: int | None = None
    gradient_accumulation: int | None = None
    precision: str | None = None
    optimizer: str | None = None
    optimizer_rank: int | None = None
    quantization: str = ""
    recompute: Recompute | None = None
    flash_attention: bool | None = None
    compiled: bool | None = None
    offload: frozenset[str] = frozenset()
    chunked_loss: bool = False
    expandable_segments: bool | None = None
    cache_emptied: bool = False
    gpu_memory_bytes: float | None = None
    prefill_tokens: int | None = None
    sampled_sequences: int | None = None
    cache_bytes: float = 2.0
    companions: Companions = Companions()
    unknown: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for name in _sizes():
            value = getattr(self, name)
            if value is not None and not 0 < value < _TOO_LARGE:
                large = abs(value) >= _TOO_LARGE
                text = "is beyond any machine" if large else f"of {value}"
                raise ImpossibleProblemError(
                    f"{self.shape.name}: {name} {text}",
                    f"give {name} above 0 and below {_TOO_LARGE:.0e}",
                )
        _check_parallelism(self.shape, self.parallelism)


@cache
def _sizes() -> tuple[str, ...]:
    """Return the fields of a job that are numbers."""
    numbers = (
        entry for entry in fields(TrainingJob) if re.search(r"\b(int|float)\b", str(entry.type))
    )
    return tuple(entry.name for entry in numbers)


def _check_parallelism(shape: ModelShape, spread: Parallelism) -> None:
    """Refuse a spread that no framework can run, with the nearest that it could."""
    if shape.heads % spread.tensor:
        allowed = [number for number in range(1, shape.heads + 1) if shape.heads % number == 0]
        raise ImpossibleProblemError(
            f"{shape.name}: {shape.heads} heads over {spread.tensor} tensor-parallel GPUs",
            f"choose a divisor of the heads: {', '.join(map(str, allowed[:12]))}",
        )
    if spread.pipeline * spread.virtual_stages > shape.layers:
        raise ImpossibleProblemError(
            f"{shape.name}: {shape.layers} layers over {spread.pipeline} pipeline stages "
            f"of {spread.virtual_stages} parts",
            f"use at most {shape.layers} parts",
        )
    experts = shape.experts.experts if shape.experts else 1
    if experts % spread.expert:
        raise ImpossibleProblemError(
            f"{shape.name}: {experts} experts over {spread.expert} expert-parallel GPUs",
            "choose a divisor of the experts" if shape.experts else "the model has no experts",
        )
    if spread.stage_gpus % spread.expert:
        raise ImpossibleProblemError(
            f"{shape.name}: {spread.expert} expert-parallel GPUs of {spread.stage_gpus} "
            "(data x tensor x context)",
            f"choose a divisor of {spread.stage_gpus}, or more GPUs",
        )
