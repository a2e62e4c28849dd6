"""Peak GPU memory of the runs of `_held_out_cases`, as `measure_memory` measures its own.

`python -m benchmarks.measure_held_out --out FILE.json` needs an NVIDIA GPU with torch,
transformers, accelerate, peft and pytorch-lightning; it downloads nothing. With `--tiny` models
have one layer: that shows whether everything runs.
"""

import logging
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from importlib import import_module
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from benchmarks._gpu_memory import DEVICE, Gpu, count_parameters, measure_and_write
from benchmarks._held_out_cases import BESIDE_TORCH_BYTES, CASES, MODELS, OPTIMIZERS, HeldOutCase

STEPS = 4
NEW_TOKENS = 32
_RATE = 1e-5
_TINY = "--tiny" in sys.argv


def _configuration(case: HeldOutCase) -> dict[str, Any]:
    config = MODELS[case.model]
    if not _TINY:
        return config
    layers = "n_layer" if "n_layer" in config else "num_hidden_layers"
    return config | {layers: 1, "vocab_size": 1024}


def _sizes(case: HeldOutCase) -> tuple[int, int]:
    """Return sequences of a micro-batch and tokens of a sequence."""
    return (2, 64) if _TINY else (case.micro_batch, case.sequence)


def _dtype(case: HeldOutCase) -> Any:
    return getattr(import_module("torch"), "bfloat16" if case.weights == 16 else "float32")


def _model(case: HeldOutCase) -> Any:
    """Return the model on the GPU, with random weights and its adapter."""
    torch, transformers = import_module("torch"), import_module("transformers")
    if case.loop == "nanogpt":
        return _own_gpt(_configuration(case)).to(DEVICE, _dtype(case))
    config = transformers.AutoConfig.for_model(**_configuration(case))
    # What a family cannot do it replaces itself, unless it is asked for.
    wanted = case.attention if case.attention != "sdpa" else None
    with torch.device(DEVICE):
        model = transformers.AutoModelForCausalLM.from_config(
            config, dtype=_dtype(case), attn_implementation=wanted
        )
        if not case.rank:
            return model
        peft = import_module("peft")
        adapter = peft.LoraConfig(
            r=case.rank,
            lora_alpha=2 * case.rank,
            lora_dropout=case.lora_dropout,
            target_modules="all-linear" if case.linear else _attention_modules(case),
            task_type="CAUSAL_LM",
        )
        return peft.get_peft_model(model, adapter)


def _attention_modules(case: HeldOutCase) -> list[str]:
    output = "out_proj" if case.model.startswith("opt") else "o_proj"
    return ["q_proj", "k_proj", "v_proj", output]


