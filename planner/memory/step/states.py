"""Model states of one GPU of a stage: weights, gradients, optimiser, and their copies."""

from dataclasses import dataclass

from planner.memory.models.parameters import ParameterCount, count_parameters
from planner.memory.step.adapters import adapter_parameters, low_rank_share
from planner.memory.step.assumptions import Recipe
from planner.memory.step.training_job import SHARDS_WEIGHTS, Method, Sharding, TrainingJob

_SUB_GROUP = 1e9
"""Parameters that DeepSpeed's stage 3 steps at a time, with an fp32 copy of their gradients."""
_SHARDS_GRADIENTS = (*SHARDS_WEIGHTS, Sharding.ZERO2)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """One pipeline stage: its layers, and whether it holds the embedding and the head."""

    index: int
    layers: float
    first: bool
    last: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StageParameters:
    """Parameters of one tensor-parallel rank of a stage, before sharding over data ranks.

    `matrices` are the layers' dense matrices, `routed` those of its experts, `rest` everything
    that quantisation leaves alone (embedding, head, norms); `trained` all that the optimiser
    updates, `trained_vectors` the part of it outside of matrices of layers.
    """

    matrices: float
    routed: float
    rest: float
    trained: float
    trained_routed: float
    trained_vectors: float
    largest_layer: float
    largest_matrix: float
    vocabulary: float


@dataclass(frozen=True, slots=True, kw_only=True)
class States:
    """Bytes of the states on one GPU. `step` lives only while the optimiser steps."""

    weights: float
    whole_weights: float
    buffers: float
    cast: float = 0.0
    gradients: float = 0.0
    optimizer: float = 0.0
    copies: float = 0.0
    step: float = 0.0


