"""Training runs that nobody had looked at when the memory predictor was made, by sets.

Models are told as their config.json tells them, shapes of public ones; those called `-cut` have
fewer layers, so that a run takes seconds.
"""

from dataclasses import dataclass
from typing import Any

from planner.memory.models.model_config import shape_from_config
from planner.memory.models.model_sizes import known_model
from planner.memory.step.training_job import Adapter, Method, Recompute, TrainingJob

BESIDE_TORCH_BYTES = int(0.76 * 2**30)
"""What NVML showed beside torch in the runs of training_memory_h200.json."""
LINEAR = ("q", "k", "v", "o", "gate", "up", "down")
ATTENTION = ("q", "k", "v", "o")
OPTIMIZERS = {"adamw": "adamw_torch", "adamw_fused": "adamw_torch_fused"}
"""The product's names of optimisers that transformers calls otherwise."""


def _sizes(
    family: str, layers: int, hidden: int, heads: int, kv: int, ffn: int, vocab: int, **more: Any
) -> dict[str, Any]:
    return {
        "model_type": family,
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv,
        "intermediate_size": ffn,
        "vocab_size": vocab,
        "max_position_embeddings": 4096,
    } | more


def _known(family: str, name: str, **more: Any) -> dict[str, Any]:
    shape = known_model(name)
    sizes = _sizes(
        family, shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.ffn, shape.vocab
    )
    tied = {"head_dim": shape.head_dim, "tie_word_embeddings": shape.tied_embeddings}
    return sizes | tied | more


def _gpt2(layers: int, hidden: int, heads: int, **more: Any) -> dict[str, Any]:
    sizes = {"n_layer": layers, "n_embd": hidden, "n_head": heads, "n_positions": 1024}
    words = {"model_type": "gpt2", "vocab_size": 50257, "activation_function": "gelu_new"}
    return words | sizes | more


