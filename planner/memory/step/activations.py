"""Bytes per token that one layer keeps for its backward pass, operation by operation.

The sum reproduces the published totals where their assumptions are made: 34 + 5as/h times the
hidden width (Korthikanti et al., arXiv 2205.05198, table 2) and 12 + 4k/a + 8f/h (Fujii et al.,
arXiv 2411.06465, equation 12). A matrix that is frozen keeps no input, for its input's gradient
needs only the weights.
"""

from dataclasses import dataclass

from planner.memory.models.model_shape import ModelShape
from planner.memory.step.adapters import adapter_kept_bytes, built_weight_bytes
from planner.memory.step.assumptions import Recipe
from planner.memory.step.framework_traits import FrameworkTraits
from planner.memory.step.training_job import Method, Recompute

EXPERT_IMBALANCE = 1.2
"""Tokens of the busiest rank over the mean, where experts are spread and drop none. Prior."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerActivations:
    """Bytes per token of one layer on one tensor-parallel rank.

    `everything` without recomputation; `stored` under the recipe's recomputation, the layer's input
    included; `boundary` the layer's input alone. `built` bytes, not per token, of weights that an
    adapter builds; `built_kept` what of them outlives the layer's forward pass.
    """

    everything: float
    stored: float
    boundary: float
    built: float
    built_kept: float


def _norms(recipe: Recipe) -> tuple[float, float]:
    """Return the bytes of the norms over the hidden width, and of those of queries and keys."""
    traits, shape, trains = recipe.traits, recipe.job.shape, recipe.trains_weights
    each = traits.norm_trained if trains else traits.norm_frozen
    if shape.norm_vectors == 2 or recipe.compiled:
        each = 4 if _casts_norms(recipe) else recipe.policy.compute
    hidden = each * shape.norms_per_layer * shape.hidden
    heads = each * (shape.query_width + shape.key_width) if shape.qk_norm else 0.0
    return hidden, heads


def _casts_norms(recipe: Recipe) -> bool:
    """Return whether autocast casts a 16-bit stream for LayerNorm, which it computes in fp32.

    torch's list of operations that autocast to fp32; measured,
    benchmarks/measured/training_memory_2_h200.json.
    """
    autocast = recipe.traits.adapter_input == "autocast" and recipe.job.precision != "bf16-true"
    frozen = not recipe.trains_weights and not recipe.compiled
    return frozen and autocast and recipe.stream_bytes < 4


def _score_bytes(recipe: Recipe) -> float:
    """Return the bytes per head and pair of tokens that attention keeps; 0 where it is fused.

    Eager attention keeps the scores for their product with the values, what an fp32 softmax made
    before they were cast to 16 bits, and of dropout a mask and what it lets through: 5 bytes a
    score in Korthikanti et al. (arXiv 2205.05198, section 4.1), whose softmax is in 16 bits. Where
    no fused kernel of torch takes the heads, its softmax stays in fp32; a bias of fp32 is cast in
    every layer. Code of transformers and torch, benchmarks/measured/training_memory_2_h200.json.
    """
    traits, width = recipe.traits, recipe.policy.compute
    attention = recipe.job.shape.attention if traits.hub_modules else "fused"
    if attention == "eager" or not recipe.flash_attention:
        dropped = width + 1 if traits.dropout else 0
        return width + dropped + (traits.softmax_bytes if width < 4 else 0)
    if _unfused(recipe):
        return 4.0
    return width if attention == "biased" and recipe.stream_bytes > width else 0.0


def _unfused(recipe: Recipe) -> bool:
    """Return whether torch computes attention in single fp32 operations for want of a fused kernel.

    It does so where models of transformers leave it fewer key heads than query heads: for fp32
    without a padding mask, and where one head is broadcast.
    """
    shape = recipe.job.shape
    hub = recipe.traits.hub_modules and not recipe.compiled and recipe.flash_attention
    if not hub or shape.kv_heads == shape.heads:
        return False
    fp32 = recipe.policy.compute == 4 and not _masked(recipe)
    return fp32 or shape.attention == "broadcast"


def _masked(recipe: Recipe) -> bool:
    return recipe.length_varies or not recipe.flash_attention


def _attention_core(recipe: Recipe, *, keep_scores: bool = True) -> float:
    """Return the bytes of attention: its output and the softmax's sums, or the matrix of scores."""
    shape = recipe.job.shape
    output = recipe.policy.compute * shape.attention_width
    scores = _score_bytes(recipe) if keep_scores else 0.0
    if not scores:
        return output + 4 * shape.heads
    return output + scores * shape.heads * recipe.sequence_length


def _projected(recipe: Recipe) -> float:
    """Return the bytes of queries, keys and values as attention keeps them.

    Where keys and values are repeated for a padding mask alone ("masked"), batches of one length
    have none, and a fused kernel reads the heads that there are: measured,
    benchmarks/measured/training_memory_h200.json.
    """
    shape, traits, width = recipe.job.shape, recipe.traits, recipe.policy.compute
    keys, values = shape.key_width, shape.value_width
    if _unfused(recipe):
        return 4 * (2 * shape.query_width + shape.attention_width)
    if traits.repeats_kv == "always" or (traits.repeats_kv == "masked" and _masked(recipe)):
        keys, values = shape.query_width, shape.attention_width
    widths = shape.query_width + keys + values
    fused = shape.fused_qkv or traits.fuses_qkv
    if fused and shape.rotary and not recipe.compiled:
        # Turned queries and keys are new tensors; values stay a view that keeps the whole product.
        widths += shape.query_width + shape.key_width
    return width * widths


