"""The shape of a transformer: all that its parameters and activations depend on."""

from dataclasses import dataclass, fields

from data.base.errors import ImpossibleProblemError

MAX_SIZE = 10**12
"""No width, count or vocabulary of a model reaches this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertLayers:
    """Mixture of experts in all layers but `dense_layers` of them.

    `ffn` is the width of one routed expert, `shared_ffn` that of all shared experts together.
    """

    experts: int
    experts_per_token: int
    ffn: int
    shared_ffn: int = 0
    dense_layers: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LatentAttention:
    """Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434): low-rank queries, keys, values.

    `query_rank` 0 when queries are projected directly.
    """

    query_rank: int
    key_value_rank: int
    nope_dim: int
    rope_dim: int
    value_dim: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerKind:
    """Layers of one kind, by what they keep of a served sequence.

    `width` elements a token of the last `window` tokens, of all where it is 0; `heads` that ranks
    share out, 0 where all ranks hold the same; `state` bytes whatever the length. `parameters` are
    those of the matrices that mix tokens, in one layer.
    """

    layers: int
    width: int = 0
    heads: int = 0
    window: int = 0
    state: int = 0
    parameters: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelShape:
    """A decoder or encoder of equal layers; widths in elements.

    `kv_heads` < `heads` is grouped-query attention; `norm_vectors` 1 for RMSNorm, 2 for LayerNorm;
    `fused_qkv` when one projection gives queries, keys and values, `fused_gate_up` when one gives
    both inputs of the gate; `rotary` when queries and keys are turned by their position, which
    makes new tensors of them, `rotary_positions` those that it was made for (0: unknown);
    `composed_gelu` when GELU is the tanh form that Hugging Face writes in single operations
    (`gelu_new`); `attention` what Hugging Face does unasked: "fused", "eager", "broadcast" (one key
    head for all, which no fused kernel takes) or "biased" (the bias of every head, added in a fused
    kernel); `wide_qk_norm` when queries and keys are normed over their whole width, not per head;
    `softcapped_logits` when logits go through a tanh; `kinds` of layers where they are not equal.

    Errors: ImpossibleProblemError naming the field, for sizes that no model has.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    gated_mlp: bool = True
    tied_embeddings: bool = False
    norms_per_layer: int = 2
    norm_vectors: int = 1
    qk_norm: bool = False
    parallel_block: bool = False
    qkv_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    learned_positions: int = 0
    rotary_positions: int = 0
    rotary: bool = True
    fused_qkv: bool = False
    fused_gate_up: bool = False
    composed_gelu: bool = False
    attention: str = "fused"
    wide_qk_norm: bool = False
    softcapped_logits: bool = False
    experts: ExpertLayers | None = None
    latent: LatentAttention | None = None
    kinds: tuple[LayerKind, ...] = ()
    other_parameters: int = 0

    def __post_init__(self) -> None:
        for name in ("layers", "hidden", "heads", "kv_heads", "head_dim", "vocab"):
            if getattr(self, name) < 1:
                raise _impossible(self.name, name, getattr(self, name), "at least 1")
        for field in fields(self):
            value = getattr(self, field.name)
            if isinstance(value, int) and not 0 <= value <= MAX_SIZE:
                text = value if abs(value) <= MAX_SIZE else "a number beyond any model"
                raise _impossible(self.name, field.name, text, f"0 to {MAX_SIZE:.0e}")
        if self.ffn < 1 and self.experts is None:
            raise _impossible(self.name, "ffn", self.ffn, "at least 1 in a model without experts")
        if self.heads % self.kv_heads:
            raise _impossible(
                self.name, "kv_heads", self.kv_heads, f"a divisor of the {self.heads} heads"
            )

    @property
    def query_width(self) -> int:
        """Width of all queries of a token."""
        if self.latent:
            return self.heads * (self.latent.nope_dim + self.latent.rope_dim)
        return self.heads * self.head_dim

    @property
    def key_width(self) -> int:
        """Width of all keys of a token, before they are repeated for the heads."""
        return self.query_width if self.latent else self.kv_heads * self.head_dim

    @property
    def value_width(self) -> int:
        """Width of all values of a token, before they are repeated for the heads."""
        if self.latent:
            return self.heads * self.latent.value_dim
        return self.kv_heads * self.head_dim

    @property
    def caches(self) -> tuple[LayerKind, ...]:
        """The cache of a served sequence by layers; by default keys and values of all tokens."""
        if self.kinds:
            return self.kinds
        if self.latent:
            width = self.latent.key_value_rank + self.latent.rope_dim
            return (LayerKind(layers=self.layers, width=width),)
        width = self.key_width + self.value_width
        return (LayerKind(layers=self.layers, width=width, heads=self.kv_heads),)

    @property
    def attention_width(self) -> int:
        """Width of what attention gives to its output projection."""
        if self.latent:
            return self.heads * self.latent.value_dim
        return self.heads * self.head_dim


def _impossible(model: str, field: str, value: object, limits: str) -> ImpossibleProblemError:
    return ImpossibleProblemError(
        f"the model {model!r} has {field} = {value}", f"{field} must be {limits}"
    )
