"""How fast two programs are on one GPU beside one another, taking turns and by MPS.

`python -m benchmarks.measure_shared_board --out FILE.json` needs an NVIDIA GPU of Hopper or newer,
torch, and nvidia-cuda-mps-control for the second half. Two processes hold all programs and run one
of them each for two seconds, alone first. The kept rows are benchmarks/measured/shared_board_*.
"""

import argparse
import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

SECONDS, _BEGIN_SECONDS = 2.0, 0.5
_MPS = {"CUDA_MPS_PIPE_DIRECTORY": "/tmp/mps", "CUDA_MPS_LOG_DIRECTORY": "/tmp/mpslog"}  # noqa: S108


def programs() -> dict[str, Callable[[], None]]:
    """Return the steps of the programs by name, each done when it returns."""
    torch: Any = importlib.import_module("torch")
    kind = {"device": "cuda", "dtype": torch.bfloat16}
    layer = torch.nn.TransformerEncoderLayer(1024, 16, 4096, batch_first=True, **kind)
    model = torch.nn.TransformerEncoder(layer, 8, enable_nested_tensor=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-6)
    weights = [torch.randn(8192, 8192, **kind) for _ in range(16)]
    large, small = torch.randn(64, 512, 1024, **kind), torch.randn(1, 128, 1024, **kind)
    tokens, square = torch.randn(8, 8192, **kind), torch.randn(4096, 4096, **kind)

    def train(batch: Any, wait: float = 0.0) -> None:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
        torch.cuda.synchronize()
        time.sleep(wait)

    def decode(tokens_each: int, wait: float = 0.0) -> None:
        for _token in range(tokens_each):
            states = tokens
            for weight in weights:
                states = states @ weight
        torch.cuda.synchronize()
        time.sleep(wait)

    def multiply(matrix: Any, times: int, wait: float) -> None:
        for _time in range(times):
            torch.mm(matrix, matrix)
        torch.cuda.synchronize()
        time.sleep(wait)

    return {
        "training": lambda: train(large),
        "training, batch 1": lambda: train(small),
        "decoding": lambda: decode(1),
        "chat with gaps": lambda: decode(4, 0.02),
        "bursts of matrices": lambda: multiply(weights[0], 8, 0.05),
        "training, loader waits": lambda: train(large, 0.15),
        "rare requests": lambda: multiply(square, 1, 0.05),
    }


def work() -> None:
    """Run what stdin names, `PROGRAM|BEGIN`, and print steps per second and p95 of a step in s."""
    known = programs()
    for step in known.values():
        for _time in range(3):
            step()
    print("|".join(known), flush=True)
    for line in sys.stdin:
        name, begin = line.strip().split("|")
        while time.time() < float(begin):  # in motion before it counts
            known[name]()
        lengths, started = list[float](), time.time()
        while time.time() - started < SECONDS:
            before = time.time()
            known[name]()
            lengths.append(time.time() - before)
        rate = len(lengths) / (time.time() - started)
        print(json.dumps([rate, sorted(lengths)[int(0.95 * len(lengths))]]), flush=True)


def activity(seconds: float) -> tuple[float, float]:
    """Return the share of time that the engine, and that SMs were active, by GPM."""
    nvml: Any = importlib.import_module("pynvml")
    board = nvml.nvmlDeviceGetHandleByIndex(0)
    first, second = nvml.nvmlGpmSampleAlloc(), nvml.nvmlGpmSampleAlloc()
    nvml.nvmlGpmSampleGet(board, first)
    time.sleep(seconds)
    nvml.nvmlGpmSampleGet(board, second)
    asked = nvml.c_nvmlGpmMetricsGet_t()
    asked.version, asked.numMetrics = nvml.NVML_GPM_METRICS_GET_VERSION, 2
    asked.sample1, asked.sample2 = first, second
    asked.metrics[0].metricId = nvml.NVML_GPM_METRIC_GRAPHICS_UTIL
    asked.metrics[1].metricId = nvml.NVML_GPM_METRIC_SM_UTIL
    nvml.nvmlGpmMetricsGet(asked)
    return asked.metrics[0].value / 100, asked.metrics[1].value / 100


def rows_of(sharing: str, environment: dict[str, str]) -> list[dict[str, Any]]:
    """Return what every pair of programs did."""
    command = [sys.executable, "-m", "benchmarks.measure_shared_board", "--work"]
    workers = [
        subprocess.Popen(  # noqa: S603 # this file
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        for _worker in range(2)
    ]
    names, _same = (_line(worker).split("|") for worker in workers)

    def measured(pair: Sequence[str]) -> tuple[list[Any], tuple[float, float]]:
        begin = time.time() + _BEGIN_SECONDS
        for worker, name in zip(workers, pair, strict=False):
            print(f"{name}|{begin}", file=worker.stdin, flush=True)
        time.sleep(_BEGIN_SECONDS)
        load = activity(SECONDS)
        return [
            json.loads(_line(worker)) for worker, _name in zip(workers, pair, strict=False)
        ], load

    alone = {name: measured([name]) for name in names}
    rows = []
    for number, name in enumerate(names):
        for other in names[number:]:
            pair = (name, other)
            found, _load = measured(pair)
            base = [alone[entry] for entry in pair]
            rows.append(
                {
                    "sharing": sharing,
                    "pair": pair,
                    "sm_active": [load[1] for _done, load in base],
                    "engine_active": [load[0] for _done, load in base],
                    "speed": [
                        now[0] / done[0][0] for now, (done, _load) in zip(found, base, strict=True)
                    ],
                    "p95_ratio": [
                        now[1] / done[0][1] for now, (done, _load) in zip(found, base, strict=True)
                    ],
                }
            )
    for worker in workers:
        worker.communicate()
    return rows


def _line(worker: "subprocess.Popen[str]") -> str:
    return worker.stdout.readline().strip() if worker.stdout is not None else ""


def measure() -> None:
    """Measure all pairs, taking turns and by MPS where its daemon is at hand."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("shared_board.json"))
    parser.add_argument("--work", action="store_true", help="be one of the two processes")
    options = parser.parse_args()
    if options.work:
        work()
        return
    importlib.import_module("pynvml").nvmlInit()
    rows = rows_of("time-slicing", dict(os.environ))
    daemon = shutil.which("nvidia-cuda-mps-control")
    if daemon is not None:
        environment = os.environ | _MPS
        for folder in _MPS.values():
            Path(folder).mkdir(exist_ok=True)
        subprocess.run([daemon, "-d"], env=environment, check=True)  # noqa: S603
        rows += rows_of("mps", environment)
        subprocess.run([daemon], env=environment, input="quit\n", text=True, check=True)  # noqa: S603
    options.out.write_text(json.dumps({"rows": rows}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    measure()
