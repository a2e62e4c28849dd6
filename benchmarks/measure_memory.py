"""Peak GPU memory of short real training runs of random weights, to judge predictions by.

`python -m benchmarks.measure_memory --out FILE.json` needs an NVIDIA GPU with torch, transformers,
accelerate and peft; it downloads nothing. Each case trains for four steps with the Trainer.
"""

import time
from dataclasses import asdict, dataclass
from importlib import import_module
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks._gpu_memory import DEVICE, Gpu, count_parameters, measure_and_write
from planner.memory.models.model_sizes import known_model

STEPS = 4
ATTENTION = ("q", "k", "v", "o")
LINEAR = (*ATTENTION, "gate", "up", "down")

_POLICIES = {
    "amp": ("full", "float32", True),
    "bf16": ("full", "bfloat16", False),
    "lora": ("lora", "bfloat16", True),
    "lora-cast": ("lora", "bfloat16", False),
}
"""Method, dtype of the weights and whether the steps run under bf16 autocast.

peft keeps adapters in fp32 over bf16 weights; without autocast it casts at each adapter.
"""

_FAMILIES: dict[str, dict[str, Any]] = {
    "qwen": {"model_type": "qwen2"},
    "llama": {"model_type": "llama"},
    "tinyllama": {"model_type": "llama"},
    "mistral": {"model_type": "mistral", "sliding_window": None},
    "gemma": {"model_type": "gemma"},
    "phi": {"model_type": "phi", "resid_pdrop": 0.1, "partial_rotary_factor": 0.4},
}
"""What the public models set beside their sizes, by the letters that their names begin with."""


@dataclass(frozen=True, slots=True)
class Case:
    """One training run; `rank` 0 without adapter, `dropout` that of the adapter."""

    model: str
    policy: str
    micro_batch: int
    sequence: int
    optimizer: str = "adamw_torch"
    recompute: bool = False
    accumulation: int = 1
    rank: int = 0
    targets: tuple[str, ...] = ()
    attention: str = "sdpa"
    dropout: float = 0.0

    @property
    def name(self) -> str:
        """All that sets the case apart."""
        parts = [self.model, self.policy, f"b{self.micro_batch}", f"s{self.sequence}"]
        if self.rank:
            parts.append(f"r{self.rank}-{'linear' if self.targets == LINEAR else 'attention'}")
        parts += [f"dropout{self.dropout}"] if self.dropout else []
        parts += [f"a{self.accumulation}"] if self.accumulation > 1 else []
        parts += ["recompute"] if self.recompute else []
        parts += [self.attention] if self.attention != "sdpa" else []
        return " ".join((*parts, self.optimizer))


CASES = (
    Case("qwen2.5-0.5b", "amp", 4, 1024),
    Case("llama3-8b", "lora", 1, 2048, recompute=True, rank=16, targets=LINEAR),
    Case("llama3.2-1b", "bf16", 2, 2048, "adamw_torch_fused"),
    Case("qwen2.5-1.5b", "amp", 8, 1024, recompute=True),
    Case("tinyllama-1.1b", "amp", 4, 2048, "adafactor"),
    Case("mistral-7b", "lora", 2, 2048, rank=8, targets=ATTENTION),
    Case("gemma-2b", "bf16", 1, 2048, "sgd"),
    Case("phi-2", "lora", 4, 1024, rank=16, targets=ATTENTION),
    Case("qwen2.5-3b", "bf16", 2, 4096, recompute=True),
    Case("llama3.2-3b", "lora-cast", 4, 1024, rank=64, targets=LINEAR),
    Case("qwen2.5-0.5b", "bf16", 1, 16384, "adamw_torch_fused", recompute=True),
    Case("llama3.2-3b", "amp", 3, 4096),  # beyond 80 GB by the predictor
    Case("tinyllama-1.1b", "amp", 2, 2048, attention="eager"),
    Case("qwen2.5-1.5b", "amp", 2, 2048, accumulation=4),
    Case("llama3.2-1b", "amp", 16, 512, "sgd"),
    Case("mistral-7b", "lora", 1, 8192, recompute=True, rank=64, targets=LINEAR),
    Case("phi-2", "bf16", 4, 1024, "adafactor", recompute=True),
    Case("gemma-2b", "lora", 2, 2048, "adamw_torch_fused", rank=8, targets=LINEAR),
    Case("qwen2.5-3b", "lora", 8, 512, accumulation=4, rank=16, targets=LINEAR, dropout=0.05),
    Case("llama3-8b", "lora", 4, 2048, rank=16, targets=LINEAR),  # beyond 80 GB by the predictor
    Case("qwen2.5-3b", "amp", 1, 2048, recompute=True),
    Case("llama3.2-1b", "amp", 4, 2048),
    Case("llama3-8b", "lora", 2, 2048, "adamw_torch_fused", rank=64, targets=LINEAR, dropout=0.05),
    Case("qwen2.5-0.5b", "amp", 16, 1024, "adamw_torch_fused"),
    Case("tinyllama-1.1b", "bf16", 4, 2048, recompute=True, accumulation=4),
    Case("mistral-7b", "lora-cast", 1, 4096, rank=16, targets=LINEAR),
    Case("llama3.2-3b", "amp", 2, 1024, "adamw_torch_fused", recompute=True),
    Case("qwen2.5-1.5b", "bf16", 4, 2048, "sgd"),
    Case("gemma-2b", "amp", 2, 1024, recompute=True),
    Case("phi-2", "lora", 2, 2048, rank=64, targets=LINEAR, dropout=0.05),
    Case("qwen2.5-1.5b", "lora", 1, 16384, recompute=True, rank=8, targets=ATTENTION),
    Case("qwen2.5-0.5b", "bf16", 2, 2048, attention="eager"),
    Case("tinyllama-1.1b", "lora", 16, 1024, "adafactor", rank=16, targets=ATTENTION),
    Case("qwen2.5-3b", "amp", 16, 1024),  # beyond 80 GB by the predictor
    Case("llama3.2-3b", "bf16", 4, 1024, "adamw_torch_fused", accumulation=4),
    Case("llama3.2-1b", "lora", 8, 1024, rank=8, targets=ATTENTION),
    Case("phi-2", "amp", 1, 1024, "adafactor"),
    Case("mistral-7b", "lora", 2, 1024, rank=16, targets=LINEAR, attention="eager"),
    Case("llama3.2-1b", "bf16", 1, 8192, "adafactor", recompute=True),
    Case("tinyllama-1.1b", "amp", 16, 512, accumulation=4),
    Case("phi-2", "bf16", 16, 2048),  # beyond 80 GB by the predictor
    Case("llama3-8b", "lora", 4, 1024, recompute=True, rank=8, targets=ATTENTION),
)
"""In an order in which the first twenty vary everything."""


