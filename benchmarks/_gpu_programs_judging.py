"""Programs of other families than those that thresholds were set with, to judge the rule by."""

import importlib
import time
from typing import Any

import numpy as np

from benchmarks._gpu_programs import Program, Step, autocast, program
from data.records.slow_work import SlowCause

_BUSY, _STARVED = SlowCause.BUSY, SlowCause.STARVED
_SMALL, _NO_TENSOR = SlowCause.SMALL_BATCH, SlowCause.NO_TENSOR


PROGRAMS = (
    program("vit-b/16 bf16", "vit_b_16", _BUSY, batch=128),
    program("vit-b/16 fp32", "vit_b_16", _NO_TENSOR, "vit-b/16 bf16", batch=128, precision="fp32"),
    program("vit-b/16 bf16, batch 2", "vit_b_16", _SMALL, "vit-b/16 bf16", batch=2),
    program(
        "vit-b/16 bf16, two loading processes", "vit_b_16", _STARVED, "vit-b/16 bf16",
        batch=128, loader="workers",
    ),
    program("convnext-base bf16", "convnext_base", _BUSY, batch=64),
    program(
        "convnext-base fp32", "convnext_base", _NO_TENSOR, "convnext-base bf16",
        batch=64, precision="fp32",
    ),
    program("bert-base bf16", "bert", _BUSY, batch=32, length=512),
    program(
        "bert-base fp32", "bert", _NO_TENSOR, "bert-base bf16",
        batch=32, length=512, precision="fp32",
    ),
    program(
        "bert-base bf16, statistics on the CPU", "bert", _STARVED, "bert-base bf16",
        batch=32, length=512, loader="statistics",
    ),
    program("gpt2 bf16", "gpt2", _BUSY, batch=16, length=1024),
    program("gpt2 tf32", "gpt2", _BUSY, batch=16, length=1024, precision="tf32"),
    program(
        "gpt2 fp32", "gpt2", _NO_TENSOR, "gpt2 bf16", batch=16, length=1024, precision="fp32"
    ),
    program("gpt2 bf16, 1 x 128 tokens", "gpt2", _SMALL, "gpt2 bf16", batch=1, length=128),
    program(
        "gpt2 bf16, waits for storage", "gpt2", _STARVED, "gpt2 bf16",
        batch=16, length=1024, wait_seconds=0.1,
    ),
    program("mlp, 64 rows", "mlp", _SMALL, "mlp, 131,072 rows", width=1024, batch=64),
    program("mlp, 131,072 rows", "mlp", _BUSY, width=1024, batch=131_072),
    program("gru, batch 4", "gru", _SMALL, "gru, batch 512", width=512, batch=4, length=200),
    program("gru, batch 512", "gru", SlowCause.UNKNOWN, width=512, batch=512, length=200),
    program("softmax of rows", "softmax", SlowCause.UNKNOWN),
    program("sums over a graph's edges", "graph_sums", SlowCause.UNKNOWN),
    program("sort", "sort", SlowCause.UNKNOWN),
)  # fmt: skip


def _loss_step(torch: Any, program: Program, model: Any, loss: Any, items: int) -> Step:
    """Return a step of a model; `loss` makes its input as the program's loader does."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)

    def step() -> int:
        time.sleep(program.wait_seconds)
        if program.loader == "statistics":
            np.linalg.svd(np.random.default_rng(0).random((700, 700)))
        optimizer.zero_grad(set_to_none=True)
        loss().backward()
        optimizer.step()
        return items

    return step


class _Images:
    """Images made by a process for each batch, as a decoder would."""

    def __init__(self, batch: int) -> None:
        self.batch = batch

    def __len__(self) -> int:
        return 1_000_000

    def __getitem__(self, number: int) -> Any:
        torch = importlib.import_module("torch")
        torch.set_num_threads(1)
        raw = torch.randint(0, 255, (self.batch, 3, 288, 288), dtype=torch.uint8).float()
        resize = torch.nn.functional.interpolate
        return resize(raw, size=(224, 224), mode="bicubic", antialias=True) / 255


def _vision(torch: Any, program: Program) -> Step:
    model = getattr(importlib.import_module("torchvision").models, program.work)().cuda()
    resident = torch.randn((program.batch, 3, 224, 224), device="cuda")
    labels = torch.randint(0, 1000, (program.batch,), device="cuda")
    loading = iter(())
    if program.loader:
        loading = iter(
            torch.utils.data.DataLoader(
                _Images(program.batch), batch_size=None, num_workers=2,
                multiprocessing_context="spawn",
            )
        )  # fmt: skip

    def loss() -> Any:
        images = next(loading).cuda() if program.loader else resident
        with autocast(torch, program):
            out = model(images)
        return torch.nn.functional.cross_entropy(out.float(), labels)

    return _loss_step(torch, program, model, loss, program.batch)


def _language(torch: Any, program: Program) -> Step:
    transformers = importlib.import_module("transformers")
    if program.work == "bert":
        model = transformers.BertForMaskedLM(transformers.BertConfig()).cuda()
    else:
        model = transformers.GPT2LMHeadModel(transformers.GPT2Config()).cuda()
    tokens = torch.randint(0, 30_000, (program.batch, program.length), device="cuda")

    def loss() -> Any:
        with autocast(torch, program):
            return model(input_ids=tokens, labels=tokens).loss

    return _loss_step(torch, program, model, loss, program.batch * program.length)


def _mlp(torch: Any, program: Program) -> Step:
    layers = [torch.nn.Linear(program.width, program.width) for _ in range(6)]
    parts = [part for layer in layers for part in (layer, torch.nn.ReLU())]
    model = torch.nn.Sequential(*parts).cuda()
    rows = torch.randn((program.batch, program.width), device="cuda")

    def loss() -> Any:
        with autocast(torch, program):
            out = model(rows)
        return out.float().square().mean()

    return _loss_step(torch, program, model, loss, program.batch)


def _gru(torch: Any, program: Program) -> Step:
    model = torch.nn.GRU(program.width, program.width, 2, batch_first=True, device="cuda")
    rows = torch.randn((program.batch, program.length, program.width), device="cuda")

    def loss() -> Any:
        with autocast(torch, program):
            out, _ = model(rows)
        return out.float().square().mean()

    return _loss_step(torch, program, model, loss, program.batch)


def _softmax(torch: Any, _program: Program) -> Step:
    rows = torch.randn((2**15, 2**14), device="cuda")

    def step() -> int:
        for _ in range(10):
            torch.softmax(rows, dim=1)
        return 10

    return step


def _graph_sums(torch: Any, _program: Program) -> Step:
    nodes = torch.randn((1_000_000, 128), device="cuda")
    ends = torch.randint(0, 1_000_000, (2, 10_000_000), device="cuda")

    def step() -> int:
        torch.zeros_like(nodes).index_add_(0, ends[0], nodes[ends[1]])
        return 1

    return step


def _sort(torch: Any, _program: Program) -> Step:
    values = torch.randn(2**28, device="cuda")

    def step() -> int:
        torch.sort(values)
        return 1

    return step


WORK = {
    **dict.fromkeys(("vit_b_16", "convnext_base"), _vision),
    **dict.fromkeys(("bert", "gpt2"), _language),
    "mlp": _mlp,
    "gru": _gru,
    "softmax": _softmax,
    "graph_sums": _graph_sums,
    "sort": _sort,
}