def stages_of(recipe: Recipe) -> tuple[Stage, ...]:
    """Return the stages that can hold the peak: the first, the second and the last.

    The second may, as it holds more than the first when that one was given fewer layers for its
    embedding; where every stage's layers are stated, all are given.
    """
    spread, layers = recipe.job.parallelism, recipe.job.shape.layers
    last = spread.pipeline - 1
    most = -(-layers // spread.pipeline)
    sizes = spread.stage_layers or (most,) * spread.pipeline
    looked_at = range(spread.pipeline) if spread.stage_layers else sorted({0, min(1, last), last})
    return tuple(
        Stage(index=index, layers=sizes[index], first=index == 0, last=index == last)
        for index in looked_at
    )


def stage_parameters(recipe: Recipe, stage: Stage) -> StageParameters:
    """Return the parameters of one tensor-parallel rank of a stage."""
    shape, spread = recipe.job.shape, recipe.job.parallelism
    count, adapter = count_parameters(shape), adapter_parameters(recipe)
    share = stage.layers / shape.layers
    embedding = count.embedding if stage.first else 0
    head = _head_parameters(recipe, count) if stage.last else 0
    layer = count.expert_layer or count.dense_layer
    routed = layer.routed * count.expert_layers * share / spread.expert_gpus
    matrices = count.linear * share - layer.routed * count.expert_layers * share
    vectors = (count.layers - count.linear) * share + (count.final_norm if stage.last else 0)
    rest = embedding + head + vectors + count.other * share
    if recipe.traits.quantizes_head and recipe.quantization:
        matrices, rest = matrices + head, rest - head
    tensor = spread.tensor
    trained = matrices + rest if recipe.trains_weights else adapter * share
    if recipe.adapter and recipe.adapter.copies_embeddings:
        # PEFT makes low-rank matrices fp32 and leaves whole copies, and so their moments, 16-bit.
        narrow = min(1.0, recipe.frozen_bytes / recipe.policy.weight)
        copies = (embedding > 0) + (stage.last and count.head > 0)
        trained += narrow * copies * shape.vocab * shape.hidden
    return StageParameters(
        matrices=matrices / tensor,
        routed=routed,
        rest=rest / tensor,
        trained=trained / (tensor if recipe.trains_weights else 1),
        trained_routed=routed if recipe.trains_weights else 0.0,
        trained_vectors=rest / tensor if recipe.trains_weights else 0.0,
        largest_layer=(count.largest_layer - layer.routed) / tensor
        + layer.routed / spread.expert_gpus,
        largest_matrix=_largest_quantized(recipe, stage) / tensor,
        vocabulary=shape.vocab * shape.hidden / tensor,
    )


def _largest_quantized(recipe: Recipe, stage: Stage) -> float:
    """Return the parameters of the largest matrix that is unpacked to 16 bits for a product."""
    shape = recipe.job.shape
    ffn = shape.experts.ffn if shape.experts else shape.ffn
    largest = shape.hidden * max(ffn, shape.query_width)
    if recipe.traits.quantizes_head and stage.last:
        largest = max(largest, shape.vocab * shape.hidden)
    return largest


def _head_parameters(recipe: Recipe, count: ParameterCount) -> float:
    """Return the head's size; a tied one counts on a later stage, or where it is untied."""
    shape = recipe.job.shape
    apart = recipe.job.parallelism.pipeline > 1 or recipe.traits.unties_head
    return shape.vocab * shape.hidden if count.head == 0 and apart else count.head


def moments_of(recipe: Recipe, parameters: StageParameters) -> tuple[float, float]:
    """Return the moments of dense and of routed parameters, in elements, before sharding."""
    optimizer = recipe.optimizer
    special = optimizer.vector_moments
    vectors = parameters.trained_vectors
    of_matrix = optimizer.moments
    if optimizer.low_rank:
        of_matrix = low_rank_share(recipe.job.shape, recipe.optimizer_rank)
    dense = of_matrix * (parameters.trained - vectors)
    dense += (optimizer.moments if special is None else special) * vectors
    return dense, of_matrix * parameters.trained_routed


def _shares(recipe: Recipe, *kinds: Sharding) -> tuple[float, float]:
    """Return the share of dense and of routed parameters that a rank holds of what is shared out.

    Experts are already divided over expert-parallel ranks, so fewer ranks hold the same ones.
    """
    spread = recipe.job.parallelism
    if spread.sharding not in kinds:
        return 1.0, 1.0
    return 1 / spread.shard_ranks, min(1.0, spread.expert / spread.shard_ranks)


def _sum_of_shares(amounts: tuple[float, float], shares: tuple[float, float]) -> float:
    """Return the sum of the shares of a dense and a routed amount."""
    return amounts[0] * shares[0] + amounts[1] * shares[1]


def _weight_bytes(recipe: Recipe, parameters: StageParameters) -> tuple[float, float]:
    """Return the bytes of dense weights, adapters included, and of routed ones, not sharded yet."""
    dense = parameters.matrices + parameters.rest
    if recipe.trains_weights:
        return recipe.policy.weight * dense, recipe.policy.weight * parameters.routed
    trained = recipe.policy.weight * parameters.trained
    if recipe.quantization is None:
        each = recipe.frozen_bytes
        return each * dense + trained, each * parameters.routed
    upcast = recipe.traits.upcasts_unquantized and recipe.quantization.keeps_input
    rest = (4 if upcast else 2) * parameters.rest
    each, of_dense = recipe.quantization.bytes, recipe.quantization.dense_bytes
    matrices = (each if of_dense is None else of_dense) * parameters.matrices
    return matrices + rest + trained, each * parameters.routed


def states_of(recipe: Recipe, stage: Stage, parameters: StageParameters) -> States:
    """Return the bytes of the model states of one GPU."""
    policy, job, optimizer = recipe.policy, recipe.job, recipe.optimizer
    if job.method is Method.INFERENCE:
        return _states(recipe, stage, parameters)
    trained = parameters.trained, parameters.trained_routed
    optimizer_shares = _shares(recipe, *_SHARDS_GRADIENTS, Sharding.ZERO1)
    gradients = policy.gradient * _sum_of_shares(trained, _shares(recipe, *_SHARDS_GRADIENTS))
    if optimizer.by_layer:
        gradients = policy.gradient * max(parameters.largest_layer, parameters.vocabulary)
    moment = policy.moment if optimizer.bytes is None else optimizer.bytes
    updated = _sum_of_shares(trained, optimizer_shares)
    moments = moment * _sum_of_shares(moments_of(recipe, parameters), optimizer_shares)
    moments += (policy.master + policy.reduced) * updated
    copies = recipe.traits.optimizer_copies if _steps_by_torch(recipe) else 0.0
    step = 0.0 if optimizer.by_layer else (copies * moment + policy.step) * updated
    widest = max(parameters.vocabulary, parameters.largest_matrix)
    step += optimizer.largest * min(widest * optimizer_shares[0], updated)
    if job.parallelism.sharding is Sharding.ZERO3 and policy.master:
        step = 4 * min(_SUB_GROUP, updated)
    if optimizer.low_rank:
        # Matrix by matrix; the largest one's gradient, its vectors and their product are in fp32.
        step = 3 * 4 * parameters.largest_matrix
    if optimizer.host or "optimizer" in job.offload:
        moments = step = 0.0
    if recipe.trains_weights and _gradients_in_host(job):
        gradients = 0.0
    return _states(
        recipe,
        stage,
        parameters,
        gradients=gradients,
        optimizer=moments,
        copies=policy.copied * sum(trained),
        step=step,
    )


def _gradients_in_host(job: TrainingJob) -> bool:
    """Return whether gradients leave the GPU as they are reduced, to where their optimiser steps.

    ZeRO-Offload (Ren et al., USENIX ATC'21) keeps 2 bytes per parameter on the GPU in stage 2.
    """
    reduced = job.parallelism.sharding in (Sharding.ZERO2, Sharding.ZERO3)
    return "parameters" in job.offload or ("optimizer" in job.offload and reduced)


def _states(recipe: Recipe, stage: Stage, parameters: StageParameters, **trained: float) -> States:
    """Return weights, what stays beside them, and what only a job that trains has."""
    weight_bytes = _weight_bytes(recipe, parameters)
    weights = _sum_of_shares(weight_bytes, _shares(recipe, *SHARDS_WEIGHTS))
    if "parameters" in recipe.job.offload:
        weights = 0.0
    everything = parameters.matrices + parameters.routed + parameters.rest
    traits = recipe.traits
    resident = traits.resident_bytes + traits.layer_buffer_bytes * stage.layers
    return States(
        weights=weights,
        whole_weights=sum(weight_bytes),
        buffers=resident + (traits.quantized_resident_bytes if recipe.quantization else 0.0),
        cast=recipe.cast_bytes * everything,
        **trained,
    )


def _steps_by_torch(recipe: Recipe) -> bool:
    """Return whether the step copies a moment of all tensors at once, as torch's default does.

    DeepSpeed steps in a fused kernel. So does torch's fused AdamW, which copies none: measured,
    benchmarks/measured/training_memory_h200.json.
    """
    zero = (Sharding.ZERO1, Sharding.ZERO2, Sharding.ZERO3)
    stepped = recipe.optimizer
    in_place = stepped.fused or recipe.job.parallelism.sharding in zero
    return stepped.moments >= 1 and not in_place
