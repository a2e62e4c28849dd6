"""The events of one training step in one pipeline stage, each with the bytes alive at its peak.

A step is load, forward, recompute, backward, optimiser; the peak of a GPU is the maximum over the
events, never their sum: the logits are gone when the first layer is recomputed.
"""

from dataclasses import dataclass

from planner.memory.step.activations import LayerActivations, layer_activations
from planner.memory.step.assumptions import Recipe
from planner.memory.step.states import (
    Stage,
    StageParameters,
    States,
    stage_parameters,
    stages_of,
    states_of,
)
from planner.memory.step.training_job import SHARDS_WEIGHTS, Method, Recompute, Sharding

LOGITS = "logits and loss"
CACHE = "key-value cache"
_CAST = "weights cast by autocast"

_LIVE_PARAMETERS = 1e9
"""DeepSpeed's stage3_max_live_parameters and stage3_max_reuse_distance, unless a file says else."""

Parts = tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEvent:
    """One event: bytes that stay through the step, and bytes that come and go, by component."""

    name: str
    stage: int
    static: Parts
    dynamic: Parts

    @property
    def static_bytes(self) -> float:
        """Bytes that stay."""
        return sum([size for _, size in self.static])

    @property
    def dynamic_bytes(self) -> float:
        """Bytes that come and go."""
        return sum([size for _, size in self.dynamic])

    @property
    def allocated_bytes(self) -> float:
        """All bytes that tensors take at the peak of the event."""
        return self.static_bytes + self.dynamic_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class _StageView:
    """One stage with the inputs of its events."""

    recipe: Recipe
    stage: Stage
    parameters: StageParameters
    states: States
    layer: LayerActivations

    @property
    def tokens(self) -> float:
        return self.recipe.tokens

    def activations(self) -> float:
        """Return the bytes that all layers of the stage keep for all micro-batches in flight.

        With activations in host memory, those of two layers are on their way there or back.
        """
        if "activations" in self.recipe.job.offload:
            return 2 * self.layer.stored * self.tokens
        stored = self.layer.stored * self.tokens * in_flight(self.recipe, self.stage)
        return self.stage.layers * (stored + self.layer.built_kept)

    def embedded(self) -> float:
        """Return the bytes of the stream between layers: the one running and its successor."""
        return 2 * self.layer.boundary * self.tokens

    def cast_at_work(self) -> float:
        """Return the bytes of weights that autocast has cast where a layer or the head is at work.

        The backward pass drops the casts of a layer as it makes its gradients, and what is
        recomputed is cast anew: measured, benchmarks/measured/training_memory_h200.json.
        """
        head = self.parameters.vocabulary if self.stage.last else 0.0
        at_work = max(head, self.parameters.largest_layer)
        return min(self.states.cast, self.recipe.cast_bytes * at_work)

    def recomputed(self) -> float:
        """Return the bytes of the one layer whose inside is alive while its gradient is computed.

        Of recomputed attention its scores alone: the rest is kept of all layers.
        """
        if self.recipe.recompute is Recompute.ATTENTION:
            return (self.layer.everything - self.layer.stored) * self.tokens
        shape, spread = self.recipe.job.shape, self.recipe.job.parallelism
        ffn = shape.experts.ffn * shape.experts.experts_per_token if shape.experts else shape.ffn
        gradients = self.recipe.policy.compute * (2 * ffn / spread.tensor + 2 * shape.hidden)
        return (self.layer.everything + gradients) * self.tokens + self.layer.built


def in_flight(recipe: Recipe, stage: Stage) -> float:
    """Return the micro-batches in a stage: 1F1B p - i, interleaved x (1 + (p-1)/(pv))."""
    spread = recipe.job.parallelism
    if spread.sequential or spread.pipeline == 1:
        return 1.0
    batches = float(spread.pipeline - stage.index)
    if spread.virtual_stages > 1 and stage.first:
        batches *= 1 + (spread.pipeline - 1) / (spread.pipeline * spread.virtual_stages)
    return min(float(max(recipe.gradient_accumulation, 1)), batches)


def loss_bytes_per_logit(recipe: Recipe) -> float:
    """Return the bytes per token and vocabulary entry at the start of the backward pass."""
    traits = recipe.traits
    if recipe.job.chunked_loss:
        return traits.chunked_loss_bytes
    if recipe.job.method is Method.ADAPTER:
        return traits.adapter_loss_bytes
    return traits.compiled_loss_bytes if recipe.compiled else traits.loss_bytes


