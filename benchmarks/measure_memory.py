"""Peak GPU memory of short real training runs of random weights, to judge predictions by.

`python -m benchmarks.measure_memory --out FILE.json` needs an NVIDIA GPU with torch, transformers,
accelerate and peft; it downloads nothing. Each case trains for four steps with the Trainer.
"""

import argparse
import gc
import json
import os
import time
import traceback
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib import import_module
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pynvml

from planner.memory.known_models import known_model

STEPS = 4
DEVICE = "cuda:0"
_LIMIT_BYTES = int(78.6 * 2**30)
"""What torch may take, so that a larger board gives the rows of an 80 GB one."""
ATTENTION = ("q", "k", "v", "o")
LINEAR = (*ATTENTION, "gate", "up", "down")
_CLEAN_BYTES = 64 * 2**20
"""What may be left of a case: buffers of libraries."""
_OUT_OF_MEMORY = ("out of memory", "ALLOC_FAILED")

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


class Gpu:
    """The GPU of this process as NVML sees it, from before the first model on."""

    def __init__(self) -> None:
        torch = import_module("torch")
        torch.zeros(1, device=DEVICE)
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        self.total_bytes = int(torch.cuda.get_device_properties(0).total_memory)
        self.driver: str | None = None
        with suppress(pynvml.NVMLError):
            pynvml.nvmlInit()
            self.driver = str(pynvml.nvmlSystemGetDriverVersion())
        self.baseline_bytes = self.used_bytes()

    def used_bytes(self) -> int | None:
        """Return what NVML calls used, without what the driver keeps; None where it is silent."""
        with suppress(pynvml.NVMLError):
            handle = pynvml.nvmlDeviceGetHandleByIndex(0)
            return int(pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2).used)
        return None

    def readings(self) -> dict[str, int | None]:
        """Return what is taken now, and the peaks since the last cleaning."""
        cuda = import_module("torch").cuda
        return {
            "peak_allocated_bytes": int(cuda.max_memory_allocated()),
            "peak_reserved_bytes": int(cuda.max_memory_reserved()),
            "reserved_bytes": int(cuda.memory_reserved()),
            "nvml_used_bytes": self.used_bytes(),
        }


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
    weights = list(model.parameters())
    seen["parameters"] = sum(weight.numel() for weight in weights)
    trained = [weight for weight in weights if weight.requires_grad]
    seen["trainable_parameters"] = sum(weight.numel() for weight in trained)
    seen["trainable_dtype"] = str(trained[0].dtype).removeprefix("torch.")
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


def _clean() -> int | None:
    """Return the bytes that are still allocated after all of a case was let go, None if unknown."""
    torch = import_module("torch")
    gc.collect()
    with suppress(RuntimeError):
        torch.cuda.synchronize()
        with suppress(AttributeError):
            # The buffers of cuBLAS are torch's tensors; without this the next case inherits them.
            torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001 - no public name
        gc.collect()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        return int(torch.cuda.memory_allocated())
    return None


def _failure(error: Exception) -> dict[str, Any]:
    """Return what a row says of a case that did not end."""
    text = f"{type(error).__name__}: {error}"
    oom = any(words in text for words in _OUT_OF_MEMORY)
    file, number, *_ = traceback.extract_tb(error.__traceback__)[-1]
    return {"oom": oom, "error": text[:1000], "raised_at": f"{Path(file).name}:{number}"}


def measure(case: Case, gpu: Gpu) -> dict[str, Any]:
    """Return the row of a case; one that fails has the peaks before it, and the error's text."""
    method, dtype, autocast = _POLICIES[case.policy]
    given = asdict(case)
    row = {
        "name": case.name,
        **{f"lora_{field}": given.pop(field) for field in ("rank", "targets", "dropout")},
        **given,
        "shape": configuration(case),
        "weights_dtype": dtype,
        "autocast": "bfloat16" if autocast else "",
        "method": method,
        "steps": 0,
        **dict.fromkeys(("parameters", "trainable_parameters", "seconds_per_step")),
        "baseline_nvml_bytes": gpu.baseline_bytes,
        "total_bytes": gpu.total_bytes,
        "oom": False,
        "error": "",
    }
    try:
        _train(case, gpu, row)
    except Exception as error:  # noqa: BLE001 - one case must not cost the others
        row.update(gpu.readings())
        row.update(_failure(error))
        traceback.clear_frames(error.__traceback__)
    return row


def _header(gpu: Gpu) -> dict[str, Any]:
    """Return what the machine runs."""
    libraries = ("torch", "transformers", "peft", "accelerate")
    return {
        "gpu": import_module("torch").cuda.get_device_name(0),
        "driver": gpu.driver,
        **{name: str(import_module(name).__version__) for name in libraries},
        "allocator": os.environ.get("PYTORCH_CUDA_ALLOC_CONF", ""),
        "total_bytes": gpu.total_bytes,
        "limit_bytes": _LIMIT_BYTES,
        "baseline_nvml_bytes": gpu.baseline_bytes,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _line(row: dict[str, Any]) -> str:
    """Return a row as one printed line."""
    figures = [row[f"{name}_bytes"] for name in ("peak_allocated", "peak_reserved", "nvml_used")]
    peaks = " ".join("     ?" if size is None else f"{size / 2**30:6.2f}" for size in figures)
    end = "out of memory" if row["oom"] else row["error"][:200]
    return f"{row['name']:72} {peaks} GiB {row['wall_seconds']:5.1f} s {end}"


def rows(cases: Iterable[Case], gpu: Gpu, until: float) -> Iterator[dict[str, Any]]:
    """Yield the row of each case that begins before the monotonic time `until`."""
    _clean()
    for case in cases:
        begun = time.monotonic()
        if begun >= until:
            return
        row = measure(case, gpu)
        left = row["allocated_after_bytes"] = _clean()
        row["wall_seconds"] = time.monotonic() - begun
        clean = left is not None and left <= _CLEAN_BYTES
        row["note"] = "" if clean else f"{left} bytes are still allocated after the case"
        yield row


def measure_and_write() -> None:
    """Measure the cases and write them to a file after each of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seconds", type=float, default=170.0, help="no case begins after them")
    parser.add_argument("--only", default="", help="only cases with this in their name")
    arguments = parser.parse_args()
    until = time.monotonic() + arguments.seconds
    # Nothing is fetched: a library that would ask the network fails at once instead of waiting.
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    gpu = Gpu()
    cuda = import_module("torch").cuda
    cuda.set_per_process_memory_fraction(min(1.0, _LIMIT_BYTES / gpu.total_bytes))
    header, done = _header(gpu), []
    for row in rows([case for case in CASES if arguments.only in case.name], gpu, until):
        done.append(row)
        print(_line(row), flush=True)
        text = json.dumps({"header": header, "rows": done}, indent=1)
        arguments.out.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    measure_and_write()