def _mlp(recipe: Recipe, ffn: float, *, keeps_input: bool) -> float:
    """Return the bytes per token of one MLP: gate, up, their product, the last matrix's input."""
    width, gated = recipe.policy.compute, recipe.job.shape.gated_mlp
    inner = (2.0 if recipe.compiled else 3.0) if gated else 1.0
    return ffn * (width * (inner + (1.0 if keeps_input else 0.0)) + _composed_gelu(recipe))


def _composed_gelu(recipe: Recipe) -> float:
    """Return the bytes per element that GELU in single operations keeps beyond its input.

    0.5 x (1 + tanh(c (x + 0.044715 x^3))) keeps 0.5 x, the tanh and 1 + tanh. Autocast takes the
    power in fp32, so x is cast and all but 0.5 x are in fp32: 4 + 4 + 4 + 2 in the place of the
    2 of its input. Operations of transformers' NewGELUActivation, and
    benchmarks/measured/training_memory_h200.json.
    """
    width = recipe.policy.compute
    if not (recipe.job.shape.composed_gelu and recipe.traits.hub_modules) or recipe.compiled:
        return 0.0
    autocast = width < 4 and recipe.job.precision != "bf16-true"
    return 12.0 if autocast else 3 * width


def _feed_forward(recipe: Recipe, *, keeps_input: bool) -> float:
    """Return the bytes of a layer's MLP; of a mixture routed and shared experts, and routing."""
    shape, width = recipe.job.shape, recipe.policy.compute
    experts = shape.experts
    if experts is None:
        return _mlp(recipe, shape.ffn, keeps_input=keeps_input)
    routes = experts.experts_per_token
    routed = routes * _mlp(recipe, experts.ffn, keeps_input=keeps_input)
    routed += routes * 2 * width * shape.hidden
    if keeps_input:
        routed += routes * width * shape.hidden
    if recipe.job.parallelism.expert > 1:
        routed *= EXPERT_IMBALANCE
    shared = _mlp(recipe, experts.shared_ffn, keeps_input=keeps_input)
    return routed + shared + 4 * experts.experts


def _dropout(traits: FrameworkTraits, shape: ModelShape) -> float:
    """Return the masks of the two residual dropouts, a byte per element."""
    return 2.0 * shape.hidden if traits.dropout else 0.0


def _inputs_kept(recipe: Recipe) -> int:
    """Return the number of inputs of the hidden width that the matrices of a layer keep.

    Matrices share an input. Where autocast casts an fp32 stream, each matrix keeps its own copy:
    measured, benchmarks/measured/training_memory_h200.json.
    """
    shape = recipe.job.shape
    if recipe.stream_bytes == recipe.policy.compute or recipe.compiled:
        return 1 if shape.parallel_block else 2
    fused = shape.fused_qkv or recipe.traits.fuses_qkv
    up = 2 if shape.gated_mlp and not shape.fused_gate_up else 1
    return (1 if fused else 3) + up


def layer_activations(recipe: Recipe) -> LayerActivations:
    """Return the bytes per token of one layer on one tensor-parallel rank."""
    shape, width = recipe.job.shape, recipe.policy.compute
    spread = recipe.job.parallelism
    if recipe.job.method is Method.INFERENCE:
        return LayerActivations(everything=0.0, stored=0.0, boundary=0.0, built=0.0, built_kept=0.0)
    quantized = recipe.quantization
    # Matrices keep their input where they are trained, and 4-bit ones of bitsandbytes.
    keeps = recipe.trains_weights or (quantized is not None and quantized.keeps_input)
    norms, head_norms = _norms(recipe)
    inputs = width * shape.hidden * _inputs_kept(recipe) if keeps else 0.0
    core = _attention_core(recipe)
    sharded = head_norms + _projected(recipe) + core
    sharded += _feed_forward(recipe, keeps_input=keeps) + adapter_kept_bytes(recipe)
    if recipe.quantization and keeps and recipe.traits.quantized_attention_copy:
        sharded += width * shape.attention_width
    full = norms + inputs + _dropout(recipe.traits, shape)
    tensor, sequence = spread.tensor, spread.tensor if spread.sequence else 1
    everything = full / sequence + sharded / tensor
    boundary = recipe.stream_bytes * shape.hidden / sequence
    stored = everything
    if recipe.recompute is Recompute.FULL:
        stored = boundary
    elif recipe.recompute is Recompute.ALTERNATE:
        stored = (boundary + everything) / 2
    elif recipe.recompute is Recompute.OPERATORS:
        stored = boundary + _operators_kept(recipe) / tensor
    elif recipe.recompute is Recompute.ATTENTION:
        stored = everything - (core - _attention_core(recipe, keep_scores=False)) / tensor
    built = built_weight_bytes(recipe) / tensor
    return LayerActivations(
        everything=everything,
        stored=stored,
        boundary=boundary,
        built=built,
        built_kept=0.0 if recipe.recompute is Recompute.FULL else built,
    )


def _operators_kept(recipe: Recipe) -> float:
    """Return the bytes under op-level checkpointing: every second matrix product, and attention.

    A compiled layer recomputes the sum of the residual stream as well. Of experts the grouped
    products are made again, and what was sent between ranks is kept: tokens to the experts and
    back (_op_sac_save_list of torchtitan, parallelize.py of its mixtures).
    """
    shape, width = recipe.job.shape, recipe.policy.compute
    attention = shape.query_width + 2 * shape.key_width + shape.attention_width
    stream = 0 if recipe.compiled else shape.hidden
    ffn = float(shape.ffn)
    if shape.experts:
        trips = (1 + EXPERT_IMBALANCE) * (recipe.job.parallelism.expert > 1)
        ffn = shape.experts.shared_ffn + trips * shape.experts.experts_per_token * shape.hidden
    return width * (attention + ffn + stream) + 4 * shape.heads