def _logits(view: _StageView) -> float:
    if not view.stage.last:
        return 0.0
    recipe = view.recipe
    vocabulary = recipe.job.shape.vocab / recipe.job.parallelism.tensor
    # The tanh keeps what it gave.
    capped = recipe.policy.compute if recipe.job.shape.softcapped_logits else 0.0
    return (loss_bytes_per_logit(recipe) + capped) * vocabulary * view.tokens


def gathered_bytes(view: _StageView) -> float:
    """Return the bytes of gathered weights, unpacked matrices and communication buckets."""
    recipe, spread = view.recipe, view.recipe.job.parallelism
    unpacked = _dequantized(view)
    if spread.shard_ranks == 1:
        return unpacked
    if spread.sharding in SHARDS_WEIGHTS:
        return unpacked + _gathered_units(view)
    trained = view.parameters.trained + view.parameters.trained_routed
    bucket = min(recipe.traits.bucket_bytes, 4 * trained)
    if spread.sharding is Sharding.NONE and recipe.traits.copies_gradients:
        bucket = recipe.policy.gradient * trained
    return unpacked + bucket


def _gathered_units(view: _StageView) -> float:
    """Return the bytes of units gathered at once, of embedding and head, and of a unit's gradients.

    In a pipeline weights and gradients of the stage stay unsharded from the first micro-batch to
    the last; with SHARD_GRAD_OP the weights do from the forward pass to the backward pass.
    """
    recipe, spread = view.recipe, view.recipe.job.parallelism
    parameters = view.parameters
    each = recipe.quantization.bytes if recipe.quantization else 2.0
    unit = parameters.largest_layer * each
    one_unit = each * (parameters.matrices + parameters.routed) + 2 * parameters.rest
    if spread.pipeline > 1:
        everything = parameters.matrices + parameters.routed + parameters.rest
        return one_unit + (4 * everything if recipe.trains_weights else 0.0)
    ends = int(view.stage.first) + int(view.stage.last)
    gradient = 2 * parameters.vocabulary * int(recipe.trains_weights and view.stage.last)
    outer = 2 * parameters.vocabulary * ends + gradient
    unsharded = (2 + 4) * parameters.largest_layer if recipe.trains_weights else 0.0
    if spread.sharding is Sharding.FSDP_GRADIENTS:
        return one_unit + gradient + unsharded
    units = recipe.traits.gather_units * unit
    if spread.sharding is Sharding.ZERO3:
        matrices = parameters.matrices + parameters.routed
        units = max(units, 2 * min(_LIVE_PARAMETERS, matrices))
    bucket = recipe.traits.bucket_bytes if spread.sharding is Sharding.ZERO3 else 0.0
    return units + outer + unsharded + bucket


def _dequantized(view: _StageView) -> float:
    """Return the bytes of the largest matrix in 16 bits, and of its transpose for the gradient."""
    return 2 * 2 * view.parameters.largest_matrix if view.recipe.quantization else 0.0


def _ring_buffers(view: _StageView) -> float:
    """Return the keys and values of two neighbours, where the sequence is spread over GPUs."""
    shape, spread = view.recipe.job.shape, view.recipe.job.parallelism
    if spread.context == 1:
        return 0.0
    width = view.recipe.policy.compute * (shape.key_width + shape.value_width)
    return 2 * width * view.tokens / spread.tensor


def _events(view: _StageView) -> list[StepEvent]:
    recipe, states = view.recipe, view.states
    companions = recipe.job.companions
    engine = (("rollout engine", companions.engine_bytes),)
    critics = companions.trained * (states.weights + states.optimizer + states.copies)
    states_held = (
        ("weights", states.weights),
        ("optimizer states", states.optimizer),
        ("copies", states.copies),
        ("buffers", states.buffers),
        ("reference and reward models", companions.frozen * states.weights),
        ("critic", critics),
    )
    base = states_held if companions.engine_sleeps else states_held + engine
    gradients = (1 + companions.trained) * states.gradients
    states_and_gradients = (*base, ("gradients", gradients if _gradients_persist(recipe) else 0.0))
    every = (*base, ("gradients", gradients))
    moving = (
        ("stream between layers", view.embedded()),
        ("gathered and buckets", gathered_bytes(view)),
        ("ring attention", _ring_buffers(view)),
    )
    few = view.cast_at_work()
    cast_bytes = few if recipe.recompute is Recompute.FULL else states.cast
    cast, cast_at_work = ((_CAST, cast_bytes),), ((_CAST, few),)
    activations = ("activations", view.activations())
    inside = recipe.recompute in (Recompute.FULL, Recompute.ALTERNATE, Recompute.ATTENTION)
    layer = ("one recomputed layer", view.recomputed() if inside else 0.0)
    gradient = 2 * view.parameters.vocabulary if recipe.trains_weights else 0.0
    head = ("gradient of the head", gradient)
    dynamics = {
        "forward": (states_and_gradients, (activations, (LOGITS, _logits(view)), *moving, *cast)),
        "recompute": (states_and_gradients, (activations, layer, *moving, *cast_at_work, head)),
        "backward": (every, (layer, *moving, *cast_at_work)),
        "optimizer": (every, (("optimizer step", states.step),)),
    }
    if companions.engine_bytes:
        dynamics["rollout"] = (states_held + engine, ())
    return [
        StepEvent(name=name, stage=view.stage.index, static=static, dynamic=dynamic)
        for name, (static, dynamic) in dynamics.items()
    ]