def _own_gpt(config: dict[str, Any]) -> Any:
    """Return a GPT in plain PyTorch, as a tutorial writes it: no dropout, a tied head."""
    torch = import_module("torch")
    nn, functional = torch.nn, torch.nn.functional
    width, heads, vocab = config["n_embd"], config["n_head"], config["vocab_size"]

    class Block(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
            self.attention, self.output = nn.Linear(width, 3 * width), nn.Linear(width, width)
            self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

        def forward(self, stream: Any) -> Any:
            batch, tokens, _ = stream.shape
            parts = self.attention(self.norms[0](stream)).split(width, dim=2)
            query, key, value = (
                part.view(batch, tokens, heads, width // heads).transpose(1, 2) for part in parts
            )
            mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
            stream = stream + self.output(mixed.transpose(1, 2).reshape(batch, tokens, width))
            return stream + self.down(functional.gelu(self.up(self.norms[1](stream))))

    class Gpt(nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(vocab, width)
            self.positions = nn.Embedding(config["n_positions"], width)
            self.blocks = nn.Sequential(*(Block() for _ in range(config["n_layer"])))
            self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, vocab, bias=False)
            self.head.weight = self.words.weight

        def forward(self, input_ids: Any, labels: Any, **_: Any) -> dict[str, Any]:
            places = torch.arange(input_ids.shape[1], device=input_ids.device)
            stream = self.blocks(self.words(input_ids) + self.positions(places))
            logits = self.head(self.norm(stream))
            loss = functional.cross_entropy(logits.view(-1, vocab), labels.view(-1))
            return {"loss": loss, "logits": logits}

    return Gpt()


def _samples(case: HeldOutCase) -> list[dict[str, Any]]:
    """Return token ids for all steps; where lengths vary, the longest and from a quarter of it."""
    micro_batch, sequence = _sizes(case)
    count = micro_batch * case.accumulation * STEPS
    random = np.random.default_rng(0)
    lengths = np.full(count, sequence)
    if case.varies:
        lengths = random.integers(sequence // 4, sequence, size=count)
        lengths[random.integers(count)] = sequence
    vocab = int(_configuration(case)["vocab_size"])
    rows = [random.integers(3, vocab, size=length, dtype=np.int64) for length in lengths]
    return [{"input_ids": row, "attention_mask": np.ones_like(row), "labels": row} for row in rows]


def _padded(samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Return samples as one batch, padded to the longest of them."""
    torch = import_module("torch")
    longest = max(len(sample["input_ids"]) for sample in samples)
    padding = {"input_ids": 0, "attention_mask": 0, "labels": -100}

    def filled(name: str, sample: dict[str, Any]) -> Any:
        row = np.full(longest, padding[name], dtype=np.int64)
        row[: len(sample[name])] = sample[name]
        return torch.from_numpy(row)

    return {name: torch.stack([filled(name, row) for row in samples]) for name in padding}


def _loader(case: HeldOutCase) -> Any:
    data = import_module("torch").utils.data
    return data.DataLoader(_samples(case), batch_size=_sizes(case)[0], collate_fn=_padded)


def _optimizer(case: HeldOutCase, model: Any) -> Any:
    optim = import_module("torch").optim
    weights = [weight for weight in model.parameters() if weight.requires_grad]
    if case.optimizer == "adafactor":
        return optim.Adafactor(weights, lr=_RATE)
    if case.optimizer == "sgd_momentum":
        return optim.SGD(weights, lr=_RATE, momentum=0.9)
    return optim.AdamW(weights, lr=_RATE, fused=case.optimizer == "adamw_fused" or None)


def _prepared(case: HeldOutCase, row: dict[str, Any]) -> Any:
    """Return the model as a training script has it before its first step."""
    model = _model(case)
    count_parameters(model, row)
    if case.recompute:
        model.gradient_checkpointing_enable()
        if case.rank:
            model.enable_input_require_grads()
    model.train()
    return import_module("torch").compile(model) if case.compiled else model


def _train_in_trainer(case: HeldOutCase, gpu: Gpu, row: dict[str, Any]) -> None:
    transformers = import_module("transformers")
    model = _model(case)
    count_parameters(model, row)
    with TemporaryDirectory() as folder:
        arguments = transformers.TrainingArguments(
            output_dir=folder,
            max_steps=STEPS,
            per_device_train_batch_size=_sizes(case)[0],
            gradient_accumulation_steps=case.accumulation,
            gradient_checkpointing=case.recompute,
            bf16=case.autocast,
            optim=OPTIMIZERS.get(case.optimizer, case.optimizer),
            learning_rate=_RATE,
            label_smoothing_factor=case.smoothing,
            torch_compile=case.compiled,
            save_strategy="no",
            logging_strategy="no",
            report_to=[],
            disable_tqdm=True,
            log_level="error",
        )
        trainer = transformers.Trainer(
            model=model, args=arguments, train_dataset=_samples(case), data_collator=_padded
        )
        trainer.remove_callback(transformers.PrinterCallback)
        trainer.train()
        row.update(gpu.readings(), steps=trainer.state.global_step)


def _batches(case: HeldOutCase) -> Iterator[tuple[bool, Any]]:
    """Yield every batch, with whether the optimiser steps after it."""
    for index, batch in enumerate(_loader(case)):
        yield (index + 1) % case.accumulation == 0, batch


def _train_in_loop(case: HeldOutCase, gpu: Gpu, row: dict[str, Any]) -> None:
    """Train as a script of one's own does, that keeps the outputs of the model until the next."""
    torch = import_module("torch")
    model = _prepared(case, row)
    optimizer = _optimizer(case, model)
    for steps_now, batch in _batches(case):
        placed = {name: tensor.to(DEVICE) for name, tensor in batch.items()}
        autocast: AbstractContextManager[Any] = nullcontext()
        if case.autocast:
            autocast = torch.autocast(DEVICE.partition(":")[0], dtype=torch.bfloat16)
        with autocast:
            outputs = model(**placed)
            loss = outputs["loss"] / case.accumulation
        loss.backward()
        if steps_now:
            optimizer.step()
            optimizer.zero_grad()
            row["steps"] += 1
    row.update(gpu.readings())


def _train_in_accelerate(case: HeldOutCase, gpu: Gpu, row: dict[str, Any]) -> None:
    accelerate = import_module("accelerate")
    # One process has one precision, so the state of the last case is dropped.
    accelerate.state.AcceleratorState._reset_state(True)  # noqa: SLF001 - no public name
    accelerator = accelerate.Accelerator(
        mixed_precision="bf16" if case.autocast else "no",
        gradient_accumulation_steps=case.accumulation,
    )
    model = _prepared(case, row)
    model, optimizer, loader = accelerator.prepare(model, _optimizer(case, model), _loader(case))
    for batch in loader:
        with accelerator.accumulate(model):
            outputs = model(**batch)
            accelerator.backward(outputs.loss)
            optimizer.step()
            optimizer.zero_grad()
        row["steps"] += accelerator.sync_gradients
    row.update(gpu.readings())
    accelerator.free_memory()


def _train_in_lightning(case: HeldOutCase, gpu: Gpu, row: dict[str, Any]) -> None:
    lightning = import_module("pytorch_lightning")
    logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)

    class Module(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.model = _prepared(case, row)

        def training_step(self, batch: Any, _: int) -> Any:
            return self.model(**batch).loss

        def configure_optimizers(self) -> Any:
            return _optimizer(case, self.model)

        def on_train_end(self) -> None:
            row.update(gpu.readings(), steps=self.global_step)

    precision = "bf16-mixed" if case.autocast else "bf16-true"
    trainer = lightning.Trainer(
        accelerator="cpu" if DEVICE == "cpu" else "gpu",
        devices=1,
        precision=precision if case.autocast or case.weights == 16 else "32-true",
        max_steps=STEPS,
        accumulate_grad_batches=case.accumulation,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(Module(), _loader(case))


def _generate(case: HeldOutCase, gpu: Gpu, row: dict[str, Any]) -> None:
    torch = import_module("torch")
    model = _model(case).eval()
    count_parameters(model, row)
    batch = next(iter(_loader(case)))
    prompt = batch["input_ids"][:, :-NEW_TOKENS].to(DEVICE)
    with torch.no_grad():
        model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=NEW_TOKENS,
            min_new_tokens=NEW_TOKENS,
            do_sample=False,
            pad_token_id=0,
        )
    row.update(gpu.readings(), steps=NEW_TOKENS)


_LOOPS = {
    "transformers": _train_in_trainer,
    "pytorch": _train_in_loop,
    "nanogpt": _train_in_loop,
    "accelerate": _train_in_accelerate,
    "lightning": _train_in_lightning,
    "generate": _generate,
}


def _train(case: HeldOutCase, gpu: Gpu, row: dict[str, Any]) -> None:
    _LOOPS[case.loop](case, gpu, row)


def _described(case: HeldOutCase) -> dict[str, Any]:
    limit = int(case.board_gib * 2**30) - BESIDE_TORCH_BYTES if case.board_gib else None
    return {"name": case.name, **asdict(case), "limit_bytes": limit}


if __name__ == "__main__":
    if _TINY:
        sys.argv.remove("--tiny")
    measure_and_write(__doc__, CASES, _described, _train)