_TIED = {"tie_word_embeddings": True}
_APART = {"tie_word_embeddings": False}
_GEMMA = {**_TIED, "query_pre_attn_scalar": 256, "head_dim": 256, "pad_token_id": 0}
_PYTHIA = {**_APART, "rotary_pct": 0.25, "use_parallel_residual": True}
_EXPERTS = {**_APART, "num_experts": 64, "num_experts_per_tok": 8}
MODELS: dict[str, dict[str, Any]] = {
    "qwen2.5-0.5b": _known("qwen2", "qwen2.5-0.5b"),
    "qwen2.5-1.5b": _known("qwen2", "qwen2.5-1.5b"),
    "qwen2.5-3b": _known("qwen2", "qwen2.5-3b"),
    "llama3.2-1b": _known("llama", "llama3.2-1b"),
    "llama3.2-3b": _known("llama", "llama3.2-3b"),
    "llama3-8b": _known("llama", "llama3-8b"),
    "tinyllama-1.1b": _known("llama", "tinyllama-1.1b"),
    "mistral-7b": _known("mistral", "mistral-7b", sliding_window=None),
    "gemma-2b": _known("gemma", "gemma-2b", pad_token_id=0),
    "qwen3-0.6b": _known("qwen3", "qwen3-0.6b"),
    "qwen3-1.7b": _known("qwen3", "qwen3-1.7b"),
    "olmo2-1b": _sizes("olmo2", 16, 2048, 16, 16, 8192, 100352, **_APART, pad_token_id=1),
    "gemma2-2b": _known("gemma2", "gemma2-2b", query_pre_attn_scalar=256, pad_token_id=0),
    "gemma3-1b": _sizes("gemma3_text", 26, 1152, 4, 1, 6912, 262144, **_GEMMA, sliding_window=512),
    "pythia-1b": _sizes("gpt_neox", 16, 2048, 8, 8, 8192, 50304, **_PYTHIA),
    "pythia-1.4b": _sizes("gpt_neox", 24, 2048, 16, 16, 8192, 50304, **_PYTHIA),
    "opt-1.3b": {
        "model_type": "opt",
        "num_hidden_layers": 24,
        "hidden_size": 2048,
        "num_attention_heads": 32,
        "ffn_dim": 8192,
        "vocab_size": 50272,
        "max_position_embeddings": 2048,
        "word_embed_proj_dim": 2048,
        "do_layer_norm_before": True,
        "dropout": 0.1,
    },
    "gpt2-medium": _gpt2(24, 1024, 16),
    "gpt2-large": _gpt2(36, 1280, 20),
    "nanogpt-124m": _gpt2(12, 768, 12, activation_function="gelu"),
    "nanogpt-350m": _gpt2(24, 1024, 16, activation_function="gelu"),
    "falcon-rw-1b": {
        "model_type": "falcon",
        "num_hidden_layers": 24,
        "hidden_size": 2048,
        "num_attention_heads": 32,
        "vocab_size": 50304,
        "alibi": True,
        "bias": True,
        "multi_query": False,
        "new_decoder_architecture": False,
        "parallel_attn": False,
    },
    "falcon-7b-cut": {
        "model_type": "falcon",
        "num_hidden_layers": 12,
        "hidden_size": 4544,
        "num_attention_heads": 71,
        "vocab_size": 65024,
        "alibi": False,
        "bias": False,
        "multi_query": True,
        "new_decoder_architecture": False,
        "parallel_attn": True,
    },
    "bloom-560m": {
        "model_type": "bloom", "n_layer": 24, "hidden_size": 1024, "n_head": 16,
        "vocab_size": 250880,
    },
    "bloom-1b1": {
        "model_type": "bloom", "n_layer": 24, "hidden_size": 1536, "n_head": 16,
        "vocab_size": 250880,
    },
    "starcoder2-3b": _sizes(
        "starcoder2", 30, 3072, 24, 2, 12288, 49152, **_TIED, use_bias=True,
        hidden_act="gelu_pytorch_tanh", residual_dropout=0.1, embedding_dropout=0.1,
        attention_dropout=0.1, sliding_window=4096,
    ),
    "stablelm2-1.6b": _sizes(
        "stablelm", 24, 2048, 32, 32, 5632, 100352, **_APART, use_qkv_bias=True,
        partial_rotary_factor=0.25,
    ),
    "granite-2b": _sizes(
        "granite", 40, 2048, 32, 8, 8192, 49155, **_TIED, attention_dropout=0.1, pad_token_id=0,
        embedding_multiplier=12.0, logits_scaling=8.0, residual_multiplier=0.22,
        attention_multiplier=0.015625,
    ),
    "mixtral-cut": _sizes(
        "mixtral", 12, 1024, 16, 4, 3584, 32000, **_APART, num_local_experts=8,
        num_experts_per_tok=2, sliding_window=None,
    ),
    "olmoe-cut": _sizes("olmoe", 6, 2048, 16, 16, 1024, 50304, **_EXPERTS, pad_token_id=1),
    "qwen3-moe-cut": _sizes(
        "qwen3_moe", 6, 2048, 32, 4, 6144, 151936, **_EXPERTS, head_dim=128,
        moe_intermediate_size=768,
    ),
    "phi3-mini": _known("phi3", "phi-3-mini", pad_token_id=0),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class HeldOutCase:
    """One run: `loop` is what trains it, `weights` the dtype of its (frozen) weights in bits.

    `optimizer` is the product's name. `rank` 0 without adapter. `board_gib` 0 for the usual limit.
    """

    group: str
    loop: str
    model: str
    weights: int
    autocast: bool
    micro_batch: int
    sequence: int
    optimizer: str = "adamw"
    recompute: bool = False
    accumulation: int = 1
    rank: int = 0
    linear: bool = True
    lora_dropout: float = 0.0
    attention: str = "sdpa"
    varies: bool = False
    compiled: bool = False
    smoothing: float = 0.0
    board_gib: float = 0.0

    @property
    def name(self) -> str:
        """All that sets the case apart."""
        kind = f"{'bf16' if self.weights == 16 else 'fp32'}{' autocast' if self.autocast else ''}"
        words = [self.group, self.loop, self.model, kind, f"{self.micro_batch} x {self.sequence}"]
        if self.rank:
            words.append(f"rank {self.rank} {'linear' if self.linear else 'attention'}")
        words += [f"dropout {self.lora_dropout}"] if self.lora_dropout else []
        words += [f"{self.accumulation} micro-batches"] if self.accumulation > 1 else []
        words += ["recomputed"] if self.recompute else []
        words += [self.attention] if self.attention != "sdpa" else []
        words += ["lengths vary"] if self.varies else []
        words += ["compiled"] if self.compiled else []
        words += [f"smoothing {self.smoothing}"] if self.smoothing else []
        words += [f"board {self.board_gib:g}"] if self.board_gib else []
        return ", ".join([*words, self.optimizer])


def _amp(
    group: str, loop: str, model: str, micro_batch: int, sequence: int, **more: Any
) -> HeldOutCase:
    """A whole model with fp32 weights under bf16 autocast."""
    return HeldOutCase(group, loop, model, 32, True, micro_batch, sequence, **more)


def _bf16(
    group: str, loop: str, model: str, micro_batch: int, sequence: int, **more: Any
) -> HeldOutCase:
    """A whole model in bf16 without autocast."""
    return HeldOutCase(group, loop, model, 16, False, micro_batch, sequence, **more)


def _lora(
    group: str, loop: str, model: str, micro_batch: int, sequence: int, **more: Any
) -> HeldOutCase:
    """An adapter of rank 16 on bf16 weights under autocast."""
    given = {"rank": 16} | more
    return HeldOutCase(group, loop, model, 16, True, micro_batch, sequence, **given)


def _cast(
    group: str, loop: str, model: str, micro_batch: int, sequence: int, **more: Any
) -> HeldOutCase:
    """An adapter of rank 16 on bf16 weights without autocast."""
    given = {"rank": 16} | more
    return HeldOutCase(group, loop, model, 16, False, micro_batch, sequence, **given)


_F, _T, _L, _A = "families", "transformers", "lightning", "accelerate"
_P, _O, _B, _S = "pytorch", "options", "limits", "serving"
CASES = (
    _amp(_F, _T, "qwen3-0.6b", 4, 1024, optimizer="adamw_fused"),
    _lora(_F, _T, "qwen3-1.7b", 4, 1024),
    _amp(_F, _T, "olmo2-1b", 2, 2048, optimizer="adamw_fused"),
    _bf16(_F, _T, "olmo2-1b", 4, 2048, recompute=True),
    _lora(_F, _T, "gemma2-2b", 2, 2048),
    _amp(_F, _T, "gemma3-1b", 2, 1024, optimizer="adamw_fused"),
    _bf16(_F, _T, "gemma3-1b", 2, 4096, recompute=True),
    _amp(_F, _T, "pythia-1b", 8, 1024),
    _bf16(_F, _T, "pythia-1.4b", 4, 2048, optimizer="adamw_fused"),
    _amp(_F, _T, "opt-1.3b", 4, 1024, optimizer="adamw_fused"),
    _lora(_F, _T, "opt-1.3b", 8, 1024, linear=False),
    _amp(_F, _T, "gpt2-large", 4, 1024),
    _bf16(_F, _T, "gpt2-medium", 16, 1024, recompute=True, optimizer="adamw_fused"),
    _amp(_F, _T, "falcon-rw-1b", 4, 1024),
    _lora(_F, _T, "falcon-7b-cut", 4, 1024),
    _amp(_F, _T, "bloom-560m", 4, 1024, optimizer="adamw_fused"),
    _lora(_F, _T, "bloom-1b1", 8, 1024),
    _bf16(_F, _T, "starcoder2-3b", 1, 2048),
    _lora(_F, _T, "starcoder2-3b", 2, 4096, recompute=True),
    _amp(_F, _T, "stablelm2-1.6b", 2, 2048, optimizer="adamw_fused"),
    _bf16(_F, _T, "granite-2b", 2, 2048),
    _lora(_F, _T, "granite-2b", 4, 1024),
    _amp(_F, _T, "mixtral-cut", 4, 1024),
    _bf16(_F, _T, "olmoe-cut", 2, 2048, optimizer="adamw_fused"),
    _bf16(_F, _T, "qwen3-moe-cut", 2, 2048, recompute=True),
    _lora(_F, _T, "qwen3-moe-cut", 4, 1024, linear=False),
    _lora(_F, _T, "phi3-mini", 2, 2048),
    _amp(_P, _P, "llama3.2-1b", 4, 1024),
    _amp(_P, _P, "qwen2.5-0.5b", 8, 1024, optimizer="adamw_fused"),
    _bf16(_P, _P, "tinyllama-1.1b", 4, 2048),
    _bf16(_P, _P, "llama3.2-1b", 4, 2048, recompute=True, optimizer="adamw_fused"),
    HeldOutCase(_P, _P, "qwen2.5-0.5b", 32, False, 4, 1024),
    HeldOutCase(_P, _P, "pythia-1b", 32, False, 4, 1024, recompute=True),
    _amp(_P, _P, "qwen3-1.7b", 4, 2048, recompute=True),
    _bf16(_P, _P, "llama3.2-3b", 1, 2048, optimizer="sgd_momentum"),
    _amp(_P, _P, "qwen2.5-1.5b", 2, 1024, optimizer="adafactor"),
    _amp(_P, _P, "tinyllama-1.1b", 2, 2048, accumulation=4, optimizer="adamw_fused"),
    _lora(_P, _P, "llama3-8b", 1, 2048, linear=False),
    _cast(_P, _P, "qwen2.5-3b", 4, 1024),
    _amp(_P, "nanogpt", "nanogpt-350m", 16, 1024, optimizer="adamw_fused"),
    _amp(_P, "nanogpt", "nanogpt-124m", 32, 1024, optimizer="adamw_fused"),
    _bf16(_P, "nanogpt", "nanogpt-350m", 16, 1024),
    _amp(_A, _A, "qwen2.5-0.5b", 8, 1024),
    _amp(_A, _A, "llama3.2-1b", 2, 2048, accumulation=4, optimizer="adamw_fused"),
    _lora(_A, _A, "mistral-7b", 1, 2048),
    _bf16(_A, _A, "qwen2.5-1.5b", 4, 2048, recompute=True, optimizer="adamw_fused"),
    _amp(_L, _L, "llama3.2-1b", 2, 2048),
    _amp(_L, _L, "qwen2.5-0.5b", 8, 1024, recompute=True, optimizer="adamw_fused"),
    _bf16(_L, _L, "tinyllama-1.1b", 4, 2048),
    _bf16(_L, _L, "llama3.2-3b", 4, 1024, recompute=True, optimizer="adamw_fused"),
    _lora(_L, _L, "qwen2.5-3b", 4, 1024),
    _cast(_L, _L, "mistral-7b", 2, 1024),
    HeldOutCase(_L, _L, "qwen3-0.6b", 32, False, 2, 2048, optimizer="adamw_fused"),
    _amp(_L, _L, "tinyllama-1.1b", 4, 1024, accumulation=4),
    _amp(_O, _T, "qwen2.5-0.5b", 8, 2048, varies=True),
    _bf16(_O, _T, "llama3.2-1b", 8, 2048, varies=True, recompute=True, optimizer="adamw_fused"),
    _lora(_O, _T, "llama3-8b", 4, 2048, varies=True, recompute=True),
    _lora(_O, _T, "gemma-2b", 4, 1024, varies=True),
    _bf16(_O, _T, "qwen2.5-1.5b", 8, 1024, recompute=True, accumulation=4),
    _amp(_O, _T, "tinyllama-1.1b", 4, 2048, recompute=True, accumulation=2),
    _amp(_O, _T, "qwen3-0.6b", 2, 2048, attention="eager", optimizer="adamw_fused"),
    _lora(_O, _T, "opt-1.3b", 4, 1024, attention="eager"),
    _amp(_O, _T, "llama3.2-1b", 2, 1024, smoothing=0.1),
    _amp(_O, _T, "qwen2.5-1.5b", 4, 1024, recompute=True, optimizer="adafactor"),
    _bf16(_O, _T, "tinyllama-1.1b", 8, 1024, optimizer="adafactor"),
    _cast(_O, _T, "qwen2.5-1.5b", 4, 2048),
    _cast(_O, _T, "llama3-8b", 1, 4096, recompute=True, linear=False, rank=64),
    _cast(_O, _T, "tinyllama-1.1b", 8, 1024, linear=False),
    _lora(_O, _T, "llama3.2-3b", 4, 1024, lora_dropout=0.1, rank=128),
    HeldOutCase(_O, _T, "qwen2.5-1.5b", 32, True, 4, 1024, rank=16),
    HeldOutCase(_O, _T, "llama3.2-1b", 32, False, 2, 1024),
    _bf16(_S, "generate", "llama3-8b", 32, 1056),
    _bf16(_S, "generate", "qwen2.5-3b", 64, 544),
    _bf16(_S, "generate", "gpt2-large", 128, 544),
    _bf16(_S, "generate", "gemma-2b", 8, 4128),
    _amp(_B, _T, "llama3.2-1b", 4, 1024, optimizer="adamw_fused", board_gib=39.77),
    _lora(_B, _T, "mistral-7b", 2, 2048, board_gib=56.82),
    _bf16(_B, _T, "qwen2.5-3b", 2, 2048, recompute=True, board_gib=38.26),
    _amp(_B, _T, "qwen3-0.6b", 8, 1024, recompute=True, board_gib=22.92),
    _lora(_B, _T, "llama3.2-3b", 4, 2048, board_gib=50.49),
    _bf16(_B, _T, "tinyllama-1.1b", 4, 2048, board_gib=24.93),
    _amp(_B, _T, "pythia-1b", 4, 2048, board_gib=28.72),
    _lora(_B, _T, "qwen2.5-3b", 4, 2048, board_gib=61.21),
    _bf16(_B, _P, "llama3.2-1b", 8, 1024, board_gib=33.97),
    _amp(_B, _L, "qwen2.5-0.5b", 6, 1024, board_gib=27.27),
    _amp(_O, _T, "qwen2.5-0.5b", 8, 1024, compiled=True),
    _amp(_P, "nanogpt", "nanogpt-124m", 24, 1024, compiled=True, optimizer="adamw_fused"),
)
"""Those compiled come last: they take longest.

The boards of the limits were set by the estimates: the first three runs were just offered as
fitting, the next three just refused, and the last four just let start.
"""


def job_of(case: HeldOutCase) -> TrainingJob:
    """Return the job of a case as a user would say it, with the framework's usual name.

    The precision of an adapter is left to the framework, as launch commands are read, unless it
    runs without autocast (bf16-true) or its frozen weights are in fp32 (amp).
    """
    serves = case.loop == "generate"
    method = Method.INFERENCE if serves else Method.ADAPTER if case.rank else Method.FULL
    precision = "amp" if case.autocast else "bf16-true" if case.weights == 16 else "fp32"
    if serves or (case.rank and case.autocast and case.weights == 16):
        precision = ""
    adapter = Adapter(
        rank=case.rank,
        targets=LINEAR if case.linear else ATTENTION,
        dropout=case.lora_dropout > 0,
    )
    return TrainingJob(
        shape=shape_from_config(MODELS[case.model], name=case.model).shape,
        framework={"nanogpt": "pytorch", "generate": "transformers"}.get(case.loop, case.loop),
        method=method,
        adapter=adapter if case.rank else None,
        micro_batch=case.micro_batch,
        sequence_length=case.sequence,
        length_varies=case.varies,
        gradient_accumulation=case.accumulation,
        precision=precision or None,
        optimizer=None if serves else case.optimizer,
        recompute=Recompute.FULL if case.recompute else Recompute.NONE,
        flash_attention=case.attention != "eager",
        compiled=case.compiled,
    )
