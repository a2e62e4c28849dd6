"""Small programs for a GPU, most of them slow for a known cause, to be measured."""

import importlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from data.records.slow_work import SlowCause

Step = Callable[[], int]
"""Does one step, without waiting for the GPU; returns how many items it worked on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Program:
    """A program; without a cause it is one that no row of the rule is made for."""

    name: str
    work: str
    cause: SlowCause = SlowCause.UNKNOWN
    fixed_by: str = ""
    precision: str = "bf16"
    width: int = 2048
    layers: int = 12
    batch: int = 16
    length: int = 1024
    wait_seconds: float = 0.0
    loader: str = ""


def program(name: str, work: str, cause: SlowCause, fixed_by: str = "", **more: Any) -> Program:
    """Return a program; `more` are its sizes and how it gets its input."""
    return Program(name=name, work=work, cause=cause, fixed_by=fixed_by, **more)


PROGRAMS = (
    program("transformer bf16", "transformer", SlowCause.BUSY),
    program(
        "transformer bf16, loader waits", "transformer", SlowCause.STARVED, "transformer bf16",
        wait_seconds=0.3,
    ),
    program("resnet50 bf16", "resnet", SlowCause.BUSY, batch=256),
    program(
        "resnet50 bf16, images made on the CPU", "resnet", SlowCause.STARVED, "resnet50 bf16",
        batch=256, loader="cpu",
    ),
    program(
        "resnet50 bf16, pageable copies", "resnet", SlowCause.STARVED, "resnet50 bf16",
        batch=256, loader="copy",
    ),
    program(
        "transformer fp32", "transformer", SlowCause.NO_TENSOR, "transformer tf32",
        precision="fp32", width=1024, batch=8, length=512,
    ),
    program(
        "transformer tf32", "transformer", SlowCause.BUSY,
        precision="tf32", width=1024, batch=8, length=512,
    ),
    program(
        "resnet50 fp32", "resnet", SlowCause.NO_TENSOR, "resnet50 bf16",
        precision="fp32", batch=256,
    ),
    program(
        "small transformer, batch 1", "transformer", SlowCause.SMALL_BATCH,
        "small transformer, batch 256",
        width=512, batch=1, length=64,
    ),
    program(
        "small transformer, batch 1, one graph", "graph", SlowCause.SMALL_BATCH,
        "small transformer, batch 256",
        width=512, batch=1, length=64,
    ),
    program(
        "small transformer, batch 256", "transformer", SlowCause.BUSY,
        width=512, batch=256, length=64,
    ),
    program(
        "lstm, batch 8", "lstm", SlowCause.SMALL_BATCH, "lstm, batch 512",
        width=1024, batch=8, length=256,
    ),
    program("lstm, batch 512", "lstm", SlowCause.UNKNOWN, width=1024, batch=512, length=256),
    program("sums of long vectors", "elementwise", SlowCause.UNKNOWN),
    program("embeddings", "embeddings", SlowCause.UNKNOWN, width=128, batch=65536),
    program("allocated and idle", "idle", SlowCause.UNKNOWN),
)  # fmt: skip


def autocast(torch: Any, program: Program) -> Any:
    return torch.autocast("cuda", dtype=torch.bfloat16, enabled=program.precision == "bf16")


def _transformer(torch: Any, program: Program) -> Step:
    model = _encoder(torch, program)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True)
    shape = (program.batch, program.length, program.width)
    inputs = torch.randn(shape, device="cuda")

    def step() -> int:
        time.sleep(program.wait_seconds)
        _train_once(torch, program, model, optimizer, inputs)
        return program.batch

    return step


def _encoder(torch: Any, program: Program) -> Any:
    layer = torch.nn.TransformerEncoderLayer(
        program.width,
        program.width // 64,
        4 * program.width,
        dropout=0.0,
        batch_first=True,
        norm_first=True,
        device="cuda",
    )
    return torch.nn.TransformerEncoder(layer, program.layers, enable_nested_tensor=False)


def _train_once(torch: Any, program: Program, model: Any, optimizer: Any, inputs: Any) -> None:
    optimizer.zero_grad(set_to_none=True)
    with autocast(torch, program):
        out = model(inputs)
    out.float().square().mean().backward()
    optimizer.step()


def _graph(torch: Any, program: Program) -> Step:
    """Return a step of one CUDA graph: nothing waits for launches, the work stays small."""
    model = _encoder(torch, program)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-5, fused=True, capturable=True)
    inputs = torch.randn((program.batch, program.length, program.width), device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            _train_once(torch, program, model, optimizer, inputs)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
            out = model(inputs)
        out.float().square().mean().backward()
        optimizer.step()

    def step() -> int:
        for _ in range(20):
            graph.replay()
        return 20 * program.batch

    return step


def _resnet(torch: Any, program: Program) -> Step:
    model = importlib.import_module("torchvision").models.resnet50().cuda()
    model = model.to(memory_format=torch.channels_last)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    shape = (program.batch, 3, 224, 224)
    resident = torch.randn(shape, device="cuda").to(memory_format=torch.channels_last)
    labels = torch.randint(0, 1000, (program.batch,), device="cuda")
    sources = torch.randint(0, 255, (program.batch, 3, 320, 320), dtype=torch.uint8)

    def images() -> Any:
        if not program.loader:
            return resident
        if program.loader == "copy":
            return sources.float().div_(255)[..., :224, :224].contiguous().cuda()
        resized = torch.nn.functional.interpolate(
            sources.float(), size=(224, 224), mode="bicubic", antialias=True
        )
        return resized.div_(255).cuda()

    def step() -> int:
        inputs = images()
        optimizer.zero_grad(set_to_none=True)
        with autocast(torch, program):
            out = model(inputs)
        torch.nn.functional.cross_entropy(out.float(), labels).backward()
        optimizer.step()
        return program.batch

    return step


def _lstm(torch: Any, program: Program) -> Step:
    model = torch.nn.LSTM(program.width, program.width, 2, batch_first=True, device="cuda")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    inputs = torch.randn((program.batch, program.length, program.width), device="cuda")

    def step() -> int:
        optimizer.zero_grad(set_to_none=True)
        with autocast(torch, program):
            out, _ = model(inputs)
        out.float().square().mean().backward()
        optimizer.step()
        return program.batch

    return step


def _elementwise(torch: Any, _program: Program) -> Step:
    left, right = (torch.randn(2**29, device="cuda") for _ in range(2))

    def step() -> int:
        for _ in range(20):
            torch.add(left, right, out=left)
        return 20

    return step


def _embeddings(torch: Any, program: Program) -> Step:
    table = torch.nn.EmbeddingBag(20_000_000, program.width, sparse=True, device="cuda")
    head = torch.nn.Linear(program.width, 1, device="cuda")
    optimizer = torch.optim.SGD([*table.parameters(), *head.parameters()], lr=0.01)

    def step() -> int:
        chosen = torch.randint(0, 20_000_000, (program.batch, 32), device="cuda")
        optimizer.zero_grad(set_to_none=True)
        head(table(chosen)).square().mean().backward()
        optimizer.step()
        return program.batch

    return step


def _idle(torch: Any, _program: Program) -> Step:
    held = torch.zeros(2**30, device="cuda")

    def step() -> int:
        time.sleep(0.5)
        return int(held.numel() > 0)

    return step


WORK: dict[str, Callable[[Any, Program], Step]] = {
    "transformer": _transformer,
    "graph": _graph,
    "resnet": _resnet,
    "lstm": _lstm,
    "elementwise": _elementwise,
    "embeddings": _embeddings,
    "idle": _idle,
}
