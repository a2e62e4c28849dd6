"""Exact parameter counts of a model shape, by the part of the model they belong to."""

from dataclasses import dataclass
from functools import lru_cache

from planner.memory.models.model_shape import ModelShape


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerParameters:
    """Parameters of one layer: matrices of attention, of the dense or shared MLP, routed, rest."""

    attention: int
    mlp: int
    routed: int
    router: int
    vectors: int

    @property
    def linear(self) -> int:
        """Parameters in matrices that a quantised checkpoint stores in few bits."""
        return self.attention + self.mlp + self.routed

    @property
    def total(self) -> int:
        """All parameters of the layer."""
        return self.linear + self.router + self.vectors


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterCount:
    """Parameters of a model; `head` 0 when it shares the embedding's matrix."""

    embedding: int
    head: int
    final_norm: int
    dense_layer: LayerParameters
    expert_layer: LayerParameters | None
    dense_layers: int
    expert_layers: int
    other: int

    @property
    def layers(self) -> int:
        """Parameters of all layers."""
        experts = self.expert_layer.total if self.expert_layer else 0
        return self.dense_layers * self.dense_layer.total + self.expert_layers * experts

    @property
    def linear(self) -> int:
        """Parameters in the layers' matrices."""
        experts = self.expert_layer.linear if self.expert_layer else 0
        return self.dense_layers * self.dense_layer.linear + self.expert_layers * experts

    @property
    def total(self) -> int:
        """All parameters."""
        return self.embedding + self.head + self.final_norm + self.layers + self.other

    @property
    def largest_layer(self) -> int:
        """Parameters of the largest layer."""
        experts = self.expert_layer.total if self.expert_layer else 0
        return max(self.dense_layer.total if self.dense_layers else 0, experts)


def attention_parameters(shape: ModelShape) -> int:
    """Return the parameters in the matrices of one attention block."""
    latent = shape.latent
    output = shape.attention_width * shape.hidden
    if latent is None:
        return shape.hidden * (shape.query_width + shape.key_width + shape.value_width) + output
    queries = shape.query_width * (latent.query_rank or shape.hidden)
    queries += shape.hidden * latent.query_rank
    compressed = shape.hidden * (latent.key_value_rank + latent.rope_dim)
    restored = latent.key_value_rank * shape.heads * (latent.nope_dim + latent.value_dim)
    return queries + compressed + restored + output


def mlp_parameters(hidden: int, ffn: int, *, gated: bool) -> int:
    """Return the parameters in the matrices of one MLP."""
    return (3 if gated else 2) * hidden * ffn


def _vector_parameters(shape: ModelShape, *, dense: bool) -> int:
    norms = shape.norms_per_layer * shape.norm_vectors * shape.hidden
    if shape.qk_norm:
        wide = shape.query_width + shape.key_width
        norms += wide if shape.wide_qk_norm else 2 * shape.head_dim
    if shape.latent:
        norms += shape.latent.query_rank + shape.latent.key_value_rank
    biases = 0
    if shape.qkv_bias:
        biases += shape.query_width + shape.key_width + shape.value_width
    if shape.output_bias:
        biases += shape.hidden
    if shape.mlp_bias and dense:
        biases += (2 if shape.gated_mlp else 1) * shape.ffn + shape.hidden
    return norms + biases


def _layer(shape: ModelShape, *, dense: bool) -> LayerParameters:
    ffn = shape.ffn
    routed = router = 0
    if shape.experts and not dense:
        ffn = shape.experts.shared_ffn
        expert = mlp_parameters(shape.hidden, shape.experts.ffn, gated=shape.gated_mlp)
        routed = shape.experts.experts * expert
        router = shape.experts.experts * shape.hidden
    mixers = sum(kind.layers * kind.parameters for kind in shape.kinds)
    return LayerParameters(
        attention=mixers // shape.layers if shape.kinds else attention_parameters(shape),
        mlp=mlp_parameters(shape.hidden, ffn, gated=shape.gated_mlp),
        routed=routed,
        router=router,
        vectors=_vector_parameters(shape, dense=dense),
    )


@lru_cache(maxsize=512)
def count_parameters(shape: ModelShape) -> ParameterCount:
    """Return the exact parameters of a shape, by part."""
    dense_layers = min(shape.experts.dense_layers, shape.layers) if shape.experts else shape.layers
    matrix = shape.vocab * shape.hidden
    return ParameterCount(
        embedding=matrix + shape.learned_positions * shape.hidden,
        head=0 if shape.tied_embeddings else matrix,
        final_norm=shape.norm_vectors * shape.hidden,
        dense_layer=_layer(shape, dense=True),
        expert_layer=_layer(shape, dense=False) if shape.experts else None,
        dense_layers=dense_layers,
        expert_layers=shape.layers - dense_layers,
        other=shape.other_parameters,
    )