def configuration(case: Case) -> dict[str, Any]:
    """Return the configuration of transformers of the case's model."""
    shape = known_model(case.model)
    family = next(name for name in _FAMILIES if case.model.startswith(name))
    return _FAMILIES[family] | {
        "hidden_size": shape.hidden,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.ffn,
        "vocab_size": shape.vocab,
        "tie_word_embeddings": shape.tied_embeddings,
        "max_position_embeddings": max(4096, case.sequence),
    }


def _module_names(case: Case) -> list[str]:
    """Return the names of the adapter's targets in transformers' modules."""
    if case.model.startswith("phi"):
        others = {"o": "dense", "up": "fc1", "down": "fc2"}
        return [others.get(target, f"{target}_proj") for target in case.targets if target != "gate"]
    return [f"{target}_proj" for target in case.targets]


def _model(case: Case) -> Any:
    """Return the model on the GPU, with random weights and its adapter."""
    torch, transformers = import_module("torch"), import_module("transformers")
    config = transformers.AutoConfig.for_model(**configuration(case))
    _, dtype, _ = _POLICIES[case.policy]
    with torch.device(DEVICE):
        model = transformers.AutoModelForCausalLM.from_config(
            config, dtype=getattr(torch, dtype), attn_implementation=case.attention
        )
        if not case.rank:
            return model
        peft = import_module("peft")
        adapter = peft.LoraConfig(
            r=case.rank,
            lora_alpha=2 * case.rank,
            lora_dropout=case.dropout,
            target_modules=_module_names(case),
            task_type="CAUSAL_LM",
        )
        return peft.get_peft_model(model, adapter)


def _samples(case: Case) -> list[dict[str, Any]]:
    """Return token ids of equal length without padding, enough for all steps."""
    count = case.micro_batch * case.accumulation * STEPS
    tokens = np.random.default_rng(0).integers(
        3, known_model(case.model).vocab, size=(count, case.sequence), dtype=np.int64
    )
    mask = np.ones(case.sequence, dtype=np.int64)
    return [{"input_ids": row, "attention_mask": mask, "labels": row} for row in tokens]


def _arguments(case: Case, folder: str) -> Any:
    """Return the Trainer's arguments of a case."""
    _, _, autocast = _POLICIES[case.policy]
    return import_module("transformers").TrainingArguments(
        output_dir=folder,
        max_steps=STEPS,
        per_device_train_batch_size=case.micro_batch,
        gradient_accumulation_steps=case.accumulation,
        gradient_checkpointing=case.recompute,
        bf16=autocast,
        optim=case.optimizer,
        learning_rate=1e-5,
        save_strategy="no",
        logging_strategy="no",
        report_to=[],
        disable_tqdm=True,
        log_level="error",
    )


def _watcher(gpu: Gpu, seen: dict[str, Any]) -> Any:
    """Return a callback that writes times and readings of the steps into `seen`."""
    torch, transformers = import_module("torch"), import_module("transformers")
    seconds: list[float] = []
    begun = [0.0]

    def begin(*_: Any, **__: Any) -> None:
        torch.cuda.synchronize()
        begun[0] = time.perf_counter()

    def end(*_: Any, **__: Any) -> None:
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begun[0])
        later = median(seconds[1:] or seconds)
        seen.update(gpu.readings(), steps=len(seconds), seconds_per_step=later)

    methods = {"on_step_begin": begin, "on_step_end": end}
    return type("Watcher", (transformers.TrainerCallback,), methods)()


def _train(case: Case, gpu: Gpu, seen: dict[str, Any]) -> None:
    """Train a case's model, with what is found written into `seen`."""
    transformers = import_module("transformers")
    model = _model(case)
    count_parameters(model, seen)
    with TemporaryDirectory() as folder:
        trainer = transformers.Trainer(
            model=model,
            args=_arguments(case, folder),
            train_dataset=_samples(case),
            callbacks=[_watcher(gpu, seen)],
        )
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
    seen.update(gpu.readings())


def described(case: Case) -> dict[str, Any]:
    """Return what the row of a case says of it."""
    method, dtype, autocast = _POLICIES[case.policy]
    given = asdict(case)
    return {
        "name": case.name,
        **{f"lora_{field}": given.pop(field) for field in ("rank", "targets", "dropout")},
        **given,
        "shape": configuration(case),
        "weights_dtype": dtype,
        "autocast": "bfloat16" if autocast else "",
        "method": method,
    }


if __name__ == "__main__":
    measure_and_write(__doc__, CASES, described, _train)