def _gradients_persist(recipe: Recipe) -> bool:
    return recipe.gradient_accumulation > 1 or recipe.traits.keeps_gradients


def _load(view: _StageView) -> StepEvent:
    """Return the load: every rank has the whole model before it is shared out, one unit twice."""
    recipe = view.recipe
    ranks = recipe.job.parallelism.shard_ranks
    total = view.states.whole_weights * (1 + 1 / ranks)
    return StepEvent(name="load", stage=view.stage.index, static=(("weights", total),), dynamic=())


def _inference(view: _StageView) -> list[StepEvent]:
    """Return the events of inference: the cache of all tokens, and the work on some at a time.

    What comes after their last layer, the choice of the next token of each sequence, is an event
    of its own: an engine tries it on as many sequences as it may ever serve before it sizes its
    cache.

    Tensor-parallel ranks share out key-value heads, and hold the same where there are fewer heads
    than ranks; a latent cache is held by all of them. What a window passed is dropped after the
    chunk that passed it (vLLM 0.11, SlidingWindowSpec.max_memory_usage_bytes).
    """
    job, shape, width = view.recipe.job, view.recipe.job.shape, 2.0
    tensor, length = job.parallelism.tensor, view.recipe.sequence_length
    each = 0.0
    for kind in shape.caches:
        tokens = (
            min(length, kind.window + (job.prefill_tokens or length)) if kind.window else length
        )
        cached = job.cache_bytes * kind.width * tokens / max(1, min(tensor, kind.heads))
        each += kind.layers * (cached + kind.state / tensor)
    cache = each * view.recipe.micro_batch * view.stage.layers / shape.layers
    sequences = job.sampled_sequences or view.recipe.micro_batch
    logits = view.recipe.traits.sampled_bytes * shape.vocab * sequences if view.stage.last else 0.0
    at_once = min(view.tokens, job.prefill_tokens or view.tokens)
    experts = shape.experts
    ffn = experts.ffn * experts.experts_per_token + experts.shared_ffn if experts else shape.ffn
    work = width * (4 * shape.hidden + 3 * ffn / tensor) * at_once
    static = (("weights", view.states.weights), (CACHE, cache))
    dynamics = {
        "prefill": (("activations", work), ("gathered and buckets", _dequantized(view))),
        "sampling": ((LOGITS, logits),),
    }
    return [
        StepEvent(name=name, stage=view.stage.index, static=static, dynamic=dynamic)
        for name, dynamic in dynamics.items()
    ]


Held = tuple[tuple[Stage, StageParameters, States], ...]
"""The stages that can hold the peak, each with its parameters and states."""


def held(recipe: Recipe) -> Held:
    """Return what the stages hold whatever the batch: neither its size nor recomputation counts."""
    parameters = [(stage, stage_parameters(recipe, stage)) for stage in stages_of(recipe)]
    return tuple((stage, part, states_of(recipe, stage, part)) for stage, part in parameters)


def step_events(recipe: Recipe, stages: Held = ()) -> list[StepEvent]:
    """Return the events of a step over the stages that can hold the peak, as `held` gives them."""
    events: list[StepEvent] = []
    layer = layer_activations(recipe)
    for stage, parameters, states in stages or held(recipe):
        view = _StageView(
            recipe=recipe, stage=stage, parameters=parameters, states=states, layer=layer
        )
        if recipe.job.method is Method.INFERENCE:
            events += _inference(view)
            continue
        events += _events(view)
        sharded = recipe.job.parallelism.sharding in SHARDS_WEIGHTS
        if recipe.traits.loads_whole_model and sharded:
            events.append(_load(view))
    return events
